"""A chat's settings: what somebody types is one, or is refused; what a file has is usable, or is
left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeserve.errors import InvalidRequestError
from edgeserve.tui.chat_settings import NUMBERS, as_setting, thinking, usable
from tests.chat_app import Table, drive

_DIGITS = "9" * 5000
"""More than Python makes a number of."""


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "-1", _DIGITS, "much"])
def test_what_is_no_number_is_refused(name: str, text: str):
    with pytest.raises(InvalidRequestError):
        as_setting(name, text)


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
