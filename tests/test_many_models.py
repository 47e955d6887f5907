"""The registry of many models, over a library whose loads end when a test says so."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgeserve.engine.accounting import Accounts, EngineLoad, EngineStats
from edgeserve.errors import ClosedError, ModelFileError, ModelNotFoundError
from edgeserve.server.errors import ModelBusyError, ModelNotServedError, ModelTooLargeError
from edgeserve.server.library import Described, ListedModel, ModelFacts
from edgeserve.server.many_models import ManyModels
from edgeserve.server.metrics import exposition
from edgeserve.server.residency import ResidencyLimits
from edgeserve.types import SamplingDefaults

ZERO = Accounts().stats({"hit": 0, "restored": 0}, {}, EngineLoad(0, 0, 0.0))
BROKEN = ModelFileError("general.architecture", "is broken")


class Engine:
    """What is loaded."""

    def __init__(self, library: Library, name: str) -> None:
        self.library = library
        self.name = name
        self.model = self.constraints = self
        self.stats = ZERO
        self.is_closed = False

    def prepare(self) -> None:
        """As a model's constraints are: on a thread, until the test says so."""
        assert self.library.may_prepare.wait(30)
        assert not self.is_closed
        self.library.prepared.append(self.name)

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True
        self.library.in_memory -= self.library.sizes[self.name]
        self.library.said.append(f"-{self.name}")


@dataclass
class Library:
    """Models by size. `said` is +name and -name for loads and unloads, in order."""

    sizes: dict[str, int]
    by_itself: bool = True
    said: list[str] = field(default_factory=list[str])
    loads: dict[str, asyncio.Future[None]] = field(default_factory=dict[str, Any])
    prepared: list[str] = field(default_factory=list[str])
    may_prepare: threading.Event = field(default_factory=threading.Event)
    in_memory: int = 0
    most_in_memory: int = 0

    def models(self) -> list[ListedModel]:
        return [ListedModel(name, 7) for name in self.sizes]

    def describe(self, name: str) -> Described:
        if name not in self.sizes:
            raise ModelNotFoundError(f"{name}: gone")
        return Described(ModelFacts({"size": 1}, 64, SamplingDefaults()), self.sizes[name])

    async def load(self, name: str) -> Any:
        self.said.append(f"+{name}")
        self.in_memory += self.sizes[name]
        self.most_in_memory = max(self.most_in_memory, self.in_memory)
        self.loads[name] = asyncio.get_running_loop().create_future()
        try:
            if not self.by_itself:
                await self.loads[name]
        except BaseException:
            self.in_memory -= self.sizes[name]
            raise
        return Engine(self, name)


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Call:
        self.calls.append((self.now + delay, callback))
        return Call(self, self.calls[-1])

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [call for call in self.calls if call[0] <= self.now]
        self.calls = [call for call in self.calls if call[0] > self.now]
        for _, callback in due:
            callback()


@dataclass
class Call:
    clock: Clock
    call: tuple[float, Callable[[], None]]

    def cancel(self) -> None:
        self.clock.calls = [each for each in self.clock.calls if each is not self.call]


@dataclass
class Place:
    """Where a test takes place."""

    models: ManyModels
    library: Library
    clock: Clock


Test = Callable[[Place], Awaitable[None]]


def run(
    test: Test,
    sizes: Mapping[str, int],
    *,
    by_itself: bool = True,
    aliases: Mapping[str, str | None] | None = None,
    **limits: Any,
) -> Library:
    """The test with models in 10 bytes; when it is over, nothing has memory."""

    async def bounded() -> Library:
        library, clock = Library(dict(sizes), by_itself), Clock()
        library.may_prepare.set()
        models = ManyModels(library, ResidencyLimits(10, **limits), aliases, clock=clock)
        await models.look()
        try:
            await asyncio.wait_for(test(Place(models, library, clock)), 30)
        finally:
            await models.close()
        assert library.in_memory == 0
        assert library.most_in_memory <= 10
        return library

    return asyncio.run(bounded())


async def use(models: ManyModels, name: str | None, until: asyncio.Event | None = None) -> str:
    async with models.use(name) as served:
        if until is not None:
            await until.wait()
        return served.name


