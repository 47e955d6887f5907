"""The transcript, driven as somebody would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from textual.app import App, ComposeResult
from textual.message import Message
from textual.pilot import Pilot

from edgeserve.chats.records import TurnState
from edgeserve.tui.client import TokenFact
from edgeserve.tui.widgets.transcript import Transcript
from edgeserve.tui.widgets.transcript_messages import (
    BranchAsked,
    CodeCopyAsked,
    TokenPointed,
    TurnSelected,
)
from edgeserve.tui.widgets.turn_view import TurnView


class Screen(App[None]):
    """A transcript alone; keeps what it says."""

    def __init__(self, views: Sequence[TurnView]) -> None:
        super().__init__()
        self.views = views
        self.heard: list[Message] = []

    def compose(self) -> ComposeResult:
        yield Transcript()

    def on_mount(self) -> None:
        self.transcript.show(self.views)
        self.transcript.focus()

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def on_turn_selected(self, message: TurnSelected) -> None:
        self.heard.append(message)

    def on_branch_asked(self, message: BranchAsked) -> None:
        self.heard.append(message)

    def on_code_copy_asked(self, message: CodeCopyAsked) -> None:
        self.heard.append(message)

    def on_token_pointed(self, message: TokenPointed) -> None:
        self.heard.append(message)


def drive(
    views: Sequence[TurnView],
    script: Callable[[Screen, Pilot[None]], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
) -> None:
    async def run() -> None:
        app = Screen(views)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await script(app, pilot)

    asyncio.run(run())


def seen(app: Screen) -> list[str]:
    transcript = app.transcript
    return [transcript.render_line(y).text.rstrip() for y in range(transcript.size.height)]


def said(text: str, **fields: object) -> TurnView:
    return TurnView(**{"id": "a", "role": "assistant", "name": "smollm2", "text": text, **fields})


async def settled(app: Screen, pilot: Pilot[None]) -> None:
    """Until every turn is drawn and no frame is due."""
    while app.transcript.is_busy:
        await asyncio.sleep(0.01)
    await pilot.pause()


def test_text_that_streams_is_seen_and_followed() -> None:
    async def script(app: Screen, pilot: Pilot[None]) -> None:
        for i in range(60):
            app.transcript.append("a", f"- item {i}\n")
        await settled(app, pilot)
        assert any("item 59" in line for line in seen(app))

    drive([said("", state=TurnState.STREAMING)], script)


def test_keys_select_turns_and_ask_for_branches() -> None:
    views = [said(f"turn {i}", id=str(i)) for i in range(5)]

    async def script(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("up", "k", "[", "]")
        assert [(type(m), m.turn_id) for m in app.heard] == [
            (TurnSelected, "4"),
            (TurnSelected, "3"),
            (BranchAsked, "3"),
            (BranchAsked, "3"),
        ]

    drive(views, script)


def test_c_asks_for_one_code_block_after_the_other() -> None:
    text = "```py\na = 1\n```\nand\n\n- in a list:\n  ```\n  b\n  ```\n"

    async def script(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("up", "c", "c", "c")
        codes = [m.text for m in app.heard if isinstance(m, CodeCopyAsked)]
        assert codes == ["a = 1", "b", "a = 1"]

    drive([said(text)], script)


def test_tokens_are_tinted_and_pointed_at() -> None:
    tokens = (TokenFact("one", 0.5), TokenFact(" two", 0.25, drafted=True))

    async def script(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("up", "t", "right", "right")
        assert [m.token for m in app.heard if isinstance(m, TokenPointed)] == list(tokens)
        assert any("one two" in line for line in seen(app))

    drive([said("one two", tokens=tokens)], script)
