"""Whatever somebody typed where a path may stand: it is a file's, or it is not; nothing ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgeserve.chats.exchange import read_file
from edgeserve.commands.chosen_model import names_model
from edgeserve.errors import AttachmentError, ChatImportError, ModelNotFoundError
from edgeserve.loader.catalog import load_catalog
from edgeserve.loader.sources import parse_source
from edgeserve.tui.attachments import attachments_in, completions, missing_in, read_attachment
from edgeserve.typed_paths import is_file, is_there, path_of
from tests.chat_app import Table, drive

NOBODY = "~there-is-no-such-user/notes.md"
TOO_LONG = f"{'n' * 300}.md"
CHINESE = "请问如何学习" * 20
"""A question without a space, as whole languages write them; longer than a file's name can be."""

ODD = [NOBODY, TOO_LONG, "a\0b.md", "half \ud800.md", "x/" * 3000]


def test_a_home_is_somebodys_and_a_tilde_of_nobody_a_letter():
    assert path_of("~/notes.md") == Path.home() / "notes.md"
    assert path_of(NOBODY) == Path(NOBODY)


@pytest.mark.parametrize("typed", ODD)
def test_what_no_file_is_called_is_not_there(typed: str):
    assert not is_there(path_of(typed))
    assert not is_file(path_of(typed))


@pytest.mark.parametrize("typed", ODD)
def test_an_odd_name_is_no_attachment(typed: str, tmp_path: Path):
    assert attachments_in(f'see @"{typed}"', tmp_path) == []
    assert missing_in(f'see @"{typed}"', tmp_path) == ([typed] if typed.endswith(".md") else [])
    assert list(completions(typed, tmp_path)) == []
    with pytest.raises(AttachmentError):
        read_attachment(typed, tmp_path)


@pytest.mark.parametrize("typed", ODD)
def test_an_odd_name_is_imported_by_nobody(typed: str, tmp_path: Path):
    with pytest.raises(ChatImportError):
        read_file(tmp_path / path_of(typed), lambda: "new")


@pytest.mark.parametrize("word", [CHINESE, NOBODY, "n" * 300])
def test_a_long_question_without_a_space_is_no_model(word: str):
    assert not names_model(word, load_catalog())


@pytest.mark.parametrize("name", [CHINESE, NOBODY, f"{'n' * 300}/a", f"{'n' * 300}.gguf"])
def test_a_model_that_no_file_is_called_is_not_found(name: str):
    with pytest.raises(ModelNotFoundError):
        parse_source(name, load_catalog())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.md")
    with pytest.raises(AttachmentError, match="a pipe"):
        read_attachment("pipe.md", tmp_path)
    with pytest.raises(ChatImportError, match="a pipe"):
        read_file(tmp_path / "pipe.md", lambda: "new")

    async def body(table: Table) -> None:
        await table.ask("Hi")
        await table.type("/export --force pipe.md", "enter")
        await table.says("was not written: it is a pipe")

    drive(tmp_path, body)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no devices here")
def test_a_device_without_an_end_is_not_read():
    with pytest.raises(ChatImportError, match="a device"):
        read_file(Path("/dev/zero"), lambda: "new")


def test_the_chat_goes_on_after_names_that_no_file_has(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type(f"see @{NOBODY}", "enter")
        await table.says("There is no file")
        await table.pilot.press("enter")
        await table.until(lambda: table.texts()[1:] == [f"You said: see @{NOBODY}"])
        await table.type(f"@{'n' * 300}", "enter")
        await table.until(lambda: len(table.texts()) == 4)
        await table.until(lambda: not table.chat.talk.is_answering)
        for command in (f"/attach {NOBODY}", f"/import {NOBODY}"):
            await table.type(command, "enter")
            await table.says("No such file")
            await table.pilot.press("escape")
        await table.type(f"/export {TOO_LONG}", "enter")
        await table.says("was not written: File name too long")

    drive(tmp_path, body)
