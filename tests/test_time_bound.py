"""TimeBound: what fits a step, and what streams feel on machines of several kinds."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from edgeserve.engine.step_load import KeysSeen
from edgeserve.engine.step_times import StepTimes
from edgeserve.engine.time_bound import TimeBound

FULL = KeysSeen.of([(4, None)])
STREAMS, OWN, PROMPT = 4, 56, 4096
KEPT = 1.15


def bound(**limits: float) -> TimeBound:
    """A row takes 10 ms, and a step 40 ms more."""
    return TimeBound(StepTimes(0.01), FULL, max_step_s=0.25, **limits)


def test_prompt_alone_has_the_whole_step() -> None:
    alone = bound()
    alone.begin([])
    assert alone.take(0, 500) == 21
    assert alone.take(0, 500) == 0
    assert alone.load.num_rows == 21


def test_without_a_prior_nothing_is_bounded_before_the_first_step() -> None:
    unknown = TimeBound(StepTimes(0.0), FULL, max_step_s=0.25)
    unknown.begin([])
    assert unknown.take(0, 777) == 777
    unknown.observe(7.77)
    unknown.begin([])
    assert unknown.take(0, 777) < 777


def test_beside_streams_a_prompt_may_make_them_wait_four_times_as_long() -> None:
    beside = bound()
    beside.begin([(30, 1)])  # 50 ms alone, so 200 ms
    assert beside.take(0, 500) == 15
    beside = bound(target_itl_s=0.1)
    beside.begin([(30, 1)])
    assert beside.take(0, 3) == 3
    assert beside.take(0, 500) == 2
    assert beside.load.keys == (31, 3 + 2, (1 + 2 + 3) + (1 + 2))


def test_where_decodes_alone_take_the_step_prompts_get_as_long_again() -> None:
    slow = bound()
    slow.begin([(0, 1)] * 46)  # half a second
    assert slow.take(0, 500) == 50


def test_a_target_out_of_reach_holds_nobody_up() -> None:
    slow = bound(target_itl_s=0.001)
    slow.begin([(0, 1)] * 5)  # 90 ms: a row must go in, and a sixth of 100 is one more
    assert slow.take(0, 500, least=1) == 2
    assert slow.take(0, 500) == 0


def test_only_the_first_prompt_is_let_in_where_the_target_is_out_of_reach() -> None:
    slow = bound(target_itl_s=0.001)
    slow.begin([(0, 1)] * 5)
    assert slow.take(0, 500) == 0


def test_steps_that_come_late_make_prompts_give_way() -> None:
    """Where one step in ten takes a fifth longer, the others aim lower."""
    steady, jumpy = bound(target_itl_s=0.2), bound(target_itl_s=0.2)
    for step in range(200):
        for each, seconds in (steady, 0.05), (jumpy, 0.06 if step % 10 == 9 else 0.05):
            each.begin([(0, 1)])
            each.observe(seconds)
    taken: list[int] = []
    for each in (steady, jumpy):
        each.begin([(0, 1)])
        taken.append(each.take(0, 500))
    assert 12 <= taken[1] < taken[0] == 15


# --- machines ------------------------------------------------------------------------------------


@dataclass
class Machine:
    """Seconds of a step with four streams and some rows of a prompt. Rows cost more from every
    eighth on, keys are read once for all rows of a sequence, and no step takes just what it should.

    `keys`: what they cost, against a small model without windows. `sigma`: of every step's noise.
    `pace`: how the machine's speed wanders. `accidents`: the share of steps that something else
    delays. `slow`: from that step on, it takes a third as long again.
    """

    keys: float = 1.0
    sigma: float = 0.03
    pace: float = 0.0
    accidents: float = 0.0
    slow: int = 1 << 30
    seed: int = 0
    paces: list[float] = field(default_factory=list[float])

    def should(self, stream: int, depth: int, num_rows: int) -> float:
        all_rows = STREAMS + num_rows
        rows = 0.006 + 0.0007 * all_rows + 0.002 * (all_rows // 8)
        prompt = (1.4e-6 + 0.8e-6 * num_rows) * (depth + num_rows / 2) if num_rows else 0.0
        return rows + self.keys * (STREAMS * 1e-6 * stream + prompt)

    def noise(self) -> Iterator[float]:
        rng = random.Random(self.seed)
        wander = 0.0
        for step in range(100_000):
            wander = 0.99 * wander + rng.gauss(0, self.pace)
            self.paces.append(math.exp(wander) * (4 / 3 if step >= self.slow else 1.0))
            late = rng.uniform(1.2, 2.0) if rng.random() < self.accidents else 1.0
            yield self.paces[-1] * math.exp(rng.gauss(0, self.sigma)) * late


@dataclass
class Felt:
    """Steps until the prompt was read, as shares of the target; what the machine permitted."""

    steps: list[float]
    ratio: float

    @property
    def p99(self) -> float:
        return sorted(self.steps)[round(0.99 * (len(self.steps) - 1))]


def arrive(machine: Machine, times: float) -> Felt:
    """A prompt arrives, and target_itl_ms is so many times a decode-only step."""
    target_s = times * machine.should(OWN, 0, 0)
    held = TimeBound(StepTimes(2e-3, 5e-7), FULL, max_step_s=0.25, target_itl_s=target_s)
    noise = machine.noise()
    for stream in range(OWN - 24, OWN):
        held.begin([(stream, 1)] * STREAMS)
        held.observe(machine.should(stream, 0, 0) * next(noise))
    steps: list[float] = []
    stream, depth = OWN, 0
    while depth < PROMPT:
        held.begin([(stream, 1)] * STREAMS)
        num_rows = held.take(depth, PROMPT - depth, least=1)
        steps.append(machine.should(stream, depth, num_rows) * next(noise))
        held.observe(steps[-1])
        stream, depth = stream + 1, depth + num_rows
    return Felt([s / target_s for s in steps], sum(steps) / permitted_s(machine, target_s))


def permitted_s(machine: Machine, target_s: float) -> float:
    """Whoever knew what every step should take, and the machine's pace in it, would take so long.
    One row goes in where none fits."""
    for _ in machine.noise():
        if len(machine.paces) >= 20_000:
            break
    stream, depth, seconds = OWN, 0, 0.0
    while depth < PROMPT:
        pace = machine.paces[24 + stream - OWN]
        num_rows = 1
        while depth + num_rows < PROMPT and (
            machine.should(stream, depth, num_rows + 1) * pace <= target_s
        ):
            num_rows += 1
        seconds += machine.should(stream, depth, num_rows) * pace
        stream, depth = stream + 1, depth + num_rows
    return seconds


MACHINES = [
    pytest.param(Machine(sigma=0.0), id="even"),
    pytest.param(Machine(), id="quiet"),
    pytest.param(Machine(accidents=0.006), id="accidents"),
    pytest.param(Machine(pace=0.01), id="wandering"),
    pytest.param(Machine(slow=150), id="slower from some step on"),
]


@pytest.mark.parametrize(("times", "keys"), [(2, 0.1), (3, 0.5), (4, 1.0), (8, 1.0)])
@pytest.mark.parametrize("kind", MACHINES)
def test_streams_and_prompt_get_what_the_machine_permits(
    kind: Machine, times: float, keys: float
) -> None:
    felt = arrive(replace(kind, keys=keys, paces=[]), times)
    assert felt.p99 <= KEPT
    assert felt.ratio <= KEPT


@pytest.mark.parametrize("kind", MACHINES[:3])
def test_out_of_reach_streams_wait_little_longer_and_the_prompt_for_much_less(
    kind: Machine,
) -> None:
    """Twice a decode-only step is less than what the streams take once they are deep."""
    felt = arrive(replace(kind, paces=[]), 2)
    assert felt.p99 > KEPT
    assert felt.ratio < 0.9