async def settle(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def states(models: ManyModels) -> dict[str, str]:
    return {card.name: card.state for card in models.cards()}


def test_models_load_when_they_are_asked_for_and_are_listed_with_their_states() -> None:
    async def test(at: Place) -> None:
        assert states(at.models) == {"a/b": "available", "c": "available"}
        asking = asyncio.ensure_future(use(at.models, "c"))
        await settle(lambda: bool(at.library.loads))
        assert states(at.models) == {"c": "loading", "a/b": "available"}
        at.library.loads["c"].set_result(None)
        assert await asking == "c"
        assert states(at.models) == {"c": "loaded", "a/b": "available"}
        await at.models.refresh()
        card = at.models.card("a/b")
        assert card.about is not None
        assert (card.created, card.about.max_model_len) == (7, 64)

    assert run(test, {"a/b": 4, "c": 4}, by_itself=False).said == ["+c", "-c"]


def test_the_usual_model_is_the_one_used_last_else_the_first() -> None:
    async def test(at: Place) -> None:
        assert await use(at.models, None) == "a"
        assert await use(at.models, "b") == "b"
        for name in (None, "", "default", "gpt-4o", "mine"):
            assert await use(at.models, name) == "b"
        at.clock.advance(1)
        assert await use(at.models, "claude-x") == "a"
        assert await use(at.models, None) == "a"
        assert [card.name for card in at.models.cards()] == ["a", "b", "mine"]
        assert at.models.card("gpt-4").name == "a"

    aliases = {"mine": None, "gpt-*": None, "claude-*": "a"}
    run(test, {"a": 4, "b": 4}, aliases=aliases, keep_alive_s=600)


def test_a_name_nobody_has_is_said_with_those_there_are() -> None:
    async def test(at: Place) -> None:
        with pytest.raises(ModelNotServedError, match="served: a, b"):
            await use(at.models, "x")
        at.library.sizes["x"] = 3  # pulled meanwhile
        assert await use(at.models, "x") == "x"

    run(test, {"a": 4, "b": 4})


def test_without_models_the_usual_one_says_how_to_get_one() -> None:
    async def test(at: Place) -> None:
        assert list(at.models.cards()) == []
        with pytest.raises(ModelNotServedError, match="edgeserve pull"):
            await use(at.models, None)

    run(test, {})


def test_a_file_that_is_deleted_is_no_model_any_more() -> None:
    async def test(at: Place) -> None:
        del at.library.sizes["a"]
        with pytest.raises(ModelNotServedError, match="'a' does not exist here; served: b"):
            await use(at.models, "a")

    run(test, {"a": 4, "b": 4})


def test_a_failed_load_is_everyones_error_and_the_next_request_tries_again() -> None:
    async def test(at: Place) -> None:
        asking = [asyncio.ensure_future(use(at.models, "a")) for _ in range(3)]
        await settle(lambda: "a" in at.library.loads)
        while len(at.models._waiting) < 3:
            await asyncio.sleep(0.001)
        at.library.loads["a"].set_exception(BROKEN)
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert found == [BROKEN] * 3
        at.library.by_itself = True
        assert await use(at.models, "a") == "a"

    assert run(test, {"a": 4}, by_itself=False).said == ["+a", "+a", "-a"]


def test_who_goes_away_breaks_no_load() -> None:
    async def test(at: Place) -> None:
        gone, stays = (asyncio.ensure_future(use(at.models, "a")) for _ in range(2))
        await settle(lambda: "a" in at.library.loads)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        at.library.loads["a"].set_result(None)
        assert await stays == "a"
        alone = asyncio.ensure_future(use(at.models, "b"))
        await settle(lambda: "b" in at.library.loads)
        alone.cancel()
        await asyncio.gather(alone, return_exceptions=True)
        at.library.loads["b"].set_result(None)
        await settle(lambda: states(at.models)["b"] == "loaded")  # for who comes next

    run(test, {"a": 4, "b": 4}, by_itself=False)


def test_one_in_use_is_waited_for_and_at_last_given_up() -> None:
    async def test(at: Place) -> None:
        over = asyncio.Event()
        using = asyncio.ensure_future(use(at.models, "a", over))
        await settle(lambda: states(at.models)["a"] == "loaded")
        first = asyncio.ensure_future(use(at.models, "b"))
        await settle(lambda: len(at.models._waiting) == 1)
        at.clock.advance(100)
        with pytest.raises(ModelBusyError):
            await first
        second = asyncio.ensure_future(use(at.models, "b"))
        await settle(lambda: len(at.models._waiting) == 1)
        over.set()
        assert await using == "a"
        assert await second == "b"

    found = run(test, {"a": 6, "b": 6}, longest_wait_s=100)
    assert found.said == ["+a", "-a", "+b", "-b"]


def test_one_that_can_never_fit_is_refused() -> None:
    async def test(at: Place) -> None:
        with pytest.raises(ModelTooLargeError, match="--max-memory"):
            await use(at.models, "a")

    run(test, {"a": 11})


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, ["+a", "-a"]), (599.0, ["+a"])])
def test_idle_models_go_when_their_time_is_over(seconds: float, expected: list[str]) -> None:
    async def test(at: Place) -> None:
        assert await use(at.models, "a") == "a"
        at.clock.advance(seconds)
        for _ in range(20):
            await asyncio.sleep(0)
        assert at.library.said == expected
        at.clock.advance(600)
        await settle(lambda: at.library.said == ["+a", "-a"])
        assert states(at.models) == {"a": "available"}

    run(test, {"a": 4}, keep_alive_s=600 if seconds else 0)


