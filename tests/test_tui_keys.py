"""The chat by its keys alone: where they go is seen, and they do what the screen says they do."""

from __future__ import annotations

from pathlib import Path

from tests.chat_app import Table, drive
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
