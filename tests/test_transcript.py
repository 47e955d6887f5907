"""The transcript, driven as somebody would."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Sequence

from textual.app import App, ComposeResult
from textual.message import Message
from textual.pilot import Pilot
from textual.selection import SELECT_ALL

from edgeserve.chats.records import TurnState
from edgeserve.tui.client import TokenFact
from edgeserve.tui.look import Look
from edgeserve.tui.markdown_lines import MarkdownLines
from edgeserve.tui.widgets.transcript import Transcript
from edgeserve.tui.widgets.transcript_messages import (
    BranchAsked,
    CodeCopyAsked,
    TokenPointed,
    TurnSelected,
)
from edgeserve.tui.widgets.turn_parts import TurnParts
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


LONG = [
    said("\n\n".join(f"turn {i} paragraph {n}" for n in range(9)), id=str(i)) for i in range(40)
]


def test_text_that_comes_below_does_not_move_what_is_read() -> None:
    async def script(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("home")
        before = seen(app)
        app.transcript.append("39", "\n\nmore\n\nand more")
        await settled(app, pilot)
        assert seen(app)[:-1] == before[:-1]
        assert "new text below" in seen(app)[-1]
        await pilot.press("end")
        assert any("and more" in line for line in seen(app))

    drive(LONG, script)


def test_another_width_keeps_the_text_at_the_top() -> None:
    async def script(app: Screen, pilot: Pilot[None]) -> None:
        await settled(app, pilot)
        app.transcript.scroll_to(y=200, animate=False)
        await pilot.pause()
        before = seen(app)[0]
        await pilot.resize_terminal(60, 24)
        await settled(app, pilot)
        assert seen(app)[0] == before

    drive(LONG, script)


def test_a_selection_is_the_text_without_bars_and_breaks() -> None:
    text = "- a point that is long enough to be wrapped at this width\n\n```\nx\n```"

    async def script(app: Screen, _: Pilot[None]) -> None:
        selected = app.transcript.get_selection(SELECT_ALL)
        assert selected is not None
        assert "• a point that is long enough to be wrapped at this width\n" in selected[0]
        assert "\nx\n" in selected[0]
        assert "▎" not in selected[0]

    drive([said(text)], script, size=(30, 24))


def test_reasoning_folds_and_unfolds() -> None:
    async def script(app: Screen, pilot: Pilot[None]) -> None:
        assert any(line.endswith("▸ thought, 2 s") for line in seen(app))
        assert not any("hidden thought" in line for line in seen(app))
        await pilot.press("up", "enter")
        assert any("│ hidden thought" in line for line in seen(app))

    drive([said("so", reasoning="hidden thought", reasoning_note="2 s")], script)


def test_copied_code_keeps_its_tabs_and_no_control() -> None:
    async def script(app: Screen, _: Pilot[None]) -> None:
        assert app.transcript.code_blocks("a") == ["all:\n\tmake ␛[2J"]

    drive([said("```make\nall:\n\tmake \x1b[2J\n```")], script)


def test_turns_of_another_chat_are_freed_without_a_collection() -> None:
    async def script(app: Screen, pilot: Pilot[None]) -> None:
        await settled(app, pilot)
        gone = weakref.ref(app.transcript._stack.turns[0])
        gc.collect()
        gc.disable()
        try:
            app.transcript.show([said("another", id="x")])
            await pilot.pause()
            assert gone() is None
        finally:
            gc.enable()

    drive(LONG[:3], script)


def test_no_letter_lies_under_the_scrollbar() -> None:
    words = [f"w{n:03}" for n in range(400)]

    async def script(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert app.transcript.show_vertical_scrollbar
        strips = app.screen._compositor.render_strips()
        lines = ["".join(segment.text for segment in line) for line in strips]
        drawn = [word for line in lines for word in line.split() if word.startswith("w")]
        last = words.index(drawn[-1])
        assert drawn == words[last - len(drawn) + 1 : last + 1]
        assert last == 399

    # 5 cells a word: with the bar's column words would fill the line to its end.
    drive([said(" ".join(words))], script, size=(41, 24))


MIXED = """# Three ways

1. one thing
2. another:
   - with
   - more

| a | b |
|-|-|
| 1 | 2 |

> Quoted.

```sh
ls
```

The end.
"""


def test_what_is_in_sight_is_drawn_and_no_guess() -> None:
    for first in range(12):
        turn = TurnParts(said(MIXED, footer="9 tokens"), MarkdownLines(Look()), 75)
        while turn.ensure(first, first + 6):
            pass
        ends = zip(turn._parts, turn.offsets[:-1], turn.offsets[1:], strict=True)
        guessed = [part for part, start, end in ends if start < first + 6 and end > first]
        assert all(part.is_measured for part in guessed)


def test_the_screen_has_the_lines_that_there_are() -> None:
    async def script(app: Screen, pilot: Pilot[None]) -> None:
        for word in MIXED.split(" "):
            app.transcript.append("a", f"{word} ")
            await asyncio.sleep(0)
        app.transcript.update(said(MIXED, footer="9 tokens", state=TurnState.COMPLETE))
        await settled(app, pilot)
        strips = app.screen._compositor.render_strips()
        stack, top = app.transcript._stack, app.transcript.scroll_offset.y
        lines = [stack.line(top + y)[1].text for y in range(len(strips))]
        drawn = ["".join(each.text for each in strip)[2:-1].rstrip() for strip in strips]
        assert drawn == [line.rstrip() for line in lines]
        assert "9 tokens" in drawn

    drive([said("", state=TurnState.STREAMING)], script, size=(80, 12))
