"""A chat's settings: what somebody types is one, or is refused; what a file has is usable, or is
left alone."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from textual.widgets import Input

from edgeserve.errors import InvalidRequestError
from edgeserve.sampling_params import SamplingParams
from edgeserve.tui.chat_settings import NUMBERS, as_setting, thinking, usable
from edgeserve.tui.screens.settings import SettingsScreen
from tests.chat_app import Table, drive

_DIGITS = "9" * 5000
"""More than Python makes a number of."""


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "-1", _DIGITS, "much"])
def test_what_is_no_number_is_refused(name: str, text: str):
    with pytest.raises(InvalidRequestError):
        as_setting(name, text)


@pytest.mark.parametrize(
    ("name", "most", "beyond", "allowed"),
    [
        ("temperature", "100", "100.5", "from 0 to 100"),
        ("temperature", "100", "1000", "from 0 to 100"),
        ("seed", "18446744073709551615", "18446744073709551616", "below 2.64"),
    ],
)
def test_what_an_engine_would_refuse_is_refused_with_its_range(
    name: str, most: str, beyond: str, allowed: str
):
    value = as_setting(name, most)
    SamplingParams(**{name: value})
    with pytest.raises(InvalidRequestError, match=allowed):
        as_setting(name, beyond)


@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "thinking_budget"])
@pytest.mark.parametrize(
    "text", ["0", "1", "100", "1000", "1e300", str(2**63), str(2**64), "9" * 40]
)
def test_an_engine_takes_every_number_that_a_setting_may_be(name: str, text: str):
    with suppress(InvalidRequestError):
        value = as_setting(name, text)
        try:
            SamplingParams(**{name: value})
        except InvalidRequestError as error:
            raise AssertionError(f"{name} {text} is a setting, and refused later") from error


@pytest.mark.parametrize("typed", ["temperature 1000", f"seed {2**64}"])
def test_a_number_out_of_range_is_refused_at_once(tmp_path: Path, typed: str):
    name, _, text = typed.partition(" ")

    async def by_command(table: Table) -> None:
        await table.type(f"/set {typed}", "enter")
        await table.says("must be")
        assert name not in table.chat.talk.chat.settings

    async def in_the_dialog(table: Table) -> None:
        await table.type("/settings", "enter")
        await table.until(lambda: isinstance(table.app.screen, SettingsScreen))
        table.app.screen.query_one(f"#set-{name}", Input).value = text
        await table.pilot.press("ctrl+s")
        await table.until(lambda: table.app.screen.query_one("#wrong").display)
        assert isinstance(table.app.screen, SettingsScreen)
        assert name not in table.chat.talk.chat.settings

    drive(tmp_path, by_command)
    drive(tmp_path, in_the_dialog)


@pytest.mark.parametrize("how", ["much", "²", _DIGITS])
def test_how_to_think_is_understood_or_refused(how: str):
    with pytest.raises(InvalidRequestError):
        thinking(how)
    with pytest.raises(InvalidRequestError):
        as_setting("thinking", how)


def test_a_budget_is_thinking():
    assert thinking("200") == {"thinking": True, "thinking_budget": 200}


def test_values_of_another_kind_are_not_used():
    good = {"temperature": 1, "top_k": 40, "thinking": False, "max_tokens": 5}
    odd = {"top_p": "high", "min_p": float("inf"), "seed": 1.5, "thinking_budget": True, "new": 1}
    assert usable({**good, **odd}) == good


def test_a_chat_with_settings_of_another_kind_is_answered(tmp_path: Path):
    said = [
        {"id": "t1", "parent_id": None, "role": "user", "text": "Hi"},
        {"id": "t2", "parent_id": "t1", "role": "assistant", "text": "Hello"},
    ]
    chat = {"id": "c1", "turns": said, "leaf_id": "t2", "settings": {"max_tokens": "many"}}
    file = {"format": "edgeserve chats", "version": 1, "chats": [chat]}
    (tmp_path / "odd.json").write_text(json.dumps(file))

    async def body(table: Table) -> None:
        await table.type("/import odd.json", "enter")
        await table.says("1 chat imported")
        await table.ask("And you?")
        await table.until(lambda: table.texts()[-1:] == ["You said: And you?"])

    drive(tmp_path, body)
