"""A ChatClient that plays a script, for the screens' tests. Nothing sleeps: where a test holds it,
an event goes out when the test lets it.

    client = FakeClient()
    client.will_answer(words("Hello there"))     # else it answers with "You said: …"
    client.hold()                                 # answers stand still …
    await client.let(2)                           # … two events go out and are taken …
    client.release()                              # … and all others
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from edgeserve.errors import (
    ClosedError,
    EdgeServeError,
    ModelNotFoundError,
    NoModelInUseError,
)
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

Script = Sequence[AnswerEvent | Exception]

HERE = OfferedModel("tiny", "Tiny 1B", True, 800_000_000, True, 30.0, owner="Ollama", license="MIT")
TO_FETCH = OfferedModel("big", "Big 8B", False, 5_000_000_000, False, 4.0, license="Apache 2.0")
IN_USE = ModelInUse("tiny", 8192, thinks=True, fingerprint="f1")


def words(
    text: str, *, reasoning: str = "", end: AnswerEnd | None = None
) -> tuple[AnswerEvent, ...]:
    """An answer in pieces of a word, each with its token; a prompt of ten is read first."""
    pieces = [
        AnswerPiece(word, is_reasoning, (TokenFact(word, 0.5, ((word, 0.5), ("x", 0.1))),))
        for part, is_reasoning in ((reasoning, True), (text, False))
        for word in _split(part)
    ]
    last = end or AnswerEnd(
        "stop",
        prompt_tokens=10,
        cached_tokens=4,
        answer_tokens=len(pieces),
        reasoning_tokens=len(_split(reasoning)),
        first_token_ms=120.0,
        tokens_per_s=30.0,
        seed=7,
        token_ids=tuple(range(len(pieces))),
    )
    return (PromptReading(10, 4, 4), PromptReading(10, 4, 10, 0.0), *pieces, last)


def _split(text: str) -> list[str]:
    parts = text.split(" ")
    return [*(f"{part} " for part in parts[:-1]), *parts[-1:]] if text else []


class _Gate:
    """Open, or held: then each `let` lets one through, and waits until it was dealt with."""

    def __init__(self) -> None:
        self._held = False
        self._allowed = 0
        self._done = 0
        self._changed = asyncio.Condition()

    async def wait(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._held or self._allowed > 0)
            self._allowed = max(0, self._allowed - 1)

    async def done(self) -> None:
        """What went through was dealt with."""
        async with self._changed:
            self._done += 1
            self._changed.notify_all()

    def hold(self) -> None:
        self._held = True

    async def let(self, count: int) -> None:
        async with self._changed:
            wanted = self._done + count
            self._allowed += count
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._done >= wanted)

    async def release(self) -> None:
        async with self._changed:
            self._held = False
            self._changed.notify_all()


class FakeAnswer:
    """An Answer. `stopped` says that somebody called stop."""

    def __init__(self, script: Script, gate: _Gate) -> None:
        self._script = script
        self._gate = gate
        self._stop = asyncio.Event()
        self._taken = 0

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    async def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        for event in self._script:
            if not await self._may_go():
                yield AnswerEnd("stopped", prompt_tokens=10, answer_tokens=self._taken, seed=7)
                return
            if isinstance(event, Exception):
                await self._gate.done()
                raise event
            self._taken += isinstance(event, AnswerPiece)
            yield event
            await self._gate.done()  # whoever iterates has taken it and asks for more

    async def stop(self) -> None:
        self._stop.set()

    async def _may_go(self) -> bool:
        """False where it was stopped first."""
        if self.stopped:
            return False
        waits = [asyncio.ensure_future(self._gate.wait()), asyncio.ensure_future(self._stop.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return not self.stopped


class FakeClient:
    """A ChatClient. What it was asked stands in `asked`, and its answers in `answers`.

    `loads` says for a name what `use` reports before it returns; an error among these is raised.
    `prompt_size` is what every question costs; None counts a token for each four characters.
    """

    def __init__(
        self,
        *,
        place: str = "this machine",
        offered: Sequence[OfferedModel] = (HERE, TO_FETCH),
        model: ModelInUse | None = None,
        loads: Mapping[str, Sequence[LoadProgress | EdgeServeError]] | None = None,
    ) -> None:
        self.place = place
        self.offered = list(offered)
        self.model = model
        self.loads = dict(loads or {})
        self.asked: list[Question] = []
        self.answers: list[FakeAnswer] = []
        self.used: list[str] = []
        self.accepted: list[str] = []
        self.base_models: set[str] = set()
        self.closed = False
        self.prompt_size: PromptSize | None = None
        self.engine_figures: EngineFigures | None = EngineFigures(0.25, 1, 0, 100, 40, 10, 2 << 30)
        self._scripts: deque[Script] = deque()
        self._answering = _Gate()
        self._loading = _Gate()

    def will_answer(self, *scripts: Script) -> None:
        """What the next questions are answered with, in order."""
        self._scripts.extend(scripts)

    def hold(self) -> None:
        self._answering.hold()

    async def let(self, count: int = 1) -> None:
        """So many events of answers go out; returns when they were taken."""
        await self._answering.let(count)

    async def release(self) -> None:
        await self._answering.release()

    def hold_loading(self) -> None:
        self._loading.hold()

    async def let_load(self, count: int = 1) -> None:
        """So many reports of a model being loaded; the last thing to let is its end."""
        await self._loading.let(count)

    async def release_loading(self) -> None:
        await self._loading.release()

    async def models(self) -> Sequence[OfferedModel]:
        return tuple(self.offered)

    def accept_license(self, name: str) -> None:
        self.accepted.append(name)

    async def use(self, name: str, progress: Callable[[LoadProgress], None]) -> ModelInUse:
        self.used.append(name)
        found = next((each for each in self.offered if each.name == name), None)
        if found is None:
            raise ModelNotFoundError(f"{name}: there is no such model here")
        for report in self.loads.get(name, (LoadProgress("load", 1, 1),)):
            await self._loading.wait()
            await self._loading.done()
            if isinstance(report, EdgeServeError):
                raise report
            progress(report)
        await self._loading.wait()
        await self._loading.done()
        self.model = replace(IN_USE, name=name, has_chat_template=name not in self.base_models)
        self.offered = [
            replace(each, here=True) if each.name == name else each for each in self.offered
        ]
        return self.model

    def ask(self, question: Question) -> FakeAnswer:
        self.asked.append(question)
        script: Script = self._scripts.popleft() if self._scripts else _echo(question)
        if self.closed or self.model is None:
            script = (ClosedError(),) if self.closed else (NoModelInUseError(),)
        self.answers.append(FakeAnswer(script, self._answering))
        return self.answers[-1]

    async def size(self, question: Question) -> PromptSize | None:
        if self.prompt_size is not None or self.model is None:
            return self.prompt_size
        return PromptSize(sum(len(_text(each)) for each in question.messages) // 4, 0, 0.5)

    async def figures(self) -> EngineFigures | None:
        return self.engine_figures

    async def aclose(self) -> None:
        self.closed = True


def _echo(question: Question) -> Script:
    return words(f"You said: {_text(question.messages[-1])}")


def _text(message: Mapping[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(map(str, content)) if isinstance(content, Iterable) else ""
