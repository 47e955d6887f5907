"""SharedEngine: events reach the request they belong to, and nobody waits for what cannot come."""

from __future__ import annotations

import pytest

from edgeserve.engine.live_request import Request
from edgeserve.engine.output import EngineEvent, RequestFailed, RequestFinished, RequestProgress
from edgeserve.engine.shared_engine import SharedEngine
from edgeserve.errors import AbortedError, ClosedError, InvalidRequestError, StepError
from edgeserve.types import SamplingParams

from .engine_harness import VOCAB_SIZE, make_engine
from .fake_runner import FakeRunner, hashed_logits

PARAMS = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)


@pytest.fixture
def runner() -> FakeRunner:
    return FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=64)


@pytest.fixture
def shared(runner: FakeRunner) -> SharedEngine:
    return SharedEngine(make_engine(runner))


def submit(shared: SharedEngine, name: str, *, wants_progress: bool = True) -> None:
    shared.submit(Request(name, None, (5, 6), PARAMS, 0), wants_progress=wants_progress)


def all_events(shared: SharedEngine, name: str) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    while not events or isinstance(events[-1], RequestProgress):
        events += shared.events_of(name)
    return events


def test_nothing_is_computed_unless_somebody_waits(
    shared: SharedEngine, runner: FakeRunner
) -> None:
    submit(shared, "a")
    assert runner.batches == []
    shared.events_of("a")
    assert len(runner.batches) == 1


def test_one_step_serves_everyone_and_events_wait_for_their_owner(
    shared: SharedEngine, runner: FakeRunner
) -> None:
    submit(shared, "a")
    submit(shared, "b")
    first = all_events(shared, "a")
    assert len(runner.batches) == 5
    second = all_events(shared, "b")
    assert len(runner.batches) == 5
    assert {event.request_id for event in first} == {"a"}
    assert {event.request_id for event in second} == {"b"}
    assert isinstance(first[-1], RequestFinished)
    assert len(first) == len(second) == 6


def test_without_progress_only_the_end_is_an_event(shared: SharedEngine) -> None:
    submit(shared, "a", wants_progress=False)
    steps = [shared.events_of("a") for _ in range(5)]
    assert [[type(event) for event in events] for events in steps] == [*[[]] * 4, [RequestFinished]]


def test_forgotten_request_has_one_event_that_says_so(shared: SharedEngine) -> None:
    submit(shared, "a")
    shared.events_of("a")
    shared.forget("a")
    shared.forget("a")
    for name in ("a", "never was"):
        (event,) = shared.events_of(name)
        assert isinstance(event, RequestFailed)
        assert isinstance(event.error, AbortedError)


def test_forgetting_inside_a_step_waits_for_its_end(
    shared: SharedEngine, runner: FakeRunner
) -> None:
    submit(shared, "a")
    submit(shared, "b")
    runner.on_execute = lambda _: shared.forget("b")
    shared.events_of("a")
    runner.on_execute = None
    all_events(shared, "a")
    assert all(batch.num_groups == 1 for batch in runner.batches[1:])


def test_events_lost_to_an_interrupt_end_in_an_error_and_not_in_waiting(
    shared: SharedEngine, runner: FakeRunner
) -> None:
    submit(shared, "a")
    engine = shared._engine  # pyright: ignore[reportPrivateUsage]
    step = engine.step

    def interrupted() -> list[EngineEvent]:
        if any(isinstance(event, RequestFinished) for event in step()):
            raise KeyboardInterrupt
        return []

    engine.step = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        all_events(shared, "a")
    engine.step = step  # type: ignore[method-assign]
    (event,) = shared.events_of("a")
    assert isinstance(event, RequestFailed)
    assert isinstance(event.error, StepError)
    assert runner.closed == 0


def test_refused_request_leaves_nothing_behind(shared: SharedEngine) -> None:
    with pytest.raises(InvalidRequestError):
        shared.submit(Request("a", None, (), PARAMS, 0), wants_progress=True)
    submit(shared, "a")
    assert isinstance(all_events(shared, "a")[-1], RequestFinished)


def test_closed_engine_says_so_and_is_closed_once(shared: SharedEngine, runner: FakeRunner) -> None:
    submit(shared, "a")
    shared.close()
    shared.close()
    assert runner.closed == 1
    with pytest.raises(ClosedError):
        shared.events_of("a")
    with pytest.raises(ClosedError):
        submit(shared, "b")
    shared.forget("a")
