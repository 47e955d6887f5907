"""A ChatClient whose engine is in this process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import TypeVar, cast

from edgeserve.async_llm import AsyncLLM
from edgeserve.errors import ClosedError, EdgeServeError, NoModelInUseError
from edgeserve.frozen import frozen
from edgeserve.tui.client import (
    HERE,
    EngineFigures,
    LoadProgress,
    ModelInUse,
    OfferedModel,
    PromptSize,
    Question,
)
from edgeserve.tui.local_answer import LocalAnswer, request_of
from edgeserve.tui.model_shelf import ModelShelf, ShelvedModel

T = TypeVar("T")

_BLOCK_TOKENS = 16


@frozen
class _Loaded:
    model: ShelvedModel
    llm: AsyncLLM


class LocalClient:
    """Answers by a model of `shelf`. It belongs to one event loop. `clock` gives seconds."""

    place = HERE

    def __init__(self, shelf: ModelShelf, clock: Callable[[], float] = time.monotonic) -> None:
        self._shelf = shelf
        self._clock = clock
        self._changing = asyncio.Lock()
        self._model: ModelInUse | None = None
        self._shelved: ShelvedModel | None = None
        self._loaded: _Loaded | None = None
        self._loading: asyncio.Task[AsyncLLM] | None = None
        self._answers: set[LocalAnswer] = set()
        self._closed = False

    @property
    def model(self) -> ModelInUse | None:
        return self._model

    async def models(self) -> Sequence[OfferedModel]:
        return await asyncio.to_thread(self._shelf.models)

    def accept_license(self, name: str) -> None:
        self._shelf.accept_license(name)

    async def use(self, name: str, progress: Callable[[LoadProgress], None]) -> ModelInUse:
        if self._closed:
            raise ClosedError
        shelved = await self._fetched(name, progress)
        async with self._changing:
            progress(LoadProgress("load", 0, shelved.size_bytes))
            if await asyncio.to_thread(shelved.fits_beside):
                loaded = _Loaded(shelved, await self._load(shelved))
                await self._let_go()
            else:
                # A model that does not fit beside the one before is loaded in its place. Should
                # that fail, the one before comes back when it is next asked.
                await self._let_go()
                loaded = _Loaded(shelved, await self._load(shelved))
            self._loaded, self._shelved = loaded, shelved
            self._model = _in_use(loaded)
            progress(LoadProgress("load", shelved.size_bytes, shelved.size_bytes))
            return self._model

    def ask(self, question: Question) -> LocalAnswer:
        answer = LocalAnswer(self.engine, question, self._clock, self._answers.discard)
        self._answers.add(answer)
        return answer

    async def size(self, question: Question) -> PromptSize | None:
        try:
            llm = await self.engine()
            request = await asyncio.to_thread(request_of, llm, question)
            cost = await llm.prompt_cost(request.prompt_token_ids)
        except EdgeServeError:
            return None  # such as a conversation that the template refuses
        return PromptSize(cost.num_tokens, cost.num_cached + cost.num_stored, cost.seconds)

    async def figures(self) -> EngineFigures | None:
        if self._loaded is None:
            return None
        llm = self._loaded.llm
        stats = llm.stats
        num_groups = max(1, len(llm.model.plan.cache_groups))
        return EngineFigures(
            occupancy=stats.load.occupancy,
            running=stats.load.num_running,
            waiting=stats.load.num_waiting,
            prompt_tokens=stats.num_prompt_tokens,
            hit_tokens=stats.num_cached_tokens,
            disk_hit_tokens=stats.num_blocks["restored"] * _BLOCK_TOKENS // num_groups,
            memory_bytes=self._shelf.memory_bytes(),
        )

    async def aclose(self) -> None:
        self._closed = True
        if self._loading is not None:
            self._loading.cancel()
        async with self._changing:
            await self._let_go()

    async def engine(self) -> AsyncLLM:
        """The engine that answers; loaded again where a failed `use` had to let go of it."""
        if self._closed:
            raise ClosedError
        if self._loaded is None:
            async with self._changing:
                if self._loaded is None:
                    if self._shelved is None:
                        raise NoModelInUseError
                    self._loaded = _Loaded(self._shelved, await self._load(self._shelved))
        return self._loaded.llm

    async def _fetched(self, name: str, progress: Callable[[LoadProgress], None]) -> ShelvedModel:
        reports = _Reports(progress)
        try:
            return await _in_a_thread(
                lambda: self._shelf.fetch(name, reports.heard), "edgeserve-fetch"
            )
        finally:
            reports.cancelled.set()  # one that still runs ends at its next report

    async def _load(self, shelved: ShelvedModel) -> AsyncLLM:
        if self._closed:
            raise ClosedError
        self._loading = asyncio.ensure_future(shelved.load())
        try:
            return await self._loading
        except asyncio.CancelledError:
            if self._closed:
                raise ClosedError from None
            raise
        finally:
            self._loading = None

    async def _let_go(self) -> None:
        """Of the engine; answers under way end as if stopped."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            for answer in list(self._answers):
                await answer.stop()
            await loaded.llm.close()


class _FetchCancelled(BaseException):
    """Ends a transfer whose result nobody waits for, past whatever catches errors."""


def _in_a_thread(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """What the call returns or raises. The program's end does not wait for it: a connection on
    which nothing comes keeps its thread for half a minute."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if found.done():  # nobody waits any more
            return
        if error is None:
            found.set_result(cast("T", result))
        else:
            found.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has gone
            loop.call_soon_threadsafe(settle, result, failure)

    Thread(target=work, name=name, daemon=True).start()
    return found


class _Reports:
    """From the thread that fetches to the loop: of those that came meanwhile, the last."""

    def __init__(self, progress: Callable[[LoadProgress], None]) -> None:
        self.cancelled = Event()
        self._loop = asyncio.get_running_loop()
        self._progress = progress
        self._last: LoadProgress | None = None
        self._is_passed_on = True

    def heard(self, how_far: LoadProgress) -> None:
        """On the thread."""
        if self.cancelled.is_set():
            raise _FetchCancelled
        self._last = how_far
        if self._is_passed_on:
            self._is_passed_on = False
            with contextlib.suppress(RuntimeError):  # the loop has gone
                self._loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        self._is_passed_on = True  # before the last one is read: another that comes now is told
        if self._last is not None and not self.cancelled.is_set():
            self._progress(self._last)


def _in_use(loaded: _Loaded) -> ModelInUse:
    llm, shelved = loaded.llm, loaded.model
    notes = [llm.context_note or "", shelved.note]
    if not llm.has_chat_template:
        notes.append("no chat template: it continues text and does not chat")
    return ModelInUse(
        name=shelved.name,
        context_tokens=llm.max_model_len,
        has_chat_template=llm.has_chat_template,
        thinks=llm.requests.thinks,
        fingerprint=llm.model.fingerprint,
        note="; ".join(filter(None, notes)),
        sampling=llm.default_sampling,
    )
