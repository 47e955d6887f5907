"""A registry of all models on this machine: loaded when they are asked for, unloaded for others.

Drives Residency, which decides, by tasks: a load goes on when nobody waits for it any more, and an
unload when somebody wants the model again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase

from edgeserve.engine.accounting import EngineStats
from edgeserve.errors import ClosedError, EdgeServeError, ModelNotFoundError
from edgeserve.server.errors import ModelBusyError, ModelNotServedError
from edgeserve.server.library import ListedModel, ModelFacts, ModelLibrary
from edgeserve.server.models import ANY_NAMES, ModelCard, ModelState, Served, is_glob
from edgeserve.server.preparations import Clock, Handle, Preparations
from edgeserve.server.residency import Residency, ResidencyLimits

_log = logging.getLogger("edgeserve.server")


class ManyModels:
    """Made inside the running event loop. `aliases` lead to a model's name, or with None to the
    usual one; they may be globs. Close it."""

    def __init__(
        self,
        library: ModelLibrary,
        limits: ResidencyLimits,
        aliases: Mapping[str, str | None] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._library = library
        self._residency = Residency(limits)
        self._longest_wait_s = limits.longest_wait_s
        self._aliases = aliases or {}
        self._clock = clock or asyncio.get_running_loop()
        self._preparations = Preparations(self._clock)
        self._timer: Handle | None = None
        self._tickets = itertools.count()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._served: dict[str, Served] = {}
        self._listed: dict[str, ListedModel] = {}
        self._about: dict[str, ModelFacts] = {}
        self._earlier: dict[str, EngineStats] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._unloading: set[asyncio.Task[None]] = set()
        self._is_closed = False

    # --- a registry (models.py) ----------------------------------------------------------------

    is_ready = True
    failure: EdgeServeError | None = None

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncGenerator[Served]:
        found = await self._find(name)
        await self._enter(found)
        try:
            if self._is_closed:
                raise ClosedError
            yield self._served[found]
        finally:
            self._residency.release(found, self._clock.time())
            self._advance()

    async def refresh(self) -> None:
        await self.look()
        self._about = await asyncio.to_thread(self._described, tuple(self._listed))

    async def look(self) -> None:
        """Lists what there is now."""
        listed = await asyncio.to_thread(self._library.models)
        self._listed = {each.name: each for each in listed}

    def earlier(self) -> Mapping[str, EngineStats]:
        return self._earlier

    def cards(self) -> Sequence[ModelCard]:
        names = self._names()
        usual = self._usual()
        names.sort(key=lambda name: name != usual)
        targets = {name: name for name in names}
        for alias, target in self._aliases.items():
            found = target or usual
            if not is_glob(alias) and found in targets:
                targets[alias] = found
        return [self._card(name, target) for name, target in targets.items()]

    def card(self, name: str) -> ModelCard:
        cards = {card.name: card for card in self.cards()}
        found = name if name in cards else self._target(name)
        if found is None or found not in cards:
            raise ModelNotServedError(name, tuple(cards))
        return cards[found]

    # --- names ---------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        """What is listed, and what is in memory although its file is gone."""
        return list({**self._listed, **dict.fromkeys(self._residency.by_use())})

    def _usual(self) -> str | None:
        """Whoever does not care gets what is there already."""
        return next(iter((*self._residency.by_use(), *self._listed)), None)

    def _target(self, name: str | None) -> str | None:
        """The model that a client's word for it means; None for one that means nothing here."""
        if name is None or name in ANY_NAMES:
            return self._usual()
        if name in self._listed or self._residency.state(name) in ("loading", "loaded"):
            return name
        for alias, target in self._aliases.items():
            if name == alias or (is_glob(alias) and fnmatchcase(name, alias)):
                return target or self._usual()
        return None

    async def _find(self, name: str | None) -> str:
        found = self._target(name)
        if found is None or found not in self._names():
            await self.look()  # it may have come meanwhile
            found = self._target(name)
        if found is None or found not in self._names():
            raise ModelNotServedError(name or "default", tuple(card.name for card in self.cards()))
        return found

    def _card(self, name: str, target: str) -> ModelCard:
        served = self._served.get(target)
        listed = self._listed.get(target)
        created = served.created if served is not None else listed.created if listed else 0
        held = self._residency.state(target)
        state: ModelState = "available" if held is None or held == "unloading" else held
        return ModelCard(name, created, state, served, self._about.get(target))

    def _described(self, names: Sequence[str]) -> dict[str, ModelFacts]:
        """Without those that would not load: they are listed, and say why when they are asked."""
        found: dict[str, ModelFacts] = {}
        for name in names:
            try:
                found[name] = self._library.describe(name).about
            except EdgeServeError as error:
                _log.debug("%s: %s", name, error)
        return found

    # --- waiting -------------------------------------------------------------------------------

    async def _enter(self, name: str) -> None:
        """Until the model is loaded, and ours to use."""
        num_bytes = await self._num_bytes(name)
        if self._is_closed:
            raise ClosedError
        ticket = next(self._tickets)
        self._residency.ask(ticket, name, num_bytes, self._clock.time())
        granted = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._advance()
        try:
            await granted
        except asyncio.CancelledError:
            if self._waiting.pop(ticket, None) is not None:
                self._residency.withdraw(ticket)
            elif not granted.cancelled() and granted.exception() is None:  # it just came
                self._residency.release(name, self._clock.time())
            self._advance()
            raise

    async def _num_bytes(self, name: str) -> int:
        taken = self._residency.num_bytes_of(name)
        if taken is not None:
            return taken
        try:
            return (await asyncio.to_thread(self._library.describe, name)).num_bytes
        except ModelNotFoundError:
            await self.look()
            raise ModelNotServedError(name, tuple(card.name for card in self.cards())) from None

    def _advance(self) -> None:
        """Does what the residency decides now, and sees to it that it is asked again in time."""
        if self._is_closed:
            return
        now = self._clock.time()
        decided = self._residency.decide(now)
        for name in decided.unloads:
            _begin(self._unload(name, self._served.pop(name)), self._unloading)
        for name in decided.loads:
            _begin(self._load(name), self._loading)
        for ticket, name in decided.grants:
            granted = self._waiting.pop(ticket)
            if granted.cancelled():  # its task does not know yet
                self._residency.release(name, now)
            else:
                granted.set_result(None)
        for ticket in decided.refusals:
            self._fail(ticket, ModelBusyError(self._longest_wait_s))
        if self._timer is not None:
            self._timer.cancel()
        again = self._residency.next_change(now)
        self._timer = None if again is None else self._clock.call_later(again - now, self._advance)

    def _fail(self, ticket: int, error: Exception) -> None:
        granted = self._waiting.pop(ticket)
        if not granted.cancelled():
            granted.set_exception(error)

    # --- loading -------------------------------------------------------------------------------

    async def _load(self, name: str) -> None:
        began = self._clock.time()
        try:
            llm = await self._library.load(name)
        except Exception as error:  # the boundary: it is everyone's who waits for the model
            _log.warning("model=%s did not load: %s", name, error)
            for ticket in self._residency.failed(name):
                self._fail(ticket, error)
        else:
            now = self._clock.time()
            listed = self._listed.get(name)
            self._served[name] = Served(name, llm, listed.created if listed else 0)
            self._residency.loaded(name, now)
            self._preparations.plan(
                name,
                prepare=lambda: llm.model.constraints.prepare(),
                is_busy=lambda: self._residency.is_used,
            )
            _log.info("model=%s loaded ms=%.0f", name, 1e3 * (now - began))
        self._advance()

    async def _unload(self, name: str, served: Served) -> None:
        await self._close(name, served)
        self._residency.unloaded(name)
        _log.info("model=%s unloaded", name)
        self._advance()

    async def close(self) -> None:
        """Ends all that wait, and gives memory back."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for ticket in tuple(self._waiting):
            self._fail(ticket, ClosedError())
        for task in self._loading:
            task.cancel()
        await asyncio.gather(*self._loading, *self._unloading, return_exceptions=True)
        for name, served in self._served.items():
            await self._close(name, served)
        self._served.clear()

    async def _close(self, name: str, served: Served) -> None:
        """Its memory is free when this returns."""
        before = self._earlier.get(name)
        # Now, so that what was counted can be asked for, and when the last request has ended.
        self._earlier[name] = _total(before, served.llm.stats)
        await self._preparations.settle(name)
        await served.llm.close()
        self._earlier[name] = _total(before, served.llm.stats)


def _total(before: EngineStats | None, stats: EngineStats) -> EngineStats:
    return stats if before is None else before + stats


def _begin(work: Coroutine[None, None, None], kept: set[asyncio.Task[None]]) -> None:
    """In a task, which a loop would hold only weakly."""
    task = asyncio.ensure_future(work)
    kept.add(task)
    task.add_done_callback(kept.discard)
