"""The colours that were chosen last, in a file that may be anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeserve.tui.kept_theme import keep_theme, kept_theme
from edgeserve.tui.themes import THEMES
from tests.chat_app import Table, drive


@pytest.mark.parametrize("name", THEMES)
def test_what_was_chosen_is_found(tmp_path: Path, name: str):
    keep_theme(tmp_path / "data", "dark")
    keep_theme(tmp_path / "data", name)
    assert kept_theme(tmp_path / "data") == name
    assert [each.name for each in (tmp_path / "data").iterdir()] == ["theme"]


@pytest.mark.parametrize("content", [b"", b"mauve\n", b"\xff\xfe", b"dark" * 10_000])
def test_what_is_no_theme_is_none(tmp_path: Path, content: bytes):
    (tmp_path / "theme").write_bytes(content)
    assert kept_theme(tmp_path) == ""


def test_nothing_there_is_none(tmp_path: Path):
    assert kept_theme(tmp_path / "nowhere") == ""
    (tmp_path / "theme").mkdir()
    assert kept_theme(tmp_path) == ""


def test_the_command_keeps_it_and_says_where_it_cannot(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("/theme light", "enter")
        await table.shows("theme: light, also the next time")
        assert kept_theme(table.chat.desk.data_dir) == "light"
        await table.type("/theme mauve", "enter")
        await table.shows("themes are dark, light, terminal")
        assert kept_theme(table.chat.desk.data_dir) == "light"
        (tmp_path / "data" / "theme").unlink()
        (tmp_path / "data" / "theme" / "x").mkdir(parents=True)
        await table.type("/theme dark", "enter")
        await table.says("does not take what you chose")
        assert table.chat.theme_name == THEMES["dark"].name

    drive(tmp_path, body)
