"""A terminal that becomes a few columns wide and wide again, with whatever stands on it."""

from __future__ import annotations

from pathlib import Path

from tests.chat_app import Table, drive


def test_what_is_open_outlives_a_terminal_of_a_few_columns(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        for key in ("ctrl+p", "f5"):
            await table.pilot.press(key)
            await table.until(lambda: table.app.screen is not table.chat)
            for width, height in ((5, 24), (2, 2), (80, 24)):
                await table.pilot.resize_terminal(width, height)
            await table.pilot.press("escape")
            await table.until(lambda: table.app.screen is table.chat)
        await table.shows("You said: Hi")

    drive(tmp_path, body)
