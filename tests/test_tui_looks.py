"""Each screen as a picture: at 80 by 24 and 160 by 48, dark and light (tests/__snapshots__)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from edgeserve.tui.app import EdgeServeApp
from tests.chat_app import Table, desk
from tests.fake_chat_client import IN_USE, FakeClient, words

_ANSWER = """A *monad* is a way to **chain** computations that carry something extra.

```python
def bind(value, function):
    return None if value is None else function(value)
```
"""


async def _chat(table: Table) -> None:
    thoughts = "The user asks about monads."
    table.client.will_answer(words(_ANSWER, reasoning=thoughts))
    await table.ask("What is a monad?")


async def _lists(table: Table) -> None:
    await _chat(table)
    await table.pilot.press("ctrl+n")
    await table.ask("Plan a week in Lisbon")
    await table.type("/pin", "enter", "f2")
    await table.until(lambda: table.chat.chats.has_focus_within)


async def _cockpit(table: Table) -> None:
    await _chat(table)
    await table.pilot.press("f3")
    await table.shows("prefix hits")


async def _models(table: Table) -> None:
    await table.pilot.press("f4")
    await table.shows("too large")


async def _settings(table: Table) -> None:
    await table.pilot.press("f5")
    await table.shows("repetition penalty")


async def _help(table: Table) -> None:
    await table.pilot.press("f1")
    await table.shows("Writing")


_SCENES: dict[str, Callable[[Table], Awaitable[None]]] = {
    "chat": _chat,
    "lists": _lists,
    "cockpit": _cockpit,
    "models": _models,
    "settings": _settings,
    "help": _help,
}


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=["small", "wide"])
@pytest.mark.parametrize("scene", _SCENES)
def test_a_screen_looks_as_it_did(
    snap_compare: Any, tmp_path: Path, scene: str, size: tuple[int, int], theme: str
):
    client = FakeClient(model=IN_USE)
    app = EdgeServeApp(desk(tmp_path, client, theme=theme))

    async def play(pilot: Pilot[None]) -> None:
        table = Table(app, pilot, client)
        await table.until(lambda: table.chat.is_open)
        app.chat.composer.cursor_blink = False
        await _SCENES[scene](table)
        for field in app.screen.query("Input, TextArea"):
            field.cursor_blink = False  # type: ignore[attr-defined]
        # Turns out of sight are drawn a few at a time; until then the scrollbar's size is a guess.
        await table.until(lambda: app.chat.transcript._background_timer is None)
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=play)
