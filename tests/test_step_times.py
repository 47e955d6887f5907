"""StepTimes and TimeBound: what steps take, learned from steps that took some, and what fits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edgeserve.engine.step_times import KeysSeen, StepLoad, StepTimes, TimeBound

FULL = KeysSeen.of([(4, None)])


def rows_within(times: StepTimes, seconds: float, most: int = 1 << 20) -> int:
    return times.rows_within(seconds, StepLoad(KeysSeen()), 0, most)


def test_prior_counts_until_a_step_has_told() -> None:
    times = StepTimes(0.01)
    assert rows_within(times, 0.25) == 21  # and what four more take, for the weights
    times.observe(10, 0.0, 0.5)
    assert times.seconds(10) == pytest.approx(0.5)
    assert rows_within(times, 0.25) == 3


def test_without_a_prior_nothing_is_bounded_before_the_first_step() -> None:
    times = StepTimes(0.0)
    assert rows_within(times, 0.25, most=777) == 777
    times.observe(1, 0.0, 0.1)
    assert rows_within(times, 0.25, most=777) < 777


def test_steps_that_took_no_time_teach_nothing() -> None:
    times = StepTimes(0.01)
    times.observe(10, 0.0, 0.0)
    times.observe(0, 0.0, 1.0)
    assert rows_within(times, 0.25) == 21


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
                times.observe(num_rows, FULL.by(first, num_rows), took(num_rows, first))
    for num_rows in (1, 4, 16, 64, 256):
        for first in (0, 2000, 4096):
            thought = times.seconds(num_rows, FULL.by(first, num_rows))
            assert thought == pytest.approx(took(num_rows, first), rel=0.15)
    assert times.seconds(100) == pytest.approx(body(100), rel=0.4)  # between what was seen


def test_what_lies_between_and_beyond_takes_after_its_neighbours() -> None:
    times = StepTimes(0.01)
    for _ in range(10):
        times.observe(8, 0.0, 0.12 * 3)
        times.observe(128, 0.0, 1.32 * 3)
    assert times.seconds(32) == pytest.approx(0.36 * 3)
    assert times.seconds(2) == pytest.approx(0.06 * 3)
    assert times.seconds(1024) == pytest.approx(10.28 * 3)


def test_one_accident_is_forgotten_and_a_slower_machine_is_not() -> None:
    times = StepTimes(0.01)
    for _ in range(5):
        times.observe(4, 0.0, 0.1)
    times.observe(4, 0.0, 60.0)
    assert times.seconds(4) <= 0.14
    for _ in range(20):
        times.observe(4, 0.0, 0.3)
    assert times.seconds(4) == pytest.approx(0.3, rel=0.02)


def test_keys_seen_are_a_mean_over_layers_and_end_at_the_window() -> None:
    assert FULL.by(0, 1) == 1
    assert FULL.by(0, 4) == 1 + 2 + 3 + 4
    assert FULL.by(10, 2) == 11 + 12
    mixed = KeysSeen.of([(1, None), (3, 4), (0, 2)])
    assert mixed.by(99, 1) == (100 + 3 * 4) / 4
    assert KeysSeen().by(5, 5) == 0


# --- TimeBound -----------------------------------------------------------------------------------


def bound(**limits: float) -> TimeBound:
    """A row takes 10 ms, and a step 40 ms more."""
    return TimeBound(StepTimes(0.01), FULL, max_step_s=0.25, **limits)


def test_prompt_alone_has_the_whole_step() -> None:
    alone = bound()
    alone.begin([])
    assert alone.take(0, 500) == 21
    assert alone.take(0, 500) == 0
    assert alone.load.num_rows == 21


def test_beside_streams_a_prompt_may_make_them_wait_four_times_as_long() -> None:
    beside = bound()
    beside.begin([(30, 1)])  # 50 ms alone, so 200 ms
    assert beside.take(0, 500) == 15
    beside = bound(target_itl_s=0.1)
    beside.begin([(30, 1)])
    assert beside.take(0, 3) == 3
    assert beside.take(0, 500) == 2
    assert beside.load.num_keys == 31 + (1 + 2 + 3) + (1 + 2)


def test_where_decodes_alone_take_the_step_prompts_get_as_long_again() -> None:
    slow = bound()
    slow.begin([(0, 1)] * 46)  # half a second
    assert slow.take(0, 500) == 50


def test_a_target_out_of_reach_holds_nobody_up() -> None:
    slow = bound(target_itl_s=0.001)
    slow.begin([(0, 1)] * 40)
    assert slow.take(0, 500, least=1) == 1
    assert slow.take(0, 500) == 0