def test_closing_ends_those_who_wait() -> None:
    async def test(at: Place) -> None:
        asking = asyncio.ensure_future(use(at.models, "a"))
        await settle(lambda: "a" in at.library.loads)
        await at.models.close()
        with pytest.raises(ClosedError):
            await asking
        with pytest.raises(ClosedError):
            await use(at.models, "a")

    run(test, {"a": 4}, by_itself=False)


def test_anything_may_happen_at_once() -> None:
    """Requests that come, go away and end, with loads that fail: each has one end, and whoever
    uses a model has it."""
    sizes = {"a": 2, "b": 3, "c": 5, "d": 7, "e": 10}

    def one(seed: int) -> Counter[str]:
        ends: Counter[str] = Counter()
        chance = random.Random(seed)

        async def client(at: Place) -> None:
            name = chance.choice(list(sizes))
            try:
                async with at.models.use(name) as served:
                    for _ in range(chance.randrange(6)):
                        await asyncio.sleep(0)
                        assert at.models._served[name] is served
                        assert (
                            f"-{name}" not in at.library.said[_last(at.library.said, f"+{name}") :]
                        )
                ends["used"] += 1
            except ModelFileError:
                ends["failed"] += 1
            except asyncio.CancelledError:
                ends["gone"] += 1

        async def test(at: Place) -> None:
            clients: list[asyncio.Task[None]] = []
            for _ in range(60):
                clients.append(asyncio.ensure_future(client(at)))
                await asyncio.sleep(0 if chance.random() < 0.5 else 0.0005)
                if chance.random() < 0.2:
                    chance.choice(clients).cancel()
                _end_some(at.library, chance)
                at.clock.advance(chance.choice((0, 1, 30)))
            while not all(task.done() for task in clients):
                await asyncio.sleep(0)
                _end_some(at.library, chance)
            await asyncio.gather(*clients)

        run(test, sizes, by_itself=False, longest_wait_s=1e9, keep_alive_s=chance.choice((0, 50)))
        return ends

    ends = sum((one(seed) for seed in range(12)), Counter[str]())
    assert min(ends[how] for how in ("used", "failed", "gone")) > 20, ends


def _end_some(library: Library, chance: random.Random) -> None:
    for load in library.loads.values():
        if not load.done() and chance.random() < 0.5:
            if chance.random() < 0.2:
                load.set_exception(BROKEN)
            else:
                load.set_result(None)


def _last(said: list[str], what: str) -> int:
    return len(said) - said[::-1].index(what)


# --- what the first answer with tools would wait for ----------------------------------------------


def test_constraints_are_prepared_two_seconds_after_a_model_has_come() -> None:
    async def test(place: Place) -> None:
        await use(place.models, "a")
        place.clock.advance(1.9)
        assert place.library.prepared == []
        place.clock.advance(0.2)
        while not place.library.prepared:
            await asyncio.sleep(0.001)

    assert run(test, {"a": 5}).prepared == ["a"]


def test_a_model_that_leaves_is_not_prepared() -> None:
    async def test(place: Place) -> None:
        await use(place.models, "a")
        await use(place.models, "b")  # there is room for one
        place.clock.advance(2.1)
        while not place.library.prepared:
            await asyncio.sleep(0.001)

    library = run(test, {"a": 6, "b": 6})
    assert (library.prepared, library.said) == (["b"], ["+a", "-a", "+b", "-b"])


def test_a_model_that_is_being_prepared_leaves_when_that_is_done() -> None:
    async def test(place: Place) -> None:
        await use(place.models, "a")
        place.library.may_prepare.clear()
        place.clock.advance(2.1)
        wanting = asyncio.ensure_future(use(place.models, "b"))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert place.library.said == ["+a"]
        place.library.may_prepare.set()
        assert await wanting == "b"

    assert run(test, {"a": 6, "b": 6}).prepared[0] == "a"


# --- what is counted ------------------------------------------------------------------------------


def counted(num_errors: int) -> EngineStats:
    accounts = Accounts()
    for _ in range(num_errors):
        accounts.note_failure("error")
    return accounts.stats({"hit": 0, "restored": 0}, {}, EngineLoad(num_errors, 0, 0.5))


def test_what_was_counted_of_a_model_is_kept_when_it_leaves_and_goes_on_when_it_is_back() -> None:
    async def test(place: Place) -> None:
        def errors() -> tuple[float | None, float | None]:
            """As told of "a": all so far, and those that run."""
            text = exposition(place.models).decode()
            found = {
                sample.name: sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.labels.get("model_name") == "a"
                and sample.labels.get("finished_reason", "error") == "error"
            }
            return found.get("vllm:request_success_total"), found.get("vllm:num_requests_running")

        async def work(num_errors: int) -> None:
            async with place.models.use("a") as served:
                served.llm.stats = counted(num_errors)  # type: ignore[misc]

        assert errors() == (None, None)
        await work(3)
        assert errors() == (3, 3)
        await use(place.models, "b")  # there is room for one
        assert errors() == (3, None)
        await work(4)
        assert errors() == (7, 4)
        await use(place.models, "b")
        assert errors() == (7, None)

    run(test, {"a": 6, "b": 6})
