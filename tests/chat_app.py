"""The terminal chat with a scripted client and a clock that stands, for tests that press keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual import events
from textual.pilot import Pilot

from edgeserve.chats.prompt_library import PromptLibrary
from edgeserve.chats.store import ChatStore
from edgeserve.terminal import Terminal
from edgeserve.tui.app import EdgeServeApp
from edgeserve.tui.desk import Desk
from tests.fake_chat_client import IN_USE, FakeClient

NOW = 1_700_000_000.0


class StandingClock:
    """Stands still but for what a test adds."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Table:
    """An app that runs, and the keys of its terminal."""

    def __init__(self, app: EdgeServeApp, pilot: Pilot[None], client: FakeClient) -> None:
        self.app = app
        self.pilot = pilot
        self.client = client
        self.chat = app.chat

    async def type(self, text: str, *keys: str) -> None:
        """Text into what has the focus, as a terminal pastes it; then keys."""
        if text:
            self.app.post_message(events.Paste(text))
            await self.pilot.pause()
        await self.pilot.press(*keys)

    async def ask(self, text: str) -> None:
        """Asks, and waits for the answer's end."""
        await self.type(text, "enter")
        await self.until(lambda: not self.chat.talk.is_answering and bool(self.chat.talk.turns))

    async def until(self, is_so: Callable[[], object]) -> None:
        """Waits for what is on its way; fails where it does not come."""
        for _ in range(500):
            await self.pilot.pause()
            if is_so():
                await self.pilot.pause()
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"did not come to be; the screen says:\n{self.screen()}")

    async def shows(self, text: str) -> None:
        await self.until(lambda: text in self.screen())

    async def says(self, text: str) -> None:
        """As `shows`, wherever lines are broken."""
        await self.until(lambda: _unbroken(text) in _unbroken(self.screen()))

    async def later(self, seconds: float) -> None:
        """So much later; the screen has seen before what stands now."""
        await self.pilot.pause()
        self.chat._tick()
        clock = self.chat.desk.clock
        assert isinstance(clock, StandingClock)
        clock.now += seconds

    def texts(self) -> list[str]:
        return [turn.text for turn in self.chat.talk.turns]

    def screen(self) -> str:
        """What stands on the terminal."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join("".join(each.text for each in line).rstrip() for line in lines)


def _unbroken(text: str) -> str:
    return "".join(each for each in text if not each.isspace() and each not in "▌▎")


def desk(folder: Path, client: FakeClient, **given: object) -> Desk:
    fields: dict[str, object] = {
        "client": client,
        "open_chats": lambda: ChatStore(folder / "chats.db", clock=lambda: NOW),
        "prompts": PromptLibrary(folder / "prompts"),
        "folder": folder,
        "data_dir": folder / "data",
        "terminal": Terminal(),
        "clock": StandingClock(),
        **given,
    }
    return Desk(**fields)  # type: ignore[arg-type]


def drive(
    folder: Path,
    body: Callable[[Table], Awaitable[None]],
    *,
    client: FakeClient | None = None,
    size: tuple[int, int] = (80, 24),
    **given: object,
) -> None:
    """Runs the app in a terminal of this size, and `body` beside it; leaves the app at the end."""

    async def main() -> None:
        used = client or FakeClient(model=IN_USE)
        app = EdgeServeApp(desk(folder, used, **given))
        async with app.run_test(size=size) as pilot:
            table = Table(app, pilot, used)
            await table.until(lambda: table.chat.is_open)
            await body(table)
            if app.is_running:
                await table.chat.leave()

    asyncio.run(asyncio.wait_for(main(), 60))
