"""Which models are in memory: who waits for whom, and that nobody waits for ever."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from edgeserve.errors import QueueFullError
from edgeserve.server.errors import ModelTooLargeError
from edgeserve.server.residency import Decisions, Residency, ResidencyLimits

NOTHING = Decisions((), (), (), ())


def residency(max_bytes: int = 10, **limits: float) -> Residency:
    return Residency(ResidencyLimits(max_bytes, **limits))  # type: ignore[arg-type]


def load(models: Residency, name: str, num_bytes: int, now: float, ticket: int = 0) -> None:
    """A model that is loaded, and that the ticket uses."""
    models.ask(ticket, name, num_bytes, now)
    assert models.decide(now).loads == (name,)
    models.loaded(name, now)
    assert models.decide(now).grants == ((ticket, name),)


def test_two_who_ask_at_once_load_it_once() -> None:
    models = residency()
    models.ask(1, "a", 5, 0)
    assert models.decide(0) == Decisions((), (), ("a",), ())
    models.ask(2, "a", 5, 0)
    assert models.decide(0) == NOTHING
    models.loaded("a", 1)
    assert models.decide(1).grants == ((1, "a"), (2, "a"))


def test_who_goes_away_while_it_loads_leaves_it_to_the_others() -> None:
    models = residency()
    models.ask(1, "a", 5, 0)
    models.ask(2, "a", 5, 0)
    models.decide(0)
    models.withdraw(1)
    models.loaded("a", 1)
    assert models.decide(1).grants == ((2, "a"),)


def test_a_failure_ends_all_who_wait_and_the_next_tries_again() -> None:
    models = residency()
    for ticket in (1, 2):
        models.ask(ticket, "a", 5, 0)
    models.decide(0)
    assert models.failed("a") == [1, 2]
    assert models.num_bytes == 0
    models.ask(3, "a", 5, 1)
    assert models.decide(1).loads == ("a",)


def test_the_idle_one_that_was_used_longest_ago_goes() -> None:
    models = residency()
    for at, name in enumerate("abc"):
        load(models, name, 3, at, at)
    for at, name in enumerate("cab"):
        models.release(name, 10 + at)
    models.ask(9, "d", 3, 20)
    assert models.decide(20) == Decisions((), (), (), ("a",))  # used, not freed, longest ago
    models.unloaded("a")
    assert models.decide(20).loads == ("d",)


def test_no_more_are_unloaded_than_must() -> None:
    models = residency()
    for at, name in enumerate("abc"):
        load(models, name, 3, at, at)
        models.release(name, at)
    models.ask(9, "d", 7, 20)
    assert models.decide(20).unloads == ("a", "b")
    models.unloaded("b")
    assert models.decide(20) == NOTHING
    models.unloaded("a")
    assert models.decide(20).loads == ("d",)
    assert models.num_bytes == 10


def test_one_in_use_stays_and_others_wait_for_it() -> None:
    models = residency(patience_s=20)
    load(models, "a", 8, 0)
    models.ask(1, "b", 5, 1)
    assert models.decide(1) == NOTHING
    models.ask(2, "a", 8, 2)  # for some time those who come later may still use it
    assert models.decide(2).grants == ((2, "a"),)
    assert models.next_change(2) == 21
    models.ask(3, "a", 8, 21)
    models.ask(4, "c", 2, 21)  # and small ones may not slip in either
    assert models.decide(21) == NOTHING
    models.release("a", 22)
    models.release("a", 22)
    assert models.decide(22) == Decisions((), (), ("c",), ("a",))
    models.unloaded("a")
    assert models.decide(23).loads == ("b",)
    for name in "bc":
        models.loaded(name, 24)
    assert models.decide(24).grants == ((1, "b"), (4, "c"))
    models.release("b", 25)
    models.release("c", 25)
    assert models.decide(25).unloads == ("b",)


def test_room_that_comes_is_promised_to_who_was_first() -> None:
    models = residency()
    load(models, "a", 6, 0)
    models.release("a", 0)
    models.ask(1, "b", 9, 1)
    assert models.decide(1).unloads == ("a",)
    models.ask(2, "c", 2, 2)
    assert models.decide(2) == NOTHING  # 4 bytes are free, of which b will need 3
    models.ask(3, "d", 1, 2)
    assert models.decide(2).loads == ("d",)
    models.unloaded("a")
    assert models.decide(3).loads == ("b",)


def test_one_that_loads_is_not_in_the_way_for_ever() -> None:
    models = residency(patience_s=5)
    models.ask(1, "a", 9, 0)
    models.ask(2, "b", 9, 0)
    assert models.decide(0).loads == ("a",)
    assert models.decide(50) == NOTHING
    models.loaded("a", 60)
    assert models.decide(60) == Decisions(((1, "a"),), (), (), ())  # it came first
    models.ask(3, "a", 9, 61)
    assert models.decide(61) == NOTHING
    models.release("a", 62)
    assert models.decide(62).unloads == ("a",)


@pytest.mark.parametrize(("keep_alive", "goes"), [(600.0, 605.0), (0.0, 5.0), (math.inf, None)])
def test_idle_ones_are_kept_alive(keep_alive: float, goes: float | None) -> None:
    models = residency(keep_alive_s=keep_alive)
    load(models, "a", 5, 0)
    assert models.next_change(0) is None  # in use
    models.release("a", 5)
    assert models.decide(5).unloads == (("a",) if goes == 5 else ())
    if goes != 5:
        assert models.next_change(5) == goes
        assert models.decide(604.9) == NOTHING
        assert models.decide(605).unloads == (("a",) if goes else ())


def test_what_can_never_be_is_refused_at_once() -> None:
    models = residency(most_waiting=1)
    with pytest.raises(ModelTooLargeError, match="11 bytes"):
        models.ask(1, "a", 11, 0)
    models.ask(1, "a", 10, 0)
    with pytest.raises(QueueFullError):
        models.ask(2, "b", 1, 0)


def test_who_waited_too_long_is_refused() -> None:
    models = residency(longest_wait_s=100)
    load(models, "a", 8, 0)
    models.ask(1, "b", 5, 3)
    assert models.decide(102.9).refusals == ()
    assert models.next_change(102.9) == 103
    assert models.decide(103) == Decisions((), (1,), (), ())


# --- the laws, over anything that may happen -----------------------------------------------------

SIZES = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 6, "f": 9, "g": 10}
OPERATIONS = ("ask",) * 4 + ("end",) * 3 + ("load",) * 3 + ("unload",) * 3 + ("leave", "wait")


class World:
    """All that drives a residency, and what must hold of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        limits = ResidencyLimits(10, self.random.choice((0, 30, math.inf)), 5, 60, 12)
        self.models = Residency(limits)
        self.now = 0.0
        self.waiting: dict[int, tuple[str, float]] = {}
        self.using: list[str] = []
        self.loading: list[str] = []
        self.loaded: set[str] = set()
        self.unloading: list[str] = []
        self.ends: Counter[str] = Counter()

    def decide(self) -> None:
        found = self.models.decide(self.now)
        for ticket in found.refusals:
            assert self.now - self.waiting.pop(ticket)[1] >= 60
            self.ends["refused"] += 1
        for ticket, name in found.grants:
            assert self.waiting.pop(ticket)[0] == name
            assert name in self.loaded
            self.using.append(name)
            self.ends["granted"] += 1
        for name in found.unloads:
            assert name not in self.using
            self.loaded.remove(name)
            self.unloading.append(name)
        for name in found.loads:
            assert name not in (*self.loading, *self.loaded, *self.unloading)
            self.loading.append(name)
        held = (*self.loading, *self.loaded, *self.unloading)
        assert sum(SIZES[name] for name in held) == self.models.num_bytes <= 10

    def step(self, operation: str) -> None:
        pick = self.random.choice
        match operation:
            case "ask" if len(self.waiting) < 12:
                ticket, name = self.random.getrandbits(60), pick(list(SIZES))
                self.models.ask(ticket, name, SIZES[name], self.now)
                self.waiting[ticket] = (name, self.now)
            case "leave" if self.waiting:
                ticket = pick(list(self.waiting))
                del self.waiting[ticket]
                self.models.withdraw(ticket)
            case "end" if self.using:
                self.models.release(
                    self.using.pop(self.random.randrange(len(self.using))), self.now
                )
            case "load" if self.loading:
                self.finish_load(fails=self.random.random() < 0.2)
            case "unload" if self.unloading:
                self.models.unloaded(self.unloading.pop())
            case "wait":
                self.now += self.random.expovariate(1 / 10)
            case _:
                return
        self.decide()

    def finish_load(self, *, fails: bool) -> None:
        name = self.loading.pop(self.random.randrange(len(self.loading)))
        if not fails:
            self.models.loaded(name, self.now)
            self.loaded.add(name)
            return
        for ticket in self.models.failed(name):
            assert self.waiting.pop(ticket)[0] == name
            self.ends["failed"] += 1


def test_never_over_memory_never_from_under_one_and_everybody_ends() -> None:
    ends: Counter[str] = Counter()
    for seed in range(300):
        world = World(seed)
        for _ in range(60):
            world.step(world.random.choice(OPERATIONS))
        for _ in range(200):  # nobody asks any more, and what has begun ends
            if not world.waiting:
                break
            for operation in ("load", "unload", "end"):
                world.step(operation)
        assert not world.waiting, seed
        ends += world.ends
    assert min(ends[how] for how in ("granted", "failed", "refused")) > 30, ends


def test_who_uses_a_model_without_end_does_not_keep_others_out() -> None:
    """Requests for a follow on each other, two at a time; one for b gets in."""
    models = residency(patience_s=20)
    load(models, "a", 8, 0)
    models.ask(1, "b", 8, 1)
    for now in range(2, 40):
        models.ask(now, "a", 8, now)
        found = models.decide(now)
        if not found.grants:
            break
        models.release("a", now)
    else:
        pytest.fail("a was given out for ever")
    models.release("a", 30)
    assert models.decide(30).unloads == ("a",)
