"""How the chat's transcript keeps up: frames while an answer streams, and how soon a key echoes.

Measured in Textual's headless driver (`run_test`), which draws all that a terminal would be sent
and sends it nowhere. A frame is the time in which the event loop runs nothing else: from new text
to lines on the screen. A key's echo is from the key to the screen that has it.

    python benches/tui.py --seconds 20
    python benches/tui.py --model model.gguf   # two of its answers computed meanwhile
"""

from __future__ import annotations

import argparse
import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy
from textual.app import App, ComposeResult
from textual.events import Key
from textual.screen import Screen
from textual.widgets import TextArea

from edgeserve import LLM, SamplingParams
from edgeserve.chats.records import TurnState
from edgeserve.tui.collecting import collect_seldom
from edgeserve.tui.widgets.transcript import Transcript
from edgeserve.tui.widgets.turn_view import TurnView

PARAGRAPH = (
    "The *scheduler* takes every row it can: `decode` rows first, then **prefill** chunks, and "
    "what is [cached](https://example.org/cache) needs none of it, so that nobody waits.\n\n"
)
LIST = "- one thing to do, at some length\n- another one\n  1. with a step\n  2. and one more\n\n"
CODE = "```python\n" + "def f(x: int) -> int:\n    return x * 2  # twice\n\n" * 4 + "```\n\n"
TABLE = "| name | what it is | count |\n|---|---|--:|\n" + "| one | a cell | 12 |\n" * 4 + "\n"
ANSWER = PARAGRAPH + LIST + CODE + PARAGRAPH + TABLE


class Chat(App[None]):
    """A transcript above a text area, as a composer is one. Counts what each frame took."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[float] = []
        self.spent = 0.0
        self.on_drawn: Callable[[], None] = lambda: None

    def compose(self) -> ComposeResult:
        yield Watched()
        yield TextArea()

    CSS = "TextArea { height: 5; }"

    def on_ready(self) -> None:
        collect_seldom()

    def get_default_screen(self) -> Screen[None]:
        return WatchedScreen(id="_default")

    def _display(self, screen: Screen[object], renderable: object) -> None:
        if hasattr(renderable, "render_segments"):
            renderable.render_segments(self.console)  # what a terminal would be sent
        super()._display(screen, renderable)
        self.on_drawn()


class Watched(Transcript):
    def _frame(self) -> None:
        begun = time.perf_counter()
        super()._frame()
        self.app.spent += time.perf_counter() - begun


class WatchedScreen(Screen[None]):
    def _on_timer_update(self) -> None:
        begun = time.perf_counter()
        super()._on_timer_update()
        if self.app.spent:
            self.app.frames.append(self.app.spent + time.perf_counter() - begun)
            self.app.spent = 0.0


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def history(num_lines: int) -> list[TurnView]:
    """Turns of about so many lines at 80 columns."""
    views: list[TurnView] = []
    for i in range(num_lines // 31 + 1):
        views.append(TurnView(id=f"q{i}", role="user", name="you", text=f"Question {i}, please"))
        views.append(TurnView(id=f"a{i}", role="assistant", name="smollm2", text=ANSWER))
    return views


async def stalls(found: list[float], stop: asyncio.Event) -> None:
    """How long the loop was held at a time: whatever waits 1 ms and comes later."""
    while not stop.is_set():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        found.append(time.perf_counter() - before - 0.001)


async def stream(chat: Chat, tokens_per_s: float, until: float) -> int:
    """Tokens of four characters at their pace, each on its own."""
    transcript = chat.query_one(Transcript)
    transcript.update(
        TurnView(id="live", role="assistant", name="smollm2", state=TurnState.STREAMING)
    )
    begun = time.perf_counter()
    text = ANSWER * 400
    sent = 0
    while (now := time.perf_counter()) < until:
        due = int((now - begun) * tokens_per_s)
        while sent < due:
            transcript.append("live", text[4 * sent : 4 * sent + 4])
            sent += 1
        await asyncio.sleep(0.004)
    return sent


async def echoes(chat: Chat, until: float) -> list[float]:
    """Keys, one after the other, each until the screen with it is drawn."""
    field = chat.query_one(TextArea)
    field.focus()
    found: list[float] = []
    while time.perf_counter() < until:
        drawn = asyncio.Event()
        wanted = field.text + "x"
        chat.on_drawn = lambda wanted=wanted, drawn=drawn: (
            drawn.set() if field.text == wanted else None
        )
        begun = time.perf_counter()
        key = Key("x", "x")
        key.set_sender(chat)
        chat._driver.send_message(key)
        await drawn.wait()
        found.append(time.perf_counter() - begun)
        await asyncio.sleep(0.05 + random.random() / 30)
        if len(field.text) > 40:
            field.clear()
    return found


def compute_beside(model: Path | None, stop: threading.Event) -> None:
    """Keeps all cores at work in C, as an answer does; ends a step after `stop`."""
    if model is None:
        square = numpy.ones((384, 384), numpy.float32)
        while not stop.is_set():
            square @ square
        return
    with LLM(str(model)) as llm:
        params = SamplingParams(max_tokens=8, ignore_eos=True)
        while not stop.is_set():
            llm.generate(["A story:", "A poem:"], params, progress=False)


async def measure(arguments: argparse.Namespace) -> None:
    chat = Chat()
    async with chat.run_test(size=tuple(arguments.size)) as pilot:
        transcript = chat.query_one(Transcript)
        begun = time.perf_counter()
        transcript.show(history(arguments.lines))
        print(f"{arguments.lines:,} lines shown in {time.perf_counter() - begun:.2f} s", end="")
        while transcript.is_busy:
            await asyncio.sleep(0.01)
        print(f", measured after {time.perf_counter() - begun:.2f} s: {transcript.virtual_size}")
        held: list[float] = []
        stop = asyncio.Event()
        watching = asyncio.create_task(stalls(held, stop))
        until = time.perf_counter() + arguments.seconds
        sent, keys = await asyncio.gather(stream(chat, arguments.rate, until), echoes(chat, until))
        stop.set()
        await watching
        report("frame", chat.frames)
        report("key to screen", keys)
        report("loop held", held)
        print(f"{sent / arguments.seconds:.0f} tokens a second, {len(chat.frames)} frames")
        begun = time.perf_counter()
        await pilot.resize_terminal(arguments.size[0] - 20, arguments.size[1])
        print(f"resize {1000 * (time.perf_counter() - begun):.0f} ms")


def report(name: str, seconds: Sequence[float]) -> None:
    p50, p99, most = (1000 * percentile(seconds, share) for share in (0.5, 0.99, 1))
    print(f"{name:14} p50 {p50:6.1f} ms   p99 {p99:6.1f} ms   max {most:6.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=200, help="tokens a second")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--size", type=int, nargs=2, default=(160, 48))
    parser.add_argument("--idle", action="store_true", help="nothing computes beside")
    parser.add_argument("--model", type=Path, help="GGUF that computes beside; else numpy does")
    arguments = parser.parse_args()
    stop = threading.Event()
    threads = [
        threading.Thread(target=compute_beside, args=(arguments.model, stop))
        for _ in range(0 if arguments.idle else 1 if arguments.model else 2)
    ]
    for thread in threads:
        thread.start()
    try:
        asyncio.run(measure(arguments))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
