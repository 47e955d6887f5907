"""StepTimes: how many rows fit a time, learned from steps that took some."""

from __future__ import annotations

from edgeserve.engine.step_times import StepTimes


def test_prior_counts_until_a_step_has_told() -> None:
    times = StepTimes(0.01)
    assert times.rows_within(0.25) == 25
    for _ in range(20):
        times.observe(10, 0.5)
    assert times.rows_within(0.25) == 5


def test_without_a_prior_nothing_is_bounded() -> None:
    assert StepTimes(0.0).rows_within(0.25) > 10**6


def test_one_row_always_fits() -> None:
    assert StepTimes(100.0).rows_within(0.25) == 1


def test_steps_that_took_no_time_teach_nothing() -> None:
    times = StepTimes(0.01)
    times.observe(10, 0.0)
    times.observe(0, 1.0)
    assert times.rows_within(0.25) == 25
