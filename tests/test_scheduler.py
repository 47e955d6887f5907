"""Scheduler: budgets, order, preemption, and that every sequence ends. No runner: time is steps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.cache.kv_cache import KVCache
from edgeserve.engine.scheduler import Scheduler, SchedulerOutput
from edgeserve.engine.sequence import Sequence
from edgeserve.errors import OutOfBlocksError
from edgeserve.types import SamplingDefaults, SamplingParams

BLOCK = 4


class Bench:
    """A scheduler whose every step is checked and then pretended to have been computed."""

    def __init__(self, *, blocks: int = 100, batched: int = 16, seqs: int = 8, groups: int = 2):
        self.cache = KVCache(num_groups=groups, num_blocks=blocks, block_size=BLOCK)
        self.budget, self.seqs = batched, seqs
        self.scheduler = Scheduler(self.cache, max_num_batched_tokens=batched, max_num_seqs=seqs)
        self.live: list[Sequence] = []
        self.ended: list[str] = []

    def sequence(self, name: str, prompt: int, output: int, *, scored: bool = False) -> Sequence:
        params = SamplingParams(prompt_logprobs=0 if scored else None)
        return Sequence(
            request_id=name,
            index=0,
            token_ids=[0] * prompt,
            params=params,
            sampling=params.resolved(SamplingDefaults()),
            seed=0,
            max_tokens=output,
            stop_ids=frozenset(),
            block_tables=self.cache.new_tables(),
        )

    def add(self, name: str, prompt: int, output: int = 1, *, scored: bool = False) -> Sequence:
        sequence = self.sequence(name, prompt, output, scored=scored)
        self.scheduler.add(sequence)
        self.live.append(sequence)
        return sequence

    def step(self, max_rows: int | None = None) -> SchedulerOutput:
        output = self.scheduler.schedule(max_rows)
        self._check(output)
        for rows in output.rows:
            sequence = rows.sequence
            sequence.num_computed_tokens += rows.num_tokens
            if sequence.num_computed_tokens < len(sequence.token_ids):
                continue
            sequence.num_scored_tokens = sequence.num_prompt_tokens
            sequence.token_ids.append(0)
            if sequence.num_output_tokens == sequence.max_tokens:
                self.scheduler.remove(sequence)
                self.live.remove(sequence)
                self.ended.append(sequence.request_id)
        self.scheduler.check()
        return output

    def _check(self, output: SchedulerOutput) -> None:
        self.scheduler.check()
        assert output.num_tokens <= self.budget
        assert self.scheduler.num_running <= self.seqs
        sequences = [rows.sequence for rows in output.rows]
        assert len(set(map(id, sequences))) == len(sequences)
        for rows in output.rows:
            assert rows.num_tokens >= 1
            assert 0 <= rows.num_logits_rows <= rows.num_tokens
            end = rows.sequence.num_computed_tokens + rows.num_tokens
            assert end <= len(rows.sequence.token_ids)
            assert all(len(table) * BLOCK >= end for table in rows.sequence.block_tables)

    def run(self, max_steps: int = 5000) -> None:
        for _ in range(max_steps):
            if not self.live:
                break
            self.step()
        assert self.live == [], "a sequence that never ends"
        assert self.cache.occupancy() == 0.0


def shares(output: SchedulerOutput) -> list[tuple[str, int, int]]:
    return [(r.sequence.request_id, r.num_tokens, r.num_logits_rows) for r in output.rows]


def test_prompt_is_cut_into_chunks_and_only_its_end_gets_logits() -> None:
    bench = Bench(batched=7)
    bench.add("a", 16)
    assert [shares(bench.step()) for _ in range(3)] == [
        [("a", 7, 0)],
        [("a", 7, 0)],
        [("a", 2, 1)],
    ]


def test_decodes_come_first_then_prompts_in_order_of_arrival() -> None:
    bench = Bench(batched=8)
    bench.add("a", 2, 5)
    bench.step()
    bench.add("b", 6)
    bench.add("c", 6)
    assert shares(bench.step()) == [("a", 1, 1), ("b", 6, 1), ("c", 1, 0)]
    assert shares(bench.step()) == [("a", 1, 1), ("c", 5, 1)]


def test_rows_are_logits_rows_while_a_prompt_is_scored() -> None:
    bench = Bench(batched=6)
    bench.add("a", 8, 2, scored=True)
    assert shares(bench.step()) == [("a", 6, 6)]
    assert shares(bench.step()) == [("a", 2, 2)]
    assert shares(bench.step()) == [("a", 1, 1)]


def test_time_bound_cuts_prompts_but_never_decodes() -> None:
    bench = Bench(batched=16)
    bench.add("a", 1, 9)
    bench.add("b", 1, 9)
    bench.step()
    bench.add("c", 12)
    assert shares(bench.step(max_rows=5)) == [("a", 1, 1), ("b", 1, 1), ("c", 3, 0)]
    assert shares(bench.step(max_rows=1)) == [("a", 1, 1), ("b", 1, 1), ("c", 1, 0)]


def test_no_more_run_than_may() -> None:
    bench = Bench(seqs=2)
    for name in "abc":
        bench.add(name, 2, 3)
    assert [name for name, *_ in shares(bench.step())] == ["a", "b"]
    assert (bench.scheduler.num_running, bench.scheduler.num_waiting) == (2, 1)
    bench.run()
    assert bench.ended == ["a", "b", "c"]


def test_youngest_gives_way_when_blocks_run_out_and_comes_back_first() -> None:
    bench = Bench(blocks=4, seqs=2)
    a = bench.add("a", 4, 8)
    b = bench.add("b", 4, 8)
    bench.add("c", 4, 8)
    while b.num_preemptions == 0:
        bench.step()
    assert a.num_preemptions == 0
    assert b.block_tables == [[], []]
    assert (b.num_computed_tokens, b.num_output_tokens > 0) == (0, True)
    bench.run()
    assert bench.ended == ["a", "b", "c"]


def test_sequence_that_no_pool_could_hold_is_refused_with_both_numbers() -> None:
    bench = Bench(blocks=4)
    with pytest.raises(OutOfBlocksError) as caught:
        bench.add("a", 10, 7)
    assert (caught.value.needed_blocks, caught.value.pool_blocks) == (5, 4)
    bench.add("b", 10, 6)
    bench.run()


def test_prompts_that_arrive_later_cannot_starve_one_that_waits() -> None:
    bench = Bench(batched=2, seqs=8)
    bench.add("early", 3, 1)
    for n in range(50):
        bench.add(f"late{n}", 1, 3)
        bench.step()
        if "early" in bench.ended:
            return
    raise AssertionError("the first prompt waited for fifty others")


def test_removing_frees_blocks_at_once_wherever_the_sequence_is() -> None:
    bench = Bench(blocks=8, batched=4, seqs=2)
    decoding, prefilling = bench.add("decoding", 2, 9), bench.add("prefilling", 12)
    waiting = bench.add("waiting", 4)
    bench.step()
    assert (decoding.num_output_tokens, prefilling.num_computed_tokens) == (1, 2)
    for sequence in (waiting, prefilling, decoding):
        bench.scheduler.remove(sequence)
        assert sequence.block_tables == [[], []]
        bench.scheduler.check()
    assert bench.cache.occupancy() == 0.0
    bench.scheduler.remove(decoding)  # once more changes nothing
    assert bench.step().rows == ()


arrivals = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 24), st.integers(1, 8), st.booleans()),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=60)
@given(arrivals, st.integers(1, 20), st.integers(1, 5), st.integers(8, 16), st.data())
def test_everything_ends_within_budgets_over_any_schedule(
    wanted: list[tuple[int, int, int, bool]],
    batched: int,
    seqs: int,
    blocks: int,
    data: st.DataObject,
) -> None:
    bench = Bench(blocks=blocks, batched=batched, seqs=seqs)
    for n, (pause, prompt, output, scored) in enumerate(wanted):
        bench.add(str(n), prompt, output, scored=scored)
        for _ in range(pause):
            bench.step(data.draw(st.sampled_from([None, 1, 3])))
        if bench.live and data.draw(st.integers(0, 5)) == 0:
            gone = data.draw(st.sampled_from(bench.live))
            bench.scheduler.remove(gone)
            bench.live.remove(gone)
            bench.scheduler.check()
    bench.run()
