"""Accounts: what the engine says it did is what it did, in seconds of its clock."""

from __future__ import annotations

from dataclasses import replace

from edgeserve.engine.accounting import DraftCounts, EngineLoad, EngineStats
from edgeserve.engine.histogram import Distribution, Histogram
from edgeserve.runner.batch import Batch
from edgeserve.types import SamplingParams

from .engine_harness import VOCAB_SIZE, Harness, make_engine
from .fake_runner import FakeRunner, hashed_logits

PARAMS = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)


def test_steps_rows_tokens_and_phases_add_up() -> None:
    seconds = [0.0]
    runner = FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=64)

    def takes(batch: Batch) -> None:
        seconds[0] += (2 + batch.num_rows) / 256

    def samples() -> None:
        seconds[0] += 0.5 / 256

    runner.on_execute, runner.on_sample = takes, samples
    bench = Harness(make_engine(runner, clock=lambda: seconds[0], max_num_batched_tokens=16))
    bench.add("a", [5] * 20, PARAMS)
    bench.run()
    stats = bench.engine.stats
    # 16 rows, 4, and two decodes.
    assert (stats.num_steps, stats.num_rows) == (4, 22)
    assert stats.seconds.forward == (4 * 2 + 22) / 256
    assert stats.seconds.sample == 4 * 0.5 / 256
    assert (stats.seconds.schedule, stats.seconds.emit) == (0.0, 0.0)
    assert (stats.num_prompt_tokens, stats.num_cached_tokens, stats.num_output_tokens) == (20, 0, 3)
    assert stats.last_step is not None
    assert stats.last_step.seconds.total == 3.5 / 256
    assert (stats.last_step.num_rows, stats.last_step.num_decodes) == (1, 1)
    assert (stats.last_step.num_running, stats.last_step.occupancy) == (0, 0.0)
    timings = bench.outputs["a"].timings
    assert timings.itl_p50_ms == timings.itl_p99_ms == timings.itl_max_ms == 3500 / 256
    assert timings.first_token_ms == 1e3 * (2 * 2.5 + 20) / 256
    bench.add("b", [5] * 20, PARAMS)
    bench.run()
    assert bench.engine.stats.num_cached_tokens == 16
    assert bench.engine.stats.num_blocks["hit"] == 1


def test_requests_are_counted_by_how_they_ended() -> None:
    runner = FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=64)
    bench = Harness(make_engine(runner))
    bench.add("a", [5], PARAMS)
    bench.run()
    bench.add("gone", [5], PARAMS)
    bench.engine.abort("gone")
    bench.engine.abort("gone")

    def breaks(_: Batch) -> None:
        raise ValueError

    runner.on_execute = breaks
    bench.add("fails", [6], PARAMS)
    bench.run()
    assert bench.engine.stats.num_requests == {"length": 1, "abort": 1, "error": 1}


def test_preemptions_and_queue_are_seen() -> None:
    bench = Harness(
        make_engine(FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=4), max_num_seqs=2)
    )
    for name in "abc":
        bench.add(name, [ord(name)] * 16, SamplingParams(max_tokens=30, ignore_eos=True))
    bench.step()
    last = bench.engine.stats.last_step
    assert last is not None
    assert (last.num_running, last.num_waiting) == (2, 1)
    assert last.occupancy > 0
    bench.run()
    assert bench.engine.stats.num_preemptions > 0


def test_latencies_are_of_requests_that_ended() -> None:
    """A step takes a second: 20 prompt tokens in two, then two more tokens, each after a second."""
    seconds = [0.0]
    runner = FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=64)

    def takes(_: Batch) -> None:
        seconds[0] += 1.0

    runner.on_execute = takes
    bench = Harness(make_engine(runner, clock=lambda: seconds[0], max_num_batched_tokens=16))
    bench.add("a", [5] * 20, PARAMS)
    bench.step()
    assert sum(bench.engine.stats.latencies.first_token.counts) == 0
    bench.run()
    stats = bench.engine.stats
    found = stats.latencies
    assert (found.first_token.total, sum(found.first_token.counts)) == (2.0, 1)
    assert (found.inter_token.total, sum(found.inter_token.counts)) == (2.0, 2)
    assert (found.per_token.total, sum(found.per_token.counts)) == (1.0, 1)
    assert (found.whole.total, sum(found.whole.counts)) == (4.0, 1)
    assert (found.queue.total, found.queue.counts[0]) == (0.0, 1)
    assert stats.num_sampled_tokens == 3


def test_a_bucket_holds_its_bound_and_the_last_the_rest() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.add([0.5, 1.0, 1.5, 2.0, 9.0])
    assert histogram.seen() == Distribution((1.0, 2.0), (2, 2, 1), 14.0)


def test_the_load_is_of_now_and_not_of_the_last_step() -> None:
    bench = Harness(make_engine(FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=64)))
    bench.add("a", [5], PARAMS)
    assert bench.engine.stats.load == EngineLoad(0, 1, 0.0)
    bench.step()
    load = bench.engine.stats.load
    assert (load.num_running, load.num_waiting, load.occupancy > 0) == (1, 0, True)
    bench.engine.abort("a")
    assert bench.engine.stats.load == EngineLoad(0, 0, 0.0)


def test_what_two_engines_did_adds_up_and_what_is_now_is_the_later_ones() -> None:
    def did(prompts: list[int], drafts: DraftCounts) -> EngineStats:
        bench = Harness(make_engine(FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=64)))
        for number, length in enumerate(prompts):
            bench.add(str(number), [5] * length, PARAMS)
        bench.run()
        return replace(bench.engine.stats, drafts={"ngram": drafts})

    first, second = did([20, 9], DraftCounts(1, 4, 2)), did([7], DraftCounts(2, 6, 1))
    both = first + second
    assert both.num_steps == first.num_steps + second.num_steps
    assert both.num_prompt_tokens == 36
    assert both.num_output_tokens == both.num_sampled_tokens == 9
    assert both.num_requests == {"length": 3}
    assert both.num_blocks == {
        event: first.num_blocks[event] + second.num_blocks[event] for event in first.num_blocks
    }
    assert both.drafts == {"ngram": DraftCounts(3, 10, 3)}
    assert sum(both.latencies.whole.counts) == 3
    assert sum(both.latencies.inter_token.counts) == 3 * 2
    assert both.seconds.total == first.seconds.total + second.seconds.total
    assert (both.load, both.last_step) == (second.load, second.last_step)
