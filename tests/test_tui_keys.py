"""The chat by its keys alone: where they go is seen, and they do what the screen says they do."""

from __future__ import annotations

import re
from pathlib import Path

from textual.binding import Binding

from edgeserve.chats.store import ChatStore
from edgeserve.tui.screens.chat_keys import CHAT_KEYS
from edgeserve.tui.screens.help import commands_text, keys_text
from edgeserve.tui.widgets.long_list import LongList
from edgeserve.tui.widgets.transcript_style import TRANSCRIPT_KEYS
from tests.chat_app import NOW, Table, drive
from tests.fake_chat_client import words


def test_tab_marks_a_message_so_that_the_focus_is_seen(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        await table.pilot.press("tab")
        await table.until(lambda: table.chat.transcript.selected == table.chat.talk.turns[-1].id)
        assert "▌ You said: Hi" in table.screen()

    drive(tmp_path, body)


def test_new_text_below_is_reached_while_writing(tmp_path: Path):
    async def body(table: Table) -> None:
        table.client.will_answer(words("line\n\n" * 40), words("at the very end"))
        await table.ask("Hi")
        await table.pilot.press("ctrl+home")
        await table.until(lambda: table.chat.transcript.scroll_offset.y == 0)
        await table.pilot.press("ctrl+r")
        await table.pilot.press("ctrl+home", "ctrl+end")
        await table.shows("at the very end")
        assert table.chat.composer.has_focus

    drive(tmp_path, body)


def test_branches_are_stepped_through_by_one_key_again_and_again(tmp_path: Path):
    async def body(table: Table) -> None:
        table.client.will_answer(*(words(name) for name in ("first", "second", "third")))
        await table.ask("Hi")
        for _ in range(2):
            await table.pilot.press("ctrl+r")
            await table.until(lambda: not table.chat.talk.is_answering)
        await table.pilot.press("tab")
        for name in ("second", "first"):
            await table.pilot.press("left_square_bracket")
            await table.until(lambda name=name: table.texts()[-1] == name)
            await table.until(lambda name=name: f"▌ {name}" in table.screen())

    drive(tmp_path, body)


def test_backspace_is_named_only_where_it_takes_an_attachment_away(tmp_path: Path):
    (tmp_path / "notes.md").write_text("Notes")

    async def body(table: Table) -> None:
        await table.type("/attach notes.md", "enter")
        await table.shows("backspace takes it away")
        await table.type("What is this?")
        await table.until(lambda: "backspace" not in table.screen())
        assert "@notes.md" in table.screen()

    drive(tmp_path, body)


def test_help_names_every_key():
    told = set(re.split(r"[\s,]+", f"{keys_text().plain}\n{commands_text().plain}"))
    named = {"left_square_bracket": "[", "right_square_bracket": "]", "escape": "esc"}
    keys = [key for each in (*CHAT_KEYS, *TRANSCRIPT_KEYS) for key in _keys_of(each)]
    assert [key for key in keys if named.get(key, key) not in told] == []


def _keys_of(binding: object) -> list[str]:
    assert isinstance(binding, Binding)
    return binding.key.split(",")


def test_a_long_list_is_made_as_somebody_goes_down_it(tmp_path: Path):
    with ChatStore(tmp_path / "chats.db", clock=lambda: NOW) as store:
        for number in range(150):
            store.rename(store.new_chat(model="tiny").id, f"chat {number}")

    async def body(table: Table) -> None:
        await table.pilot.press("f2", "tab")
        found = table.chat.chats.query_one(LongList)
        assert 24 <= found.option_count < 100
        for number in range(1, 100):
            await table.pilot.press("down")
            assert found.marked == number
            assert found.option_count < 100
        await table.shows("chat 50")
        for _ in range(70):
            await table.pilot.press("up")
        await table.shows("chat 120")
        found.action_page_down()
        assert found.marked == 29 + found.size.height
        found.action_page_up()
        assert found.marked == 29
        await table.pilot.press("end")
        await table.until(lambda: found.marked == 149)
        await table.shows("chat 0")
        await table.pilot.press("down")
        assert found.marked == 0
        await table.shows("chat 149")
        await table.pilot.press("up")
        assert found.marked == 149
        await table.shows("chat 0")

    drive(tmp_path, body)
