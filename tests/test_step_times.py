"""StepTimes: what steps take, learned from steps that took some. And what a step's load is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from edgeserve.engine.step_load import NO_KEYS, Keys, KeysSeen, StepLoad
from edgeserve.engine.step_times import StepTimes

FULL = KeysSeen.of([(4, None)])


def load(decodes: list[int], first_position: int = 0, num_rows: int = 0) -> StepLoad:
    """Streams at these positions, and rows of a prompt."""
    load = StepLoad(FULL)
    load.begin((position, 1) for position in decodes)
    if num_rows:
        load.add_prompt(first_position, num_rows)
    return load


def observe(times: StepTimes, load: StepLoad, seconds: float) -> None:
    times.observe(load.num_rows, load.keys, seconds)


def thought(times: StepTimes, load: StepLoad) -> float:
    return times.seconds(load.num_rows, load.keys)


def test_prior_counts_until_a_step_has_told() -> None:
    times = StepTimes(0.01)
    assert times.seconds(21) == pytest.approx(0.25)  # and what four more take, for the weights
    times.observe(10, NO_KEYS, 0.5)
    assert times.seconds(10) == pytest.approx(0.5)
    assert times.seconds(3) == pytest.approx(0.25)


def test_without_a_prior_nothing_is_known_before_the_first_step() -> None:
    times = StepTimes(0.0)
    assert not times.are_known
    times.observe(1, NO_KEYS, 0.1)
    assert times.are_known
    assert times.seconds(6) == pytest.approx(0.2)


def test_steps_that_took_no_time_teach_nothing() -> None:
    times = StepTimes(0.01)
    times.observe(10, NO_KEYS, 0.0)
    times.observe(0, NO_KEYS, 1.0)
    assert times.seconds(21) == pytest.approx(0.25)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda n: 0.006 + 0.0014 * n, id="arithmetic"),
        pytest.param(lambda n: max(0.05, 0.002 * n), id="memory, then arithmetic"),
        pytest.param(lambda n: 0.001 * n**1.1, id="worse than linear"),
    ],
)
def test_curve_of_any_shape_is_learned_for_rows_and_keys(body: Callable[[int], float]) -> None:
    times = StepTimes(0.02, 1e-8)
    s_per_key = 3e-7

    def took(num_rows: int, first: int) -> float:
        return body(num_rows) + s_per_key * FULL.by(first, num_rows)

    for _ in range(12):
        for num_rows in (1, 4, 16, 64, 256):
            for first in range(0, 4096, 512):
                observe(times, load([], first, num_rows), took(num_rows, first))
    for num_rows in (1, 4, 16, 64, 256):
        for first in (0, 2000, 4096):
            found = thought(times, load([], first, num_rows))
            assert found == pytest.approx(took(num_rows, first), rel=0.15)
    assert times.seconds(100) == pytest.approx(body(100), rel=0.4)  # between what was seen


def test_a_deep_row_costs_reading_and_the_rows_beside_it_do_not() -> None:
    """Else one row of a long prompt looks as if two cost twice as much, and stays alone."""
    times = StepTimes(0.001, 1e-6)

    def took(load: StepLoad) -> float:
        decoded, read, seen = load.keys
        return 0.001 * (load.num_rows + 6) + 1e-6 * decoded + 2e-6 * read + 5e-7 * seen

    for step in range(400):
        seen = load([100 + step] * 4, 10 * step, (1, 2, 4, 8)[step % 4])
        observe(times, seen, took(seen))
    for num_rows in (1, 3, 6):
        deep = load([600] * 4, 4000, num_rows)
        assert thought(times, deep) == pytest.approx(took(deep), rel=0.1)


def test_keys_that_cost_far_less_than_thought_leave_rows_what_they_cost() -> None:
    """A long prompt alone, a stream, then a prompt beside it: with what is thought of keys before a
    step has told, rows once came to cost nothing, and after the next surprise millennia."""
    times = StepTimes(0.003, 1e-6)

    def took(load: StepLoad) -> float:
        decoded, read, seen = load.keys
        return 0.006 + 0.0012 * load.num_rows + 4e-7 * (decoded + read) + 2e-7 * seen

    def see(load: StepLoad) -> float:
        before = thought(times, load)
        observe(times, load, took(load))
        return before / took(load)

    for first in range(0, 6000, 60):
        see(load([], first, 60))
    for position in range(100):
        see(load([50 + position]))
    for first in (*range(0, 160, 2), *range(160, 6000, 80)):
        ratio = see(load([150 + first // 40], first, 2 if first < 160 else 80))
        assert 0.3 < ratio < 3, f"thought {ratio:.3g} times what it took, at {first}"


def test_nothing_that_steps_tell_makes_them_cost_seconds() -> None:
    """Of a machine that does as it likes, from 1 ms to 1 s."""
    random, times = Random(1), StepTimes(0.003, 1e-6)
    for _ in range(5000):
        streams = [random.randrange(4000) for _ in range(random.randrange(5))]
        seen = load(streams, random.randrange(4000), random.choice((0, 1, 3, 20, 60, 99, 300)))
        observe(times, seen, 10 ** random.uniform(-3, 0))
        assert thought(times, load([2000] * 4, 2000, 60)) < 10


def test_what_lies_between_and_beyond_takes_after_its_neighbours() -> None:
    times = StepTimes(0.01)
    for _ in range(10):
        times.observe(8, NO_KEYS, 0.12 * 3)
        times.observe(128, NO_KEYS, 1.32 * 3)
    assert times.seconds(32) == pytest.approx(0.36 * 3)
    assert times.seconds(2) == pytest.approx(0.06 * 3)
    assert times.seconds(1024) == pytest.approx(10.28 * 3)


def test_one_accident_is_forgotten_and_a_slower_machine_is_not() -> None:
    times = StepTimes(0.01)
    for _ in range(5):
        times.observe(4, NO_KEYS, 0.1)
    times.observe(4, NO_KEYS, 60.0)
    assert times.seconds(4) <= 0.14
    for _ in range(20):
        times.observe(4, NO_KEYS, 0.3)
    assert times.seconds(4) == pytest.approx(0.3, rel=0.02)


def test_an_accident_at_a_row_count_that_was_never_seen_is_not_believed() -> None:
    times = StepTimes(0.01)
    for _ in range(5):
        times.observe(4, NO_KEYS, 0.08)
    times.observe(16, NO_KEYS, 60.0)
    assert times.seconds(16) <= 0.2 * 1.31


def test_a_machine_that_slows_down_slows_what_is_not_tried_meanwhile() -> None:
    times = StepTimes(0.01)
    for _ in range(20):
        times.observe(4, NO_KEYS, 0.08)
        times.observe(16, NO_KEYS, 0.2)
    for _ in range(20):
        times.observe(4, NO_KEYS, 0.16)
    assert times.seconds(16) == pytest.approx(0.33, rel=0.1)
    for _ in range(20):
        times.observe(4, NO_KEYS, 0.08)
    assert times.seconds(16) == pytest.approx(0.2, rel=0.1)


def test_a_curve_that_is_not_as_thought_is_no_slower_machine() -> None:
    times = StepTimes(0.0)
    times.observe(200, NO_KEYS, 0.45)
    for _ in range(40):
        times.observe(1, NO_KEYS, 0.052)
    assert times.seconds(1) == pytest.approx(0.052, rel=0.05)
    assert times.seconds(200) == pytest.approx(0.45, rel=0.2)


def test_keys_seen_are_a_mean_over_layers_and_end_at_the_window() -> None:
    assert FULL.by(0, 1) == 1
    assert FULL.by(0, 4) == 1 + 2 + 3 + 4
    assert FULL.by(10, 2) == 11 + 12
    mixed = KeysSeen.of([(1, None), (3, 4), (0, 2)])
    assert mixed.by(99, 1) == (100 + 3 * 4) / 4
    assert KeysSeen().by(5, 5) == 0


def test_a_load_reads_the_keys_of_a_sequence_once() -> None:
    step = StepLoad(FULL)
    step.begin([(30, 1), (9, 3)])  # one of them with a draft of two
    assert (step.num_rows, step.keys) == (4, Keys(31 + 10, 0, 11 + 12))
    step.add_draft(31, 2)
    assert (step.num_rows, step.keys) == (6, Keys(41, 0, 23 + 32 + 33))
    assert step.keys_with(7, 0) == step.keys
    step.add_prompt(7, 3)
    assert (step.num_rows, step.keys) == (9, Keys(41, 10, 88 + 8 + 9 + 10))
    step.begin([])
    assert (step.num_rows, step.keys) == (0, NO_KEYS)
