"""The engine on its own thread: answers, cancelling, refusing, failing and ending, step by step."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from edgeserve.engine.async_engine import AsyncEngine, Events
from edgeserve.engine.engine import Engine
from edgeserve.engine.live_request import Request
from edgeserve.engine.output import EngineEvent, RequestFailed, RequestFinished, RequestProgress
from edgeserve.errors import (
    ClosedError,
    ContextLengthError,
    InvalidRequestError,
    OutOfBlocksError,
    QueueFullError,
    StepError,
)
from edgeserve.runner.batch import Batch
from edgeserve.types import RequestOutput, SamplingParams

from .engine_harness import NO_TIME, VOCAB_SIZE, Harness, make_engine
from .fake_runner import FakeRunner, hashed_logits

SECONDS = 60
LONG = SamplingParams(temperature=1.0, max_tokens=30, ignore_eos=True)
SHORT = SamplingParams(temperature=1.0, max_tokens=2, ignore_eos=True)


class Gate:
    """Stands before every step of a runner: a test lets steps through one by one."""

    def __init__(self, runner: FakeRunner) -> None:
        self._entered = threading.Semaphore(0)
        self._passes = threading.Semaphore(0)
        self._open = False
        runner.on_execute = self._stop

    def _stop(self, _: Batch) -> None:
        if not self._open:
            self._entered.release()
            assert self._passes.acquire(timeout=SECONDS), "a step that nobody lets through"

    async def step_begins(self) -> None:
        assert await asyncio.to_thread(self._entered.acquire, timeout=SECONDS)

    def let_through(self) -> None:
        self._passes.release()

    def open(self) -> None:
        self._open = True
        self._passes.release()


def fake_runner(num_blocks: int = 64) -> FakeRunner:
    return FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=num_blocks)


def request(name: str, params: SamplingParams = LONG, *, length: int = 5) -> Request:
    ids = tuple((len(name) * 7 + i) % 200 + 10 for i in range(length))
    return Request(name, None, ids, params, seed=11)


@asynccontextmanager
async def running(engine: Engine, max_queued_requests: int = 256) -> AsyncIterator[AsyncEngine]:
    """Closed at the end, with every block free."""
    made = AsyncEngine(engine, max_queued_requests=max_queued_requests)
    try:
        yield made
    finally:
        await made.close()
        engine.check()
        assert not engine.has_work


async def event_of(events: Events) -> EngineEvent:
    return await asyncio.wait_for(events.get(), SECONDS)


async def output_of(events: Events) -> RequestOutput:
    while True:
        event = await event_of(events)
        if isinstance(event, RequestFinished):
            return replace(event.output, timings=NO_TIME, prefix_miss=None)
        assert isinstance(event, RequestProgress), event


async def error_of(events: Events) -> Exception:
    while True:
        event = await event_of(events)
        if isinstance(event, RequestFailed):
            return event.error
        assert isinstance(event, RequestProgress), event


def alone(given: Request) -> RequestOutput:
    harness = Harness(make_engine(fake_runner()))
    harness.engine.add_request(given)
    harness.run()
    return harness.answer(given.request_id)


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), SECONDS)

    asyncio.run(bounded())


# --- answers -------------------------------------------------------------------------------------


def test_requests_at_once_answer_as_alone() -> None:
    async def test() -> None:
        async with running(make_engine(fake_runner(), max_num_seqs=4)) as engine:
            given = [request("x" * i, replace(LONG, n=1 + i % 2)) for i in range(1, 13)]
            queues = [engine.submit(one, wants_progress=i % 3 > 0) for i, one in enumerate(given)]
            for one, queue in zip(given, queues, strict=True):
                assert await output_of(queue) == alone(one)

    in_loop(test)


def test_progress_comes_in_order_and_only_to_who_wants_it() -> None:
    async def test() -> None:
        async with running(make_engine(fake_runner())) as engine:
            quiet = engine.submit(request("quiet"), wants_progress=False)
            loud = engine.submit(request("loud"), wants_progress=True)
            assert isinstance(await event_of(quiet), RequestFinished)
            text = ""
            while isinstance(event := await event_of(loud), RequestProgress):
                text += event.chunk.text
            assert isinstance(event, RequestFinished)
            assert text == event.output.text
            assert loud.empty()

    in_loop(test)


def test_time_in_the_inbox_is_time_in_the_queue() -> None:
    async def test() -> None:
        now = 0.0
        runner = fake_runner()
        gate = Gate(runner)
        async with running(make_engine(runner, max_num_seqs=1, clock=lambda: now)) as engine:
            first = engine.submit(request("a", SHORT), wants_progress=False)
            second = engine.submit(request("b", SHORT), wants_progress=False)
            await gate.step_begins()
            now = 5.0
            gate.open()
            await output_of(first)
            event = await event_of(second)
            assert isinstance(event, RequestFinished)
            assert event.output.timings.queue_ms == 5000.0

    in_loop(test)


# --- refusing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (request("empty", length=0), InvalidRequestError),
        (request("long", length=256), ContextLengthError),
        (replace(request("ids"), prompt_token_ids=(VOCAB_SIZE,)), InvalidRequestError),
        (request("blocks", SamplingParams(max_tokens=100)), OutOfBlocksError),
    ],
)
def test_what_cannot_be_computed_is_refused_at_once(given: Request, error: type[Exception]) -> None:
    async def test() -> None:
        async with running(make_engine(fake_runner(num_blocks=6))) as engine:
            with pytest.raises(error):
                engine.submit(given, wants_progress=True)

    in_loop(test)


def test_a_request_that_breaks_on_its_way_in_fails_alone() -> None:
    async def test() -> None:
        runner = fake_runner()
        gate = Gate(runner)
        engine = make_engine(runner)
        async with running(engine) as made:
            first = made.submit(request("same"), wants_progress=True)
            await gate.step_begins()
            engine.add_request = refuse  # type: ignore[method-assign]
            second = made.submit(request("other"), wants_progress=True)
            gate.open()
            assert isinstance(await error_of(second), StepError)
            assert (await output_of(first)).text == alone(request("same")).text

    def refuse(given: Request, *, arrived: float | None = None) -> None:
        raise RuntimeError(f"{given.request_id} at {arrived}")

    in_loop(test)


def test_a_full_inbox_refuses_until_something_leaves_it() -> None:
    async def test() -> None:
        runner = fake_runner()
        gate = Gate(runner)
        engine = make_engine(runner, max_num_seqs=1)
        async with running(engine, max_queued_requests=2) as made:
            queues = [made.submit(request("running"), wants_progress=False)]
            await gate.step_begins()
            queues += [made.submit(request(name), wants_progress=False) for name in ("a1", "b22")]
            with pytest.raises(QueueFullError, match="max_queued_requests") as caught:
                made.submit(request("c333"), wants_progress=False)
            assert caught.value.limit == 2
            assert (made.stats.load.num_running, made.stats.load.num_waiting) == (1, 2)
            made.forget("a1")
            gate.let_through()
            await gate.step_begins()  # between the steps the inbox was read
            assert (made.stats.load.num_running, made.stats.load.num_waiting) == (1, 1)
            queues += [made.submit(request("d4444"), wants_progress=False)]
            with pytest.raises(QueueFullError):
                made.submit(request("e55555"), wants_progress=False)
            gate.open()
            for name, queue in zip(
                ("running", "b22", "d4444"), [queues[0], *queues[2:]], strict=True
            ):
                assert await output_of(queue) == alone(request(name))
            assert queues[1].empty()
            engine_has_room = made.submit(request("f"), wants_progress=False)
            await output_of(engine_has_room)

    in_loop(test)


def test_in_the_inbox_too_a_lower_priority_goes_first() -> None:
    async def test() -> None:
        runner = fake_runner()
        gate = Gate(runner)
        async with running(make_engine(runner, max_num_seqs=1)) as made:
            ends: list[str] = []

            async def ended(given: Request) -> None:
                events = made.submit(given, wants_progress=False)
                ends.append((await output_of(events)).request_id)

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(ended(request("running")))
                await gate.step_begins()
                for name, priority in [("a1", 0), ("b22", 1), ("c333", -1)]:
                    tasks.create_task(ended(replace(request(name, SHORT), priority=priority)))
                await asyncio.sleep(0)
                gate.open()
            assert ends == ["running", "c333", "a1", "b22"]

    in_loop(test)


# --- cancelling ----------------------------------------------------------------------------------


def test_a_cancelled_request_is_in_no_further_step() -> None:
    async def test() -> None:
        runner = fake_runner()
        gate = Gate(runner)
        engine = make_engine(runner)
        async with running(engine) as made:
            stays = made.submit(request("stays"), wants_progress=False)
            goes = made.submit(request("goes"), wants_progress=True)
            for _ in range(3):
                await gate.step_begins()
                gate.let_through()
            await gate.step_begins()
            made.forget("goes")
            gate.open()
            assert await output_of(stays) == alone(request("stays"))
            sizes = [batch.num_groups for batch in runner.batches]
            assert len(sizes) > 4
            assert sizes[3] == 2  # the step in which it was cancelled was its last
            assert set(sizes[4:]) == {1}
            while not goes.empty():
                assert isinstance(goes.get_nowait(), RequestProgress)

    in_loop(test)


def test_an_idle_engine_takes_cancellations_of_nobody() -> None:
    async def test() -> None:
        async with running(make_engine(fake_runner())) as engine:
            engine.forget("nobody")
            await output_of(engine.submit(request("one", SHORT), wants_progress=False))
            engine.forget("one")
            await output_of(engine.submit(request("one", SHORT), wants_progress=False))

    in_loop(test)


def test_a_loop_that_is_gone_cancels_its_requests() -> None:
    runner = fake_runner()
    gate = Gate(runner)
    engine = make_engine(runner)
    made = AsyncEngine(engine, max_queued_requests=8)

    async def leave() -> None:
        made.submit(request("left"), wants_progress=True)
        await gate.step_begins()

    async def test() -> None:
        await output_of(made.submit(request("b", SHORT), wants_progress=False))
        assert not engine.is_live("left")
        await made.close()

    in_loop(leave)
    gate.open()
    in_loop(test)
    assert len(runner.batches) < LONG.max_tokens  # type: ignore[operator]


# --- failing -------------------------------------------------------------------------------------


def test_a_failed_step_fails_its_batch_and_the_thread_goes_on() -> None:
    async def test() -> None:
        runner = fake_runner()

        def fail(batch: Batch) -> None:
            if batch.num_groups == 2:
                raise ValueError("two are too many")

        async with running(make_engine(runner)) as engine:
            for _ in range(2):
                gate = Gate(runner)
                first = engine.submit(request("first"), wants_progress=True)
                await gate.step_begins()
                second = engine.submit(request("other"), wants_progress=True)
                runner.on_execute = fail
                gate.open()
                for queue in (first, second):
                    error = await error_of(queue)
                    assert isinstance(error, StepError)
                    assert "two are too many" in str(error)
            again = engine.submit(request("again"), wants_progress=False)
            assert await output_of(again) == alone(request("again"))

    in_loop(test)


def test_a_step_that_breaks_outside_its_forward_pass_fails_who_is_live() -> None:
    async def test() -> None:
        engine = make_engine(fake_runner())
        step, broken = engine.step, True

        def break_once() -> list[EngineEvent]:
            nonlocal broken
            if broken and engine.has_work:
                broken = False
                raise RuntimeError("the books are wrong")
            return step()

        engine.step = break_once  # type: ignore[method-assign]
        async with running(engine) as made:
            error = await error_of(made.submit(request("one"), wants_progress=True))
            assert isinstance(error, StepError)
            again = made.submit(request("again"), wants_progress=False)
            assert await output_of(again) == alone(request("again"))

    in_loop(test)


# --- ending --------------------------------------------------------------------------------------


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "edgeserve-engine"]


def test_closing_in_a_step_ends_everybody_and_the_thread() -> None:
    async def test() -> None:
        runner = fake_runner()
        gate = Gate(runner)
        engine = make_engine(runner, max_num_seqs=1)
        made = AsyncEngine(engine, max_queued_requests=8)
        queues = [made.submit(request(name), wants_progress=True) for name in ("a", "bb")]
        await gate.step_begins()
        closing = [asyncio.ensure_future(made.close()) for _ in range(3)]
        closing[0].cancel()  # the others still hear of the end
        gate.open()
        for queue in queues:
            assert isinstance(await error_of(queue), ClosedError)
        results = await asyncio.gather(*closing, return_exceptions=True)
        assert [type(result) for result in results[1:]] == [type(None)] * 2
        assert runner.closed == 1
        assert not engine.has_work
        engine.check()
        assert engine_threads() == []
        with pytest.raises(ClosedError):
            made.submit(request("late"), wants_progress=True)
        await made.close()

    in_loop(test)


def test_an_error_of_closing_reaches_who_closes() -> None:
    async def test() -> None:
        runner = fake_runner()

        def fail() -> None:
            raise RuntimeError("it will not close")

        runner.close = fail  # type: ignore[method-assign]
        made = AsyncEngine(make_engine(runner), max_queued_requests=8)
        with pytest.raises(RuntimeError, match="will not close"):
            await made.close()
        with pytest.raises(ClosedError):
            made.submit(request("late"), wants_progress=True)

    in_loop(test)
    assert engine_threads() == []


def test_an_engine_that_is_dropped_ends_its_thread() -> None:
    runner = fake_runner()
    made = AsyncEngine(make_engine(runner), max_queued_requests=8)
    assert len(engine_threads()) == 1
    del made
    gc.collect()
    assert engine_threads() == []
    assert runner.closed == 1


def test_several_loops_share_an_engine() -> None:
    made = AsyncEngine(make_engine(fake_runner(), max_num_seqs=6), max_queued_requests=256)
    found: dict[str, RequestOutput] = {}

    def loop_of(thread: int) -> None:
        async def ask() -> None:
            given = [request(f"{thread}-" + "x" * i) for i in range(5)]
            queues = [made.submit(one, wants_progress=True) for one in given]
            for one, queue in zip(given, queues, strict=True):
                found[one.request_id] = await output_of(queue)

        in_loop(ask)

    threads = [threading.Thread(target=loop_of, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    in_loop(made.close)
    assert len(found) == 20
    for name, output in found.items():
        assert output == alone(request(name))
