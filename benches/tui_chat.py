"""The chat that tui.py measures: the real screen, over a client that answers at a set pace.

    python benches/tui_chat.py FOLDER --lines 10000 --rate 200 --seconds 20 [--beside MODEL.gguf]

FOLDER gets the file of chats, and `report.json` at the end: how long each frame held the event
loop, and the tokens a second of the model that computed beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from textual.screen import Screen

from edgeserve import LLM, SamplingParams
from edgeserve.chats.prompt_library import PromptLibrary
from edgeserve.chats.records import TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.tui.app import EdgeServeApp
from edgeserve.tui.client import (
    AnswerEnd,
    AnswerEvent,
    AnswerPiece,
    EngineFigures,
    LoadProgress,
    ModelInUse,
    OfferedModel,
    PromptReading,
    PromptSize,
    Question,
    TokenFact,
)
from edgeserve.tui.desk import Desk
from edgeserve.tui.widgets.transcript import Transcript

PARAGRAPH = (
    "The *scheduler* takes every row it can: `decode` rows first, then **prefill** chunks, and "
    "what is [cached](https://example.org/cache) needs none of it, so that nobody waits.\n\n"
)
LIST = "- one thing to do, at some length\n- another one\n  1. with a step\n  2. and one more\n\n"
CODE = "```python\n" + "def f(x: int) -> int:\n    return x * 2  # twice\n\n" * 4 + "```\n\n"
TABLE = "| name | what it is | count |\n|---|---|--:|\n" + "| one | a cell | 12 |\n" * 4 + "\n"
ANSWER = PARAGRAPH + LIST + CODE + PARAGRAPH + TABLE
_LINES_OF_A_PAIR = 31
_TOKEN = 4  # characters


class PacedAnswer:
    """Tokens of four characters, each as it falls due, for so many seconds."""

    def __init__(self, rate: float, seconds: float) -> None:
        self._rate = rate
        self._until = seconds
        self._is_stopped = False
        self.sent = 0

    async def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        yield PromptReading(4000, 4000, 4000, 0.0)
        text = ANSWER * (1 + int(self._rate * self._until * _TOKEN) // len(ANSWER))
        begun = time.perf_counter()
        while (passed := time.perf_counter() - begun) < self._until and not self._is_stopped:
            while self.sent < int(passed * self._rate):
                piece = text[_TOKEN * self.sent : _TOKEN * (self.sent + 1)]
                self.sent += 1
                yield AnswerPiece(piece, tokens=(TokenFact(piece),))
            await asyncio.sleep(0.004)
        yield AnswerEnd(
            "stop", prompt_tokens=4000, answer_tokens=self.sent, tokens_per_s=self._rate
        )

    async def stop(self) -> None:
        self._is_stopped = True


class PacedClient:
    """A ChatClient. `beside` computes from the first question on."""

    place = "this machine"

    def __init__(self, rate: float, seconds: float, beside: Beside) -> None:
        self.model: ModelInUse | None = None
        self._rate = rate
        self._seconds = seconds
        self._beside = beside

    async def models(self) -> Sequence[OfferedModel]:
        return [OfferedModel("paced", "Paced", True)]

    def accept_license(self, name: str) -> None:
        del name

    async def use(self, name: str, progress: Callable[[LoadProgress], None]) -> ModelInUse:
        progress(LoadProgress("load", 1, 1))
        await asyncio.to_thread(self._beside.load)
        self.model = ModelInUse(name, 1 << 20, fingerprint="paced")
        return self.model

    def ask(self, question: Question) -> PacedAnswer:
        del question
        self._beside.start()
        return PacedAnswer(self._rate, self._seconds)

    async def size(self, question: Question) -> PromptSize | None:
        return PromptSize(sum(len(str(each)) for each in question.messages) // _TOKEN, 4000, 0.1)

    async def figures(self) -> EngineFigures | None:
        return EngineFigures(0.25, 1, 0, 4000, 4000, 0, 2 << 30)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._beside.stop)


class Beside:
    """A model that computes two answers over and over, on all cores."""

    def __init__(self, path: Path | None) -> None:
        self.tokens_per_s: float | None = None
        self._path = path
        self._llm: LLM | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def load(self) -> None:
        if self._path is not None and self._llm is None:
            self._llm = LLM(str(self._path))

    def start(self) -> None:
        if self._llm is not None and self._thread is None:
            self._thread = threading.Thread(target=self._compute, args=(self._llm,))
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._llm is not None:
            self._llm.close()

    def _compute(self, llm: LLM) -> None:
        begun, count = time.perf_counter(), 0
        params = SamplingParams(max_tokens=32, ignore_eos=True)
        while not self._stop.is_set():
            for output in llm.generate(["A story:", "A poem:"], params, progress=False):
                count += len(output.outputs[0].token_ids)
            self.tokens_per_s = count / (time.perf_counter() - begun)


@contextmanager
def frames_timed() -> Iterator[list[float]]:
    """What each frame that shows new text costs, from the text to the bytes for the terminal."""
    frames: list[float] = []
    spent = 0.0
    take_in, paint = Transcript._frame, Screen._on_timer_update

    def timed_take_in(self: Transcript) -> None:
        nonlocal spent
        begun = time.perf_counter()
        take_in(self)
        spent += time.perf_counter() - begun

    def timed_paint(self: Screen[object]) -> None:
        nonlocal spent
        begun = time.perf_counter()
        paint(self)
        if spent:
            frames.append(spent + time.perf_counter() - begun)
            spent = 0.0

    Transcript._frame, Screen._on_timer_update = timed_take_in, timed_paint
    try:
        yield frames
    finally:
        Transcript._frame, Screen._on_timer_update = take_in, paint


def fill(store: ChatStore, num_lines: int) -> None:
    """A chat of about so many lines at 80 columns."""
    chat = store.new_chat(model="paced")
    parent = None
    for i in range(num_lines // _LINES_OF_A_PAIR + 1):
        parent = store.add_turn(chat.id, parent, "user", f"Question {i}, please").id
        parent = store.add_turn(chat.id, parent, "assistant", ANSWER, state=TurnState.COMPLETE).id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--beside", type=Path)
    arguments = parser.parse_args()
    chats = arguments.folder / "chats.db"
    with ChatStore(chats) as store:
        fill(store, arguments.lines)
    beside = Beside(arguments.beside)
    desk = Desk(
        client=PacedClient(arguments.rate, arguments.seconds, beside),
        open_chats=lambda: ChatStore(chats),
        prompts=PromptLibrary(arguments.folder / "prompts"),
        folder=arguments.folder,
        data_dir=arguments.folder,
        model="paced",
    )
    with frames_timed() as frames:
        EdgeServeApp(desk).run()
    beside.stop()
    report = {"frames": frames, "beside_tokens_per_s": beside.tokens_per_s}
    (arguments.folder / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
