"""Scheduler: budgets, order, preemption, and that every sequence ends. No runner: time is steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.cache.block_tables import BlockTables
from edgeserve.cache.kv_cache import KVCache
from edgeserve.cache.prefix_index import PrefixIndex
from edgeserve.engine.headroom import Headroom
from edgeserve.engine.restorer import Restorer
from edgeserve.engine.scheduled_rows import SchedulerOutput
from edgeserve.engine.scheduler import Scheduler
from edgeserve.engine.sequence import Sequence
from edgeserve.errors import OutOfBlocksError
from edgeserve.types import SamplingDefaults, SamplingParams

BLOCK = 4


class RowsBound:
    """A step of at most `max_rows`."""

    def __init__(self, max_rows: int) -> None:
        self.room = max_rows

    def begin(self, decodes: Iterable[tuple[int, int]]) -> None:
        self.room -= sum(num_rows for _, num_rows in decodes)

    def take(self, first_position: int, wanted: int, least: int = 0) -> int:
        assert first_position >= 0
        num_rows = min(wanted, max(self.room, least))
        self.room -= num_rows
        return num_rows


class Bench:
    """A scheduler whose every step is checked and then pretended to have been computed."""

    def __init__(
        self,
        *,
        blocks: int = 100,
        batched: int = 16,
        seqs: int = 8,
        sharing: bool = False,
        headroom: float = 0.0,
    ) -> None:
        index = PrefixIndex(b"", BLOCK) if sharing else None
        self.cache = KVCache(windows=[None, 6], num_blocks=blocks, block_size=BLOCK, index=index)
        self.budget, self.seqs = batched, seqs
        self.scheduler = Scheduler(
            self.cache,
            max_num_batched_tokens=batched,
            max_num_seqs=seqs,
            headroom=Headroom(headroom),
        )
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

    def add(
        self, name: str, prompt: int, output: int = 1, *, scored: bool = False, priority: int = 0
    ) -> Sequence:
        sequence = self.sequence(name, prompt, output, scored=scored)
        sequence.priority = priority
        self.scheduler.add(sequence)
        self.live.append(sequence)
        return sequence

    def step(self, max_rows: int | None = None) -> SchedulerOutput:
        bound = None if max_rows is None else RowsBound(max_rows)
        output = self.scheduler.schedule(bound)
        self._check(output)
        for rows in output.rows:
            sequence = rows.sequence
            self.scheduler.advance(sequence, rows.num_tokens)
            if sequence.num_computed_tokens < len(sequence.token_ids):
                continue
            sequence.num_scored_tokens = sequence.num_prompt_tokens
            sequence.token_ids.append(0)
            if sequence.num_output_tokens == sequence.max_tokens:
                sequence.finish_reason = "length"
                self.scheduler.remove(sequence)
                self.live.remove(sequence)
                self.ended.append(sequence.request_id)
        self.scheduler.check()
        return output

    def _check(self, output: SchedulerOutput) -> None:
        self.scheduler.check()
        assert output.num_rows <= self.budget
        assert self.scheduler.num_running <= self.seqs
        sequences = [rows.sequence for rows in output.rows]
        assert len(set(map(id, sequences))) == len(sequences)
        for rows in output.rows:
            assert rows.num_tokens >= 1
            assert 0 <= rows.num_logits_rows <= rows.num_tokens
            end = rows.sequence.num_computed_tokens + rows.num_tokens
            assert end <= len(rows.sequence.token_ids)
            assert all(len(table) * BLOCK >= end for table in rows.sequence.block_tables.groups)

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


def test_short_prompts_overtake_a_long_one_in_every_other_step() -> None:
    bench = Bench(batched=16)
    bench.add("long", 200)
    assert shares(bench.step()) == [("long", 16, 0)]
    for name in ("short", "middle", "tail"):
        bench.add(name, {"short": 4, "middle": 40, "tail": 5}[name])
    assert shares(bench.step()) == [("short", 4, 1), ("tail", 5, 1), ("middle", 7, 0)]
    assert shares(bench.step()) == [("long", 16, 0)]
    assert shares(bench.step()) == [("middle", 16, 0)]
    assert shares(bench.step()) == [("long", 16, 0)]


def test_a_stream_of_short_prompts_cannot_starve_a_long_one() -> None:
    bench = Bench(batched=16)
    bench.add("long", 64)
    for number in range(8):
        bench.add(f"short {number}", 16)
        bench.step()
    assert "long" in bench.ended


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
    assert b.block_tables == BlockTables.empty(2)
    assert (b.num_computed_tokens, b.num_output_tokens > 0) == (0, True)
    bench.run()
    assert bench.ended == ["a", "b", "c"]


def test_who_starts_leaves_room_for_the_answers_of_those_before_it() -> None:
    bench = Bench(blocks=6, headroom=3.0)
    a, b = bench.add("a", 4, 8), bench.add("b", 4, 8)  # three blocks each, in the end
    c = bench.add("c", 4, 8)
    bench.step()
    assert bench.scheduler.num_running == 2
    bench.run()
    assert bench.ended == ["a", "b", "c"]
    assert [s.num_preemptions for s in (a, b, c)] == [0, 0, 0]


def test_how_much_room_is_left_is_learned_from_answers() -> None:
    def num_running(output: int) -> int:
        """Of eight that may say a hundred tokens, after a hundred that said so many."""
        bench = Bench(blocks=70, batched=128, headroom=3.0)
        for n in range(100):
            bench.add(str(n), 4, output)
            bench.run()
        for n in range(8):
            bench.add(f"of eight {n}", 16, 100)
        bench.step()
        return bench.scheduler.num_running

    assert [num_running(output) for output in (1, 60, 90)] == [8, 6, 2]


def test_room_is_not_kept_for_those_that_matter_less() -> None:
    bench = Bench(blocks=10, headroom=3.0)
    bench.add("patient", 4, 32, priority=5)
    bench.step()
    bench.add("urgent", 4, 32)
    bench.step()
    assert bench.scheduler.num_running == 2
    bench.run()
    assert bench.ended == ["urgent", "patient"]


def crowd(headroom: float) -> tuple[int, int]:
    """Sequences preempted and rows computed until 150 of 16 clients' answers have ended."""
    bench = Bench(blocks=50, batched=64, seqs=16, headroom=headroom)
    lengths = Random(1)
    rows = preempted = added = 0
    while len(bench.ended) < 150:
        while len(bench.live) < 16:
            added += 1
            bench.add(str(added), lengths.randint(2, 20), lengths.randint(4, 40))
        output = bench.step()
        rows, preempted = rows + output.num_rows, preempted + output.num_preempted
    return preempted, rows


def test_with_room_for_growth_little_is_preempted_and_computed_twice() -> None:
    without, rows_without = crowd(0.0)
    preempted, rows = crowd(3.0)
    assert preempted < without / 5
    assert rows < 0.8 * rows_without


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
        assert sequence.block_tables == BlockTables.empty(2)
        bench.scheduler.check()
    assert bench.cache.occupancy() == 0.0
    bench.scheduler.remove(decoding)  # once more changes nothing
    assert bench.step().rows == ()


# --- sequences that share ------------------------------------------------------------------------


def test_prompt_that_begins_like_one_being_computed_waits_for_it_and_shares() -> None:
    bench = Bench(batched=8, sharing=True)
    bench.add("a", 20, 3)
    late = bench.add("late", 20, 3)
    other = bench.add("other", 1, 1)
    other.token_ids[0] = 7
    assert shares(bench.step()) == [("other", 1, 1), ("a", 7, 0)]
    assert (bench.scheduler.num_running, bench.scheduler.num_waiting) == (1, 1)
    assert shares(bench.step()) == [("a", 8, 0)]
    assert shares(bench.step()) == [("a", 5, 1)]
    # Four of the five blocks are there; the last token must be computed again, so its block too.
    assert shares(bench.step()) == [("a", 1, 1), ("late", 4, 1)]
    assert late.num_cached_tokens == 16
    bench.run()


def test_prompt_is_not_awaited_once_whoever_computes_it_is_gone() -> None:
    bench = Bench(batched=8, sharing=True)
    leader = bench.add("leader", 40)
    bench.add("late", 40)
    bench.step()
    bench.step()
    bench.scheduler.remove(leader)
    bench.live.remove(leader)
    # What the leader had computed is found all the same.
    assert shares(bench.step()) == [("late", 8, 0)]
    assert bench.live[0].num_cached_tokens == 16
    bench.run()


def test_prompt_whose_scores_are_wanted_is_computed_whole() -> None:
    bench = Bench(batched=64, sharing=True)
    bench.add("a", 20)
    bench.run()
    bench.add("scored", 20, scored=True)
    bench.add("plain", 20)
    assert sorted(shares(bench.step())) == [("plain", 4, 1), ("scored", 20, 20)]


def test_choices_share_their_prompt_and_copy_what_they_write() -> None:
    bench = Bench(batched=64, sharing=True)
    first = bench.add("r", 10, 4)
    fork = bench.sequence("fork", 10, 4)
    fork.forks = first
    bench.scheduler.add(fork)
    bench.live.append(fork)
    assert shares(bench.step()) == [("r", 10, 1)]
    assert shares(bench.step()) == [("r", 1, 1), ("fork", 1, 1)]
    full, fork_full = first.block_tables.groups[0], fork.block_tables.groups[0]
    assert full[:2] == fork_full[:2]
    assert full[2] != fork_full[2]
    assert bench.cache.pending_copies[0] == [(full[2], fork_full[2])]
    assert bench.cache.counts.copied == 2  # one in each group
    bench.run()


def test_choice_of_a_one_token_prompt_takes_up_its_own_blocks_when_it_was_preempted() -> None:
    bench = Bench(batched=64, sharing=True)
    first = bench.add("r", 1, 30)
    fork = bench.sequence("fork", 1, 30)
    fork.forks = first
    bench.scheduler.add(fork)
    bench.live.append(fork)
    for _ in range(6):
        bench.step()
    bench.scheduler._running.remove(fork)  # pyright: ignore[reportPrivateUsage]
    bench.scheduler._preempt(fork)  # pyright: ignore[reportPrivateUsage]
    bench.step()
    bench.run()


def test_preempted_sequence_takes_up_what_is_left_of_its_blocks() -> None:
    bench = Bench(blocks=10, batched=64, sharing=True)
    bench.add("a", 16, 20)
    b = bench.sequence("b", 17, 4)
    b.token_ids[0] = 1
    bench.scheduler.add(b)
    bench.live.append(b)
    while b.num_output_tokens < 2:
        bench.step()
    bench.scheduler._preempt(bench.scheduler._running.pop())  # pyright: ignore[reportPrivateUsage]
    assert (b.num_computed_tokens, b.block_tables) == (0, BlockTables.empty(2))
    assert shares(bench.step()) == [("a", 1, 1), ("b", 3, 1)]
    assert bench.cache.counts.hit == 4 + 2  # four full blocks, and the two that the window shows
    assert b.num_cached_tokens == 0  # it had computed them itself
    bench.run()


def test_sequence_without_room_is_looked_up_again_only_when_there_may_be_some() -> None:
    bench = Bench(blocks=8, batched=64, sharing=True)
    bench.add("a", 20, 9)
    waiting = bench.sequence("waiting", 20, 9)
    waiting.token_ids[:] = range(20)
    bench.scheduler.add(waiting)
    bench.live.append(waiting)
    calls: list[int] = []
    adopt = bench.cache.adopt
    bench.cache.adopt = lambda *args: (calls.append(1), adopt(*args))[1]  # type: ignore[method-assign]
    for _ in range(8):
        bench.step()
    assert bench.live[-1] is waiting
    assert len(calls) == 2  # a's, and one try of the other's
    bench.run()


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
    bench = Bench(
        blocks=blocks,
        batched=batched,
        seqs=seqs,
        sharing=data.draw(st.booleans()),
        headroom=data.draw(st.sampled_from([0.0, 0.5, 3.0])),
    )
    for n, (pause, prompt, output, scored) in enumerate(wanted):
        added = bench.add(str(n), prompt, output, scored=scored)
        added.token_ids[prompt // 2 :] = [n % 3] * (prompt - prompt // 2)
        if n and data.draw(st.booleans()):
            # Another choice of the request before, whatever has become of that.
            added.token_ids[:] = [7] * prompt
            fork = bench.add(f"{n} again", prompt, output)
            fork.token_ids[:] = added.token_ids
            fork.forks = added
        for _ in range(pause):
            bench.step(data.draw(st.sampled_from([None, 1, 3])))
        if bench.live and data.draw(st.integers(0, 5)) == 0:
            gone = data.draw(st.sampled_from(bench.live))
            gone.finish_reason = "abort"
            bench.scheduler.remove(gone)
            bench.live.remove(gone)
            bench.scheduler.check()
    bench.run()


# --- priorities ----------------------------------------------------------------------------------


def test_lower_priority_goes_first_and_arrival_decides_among_equals() -> None:
    bench = Bench(seqs=1)
    for name, priority in [("a", 0), ("b", 1), ("c", 0), ("d", -1)]:
        bench.add(name, 2, priority=priority)
    bench.run()
    assert bench.ended == ["d", "a", "c", "b"]


def test_what_matters_less_gives_way_when_blocks_run_out_though_it_came_first() -> None:
    bench = Bench(blocks=4, seqs=2)
    patient = bench.add("patient", 4, 8, priority=5)
    bench.step()
    urgent = bench.add("urgent", 4, 8)
    bench.run()
    assert patient.num_preemptions > 0
    assert urgent.num_preemptions == 0
    assert bench.ended == ["urgent", "patient"]


def test_a_stream_of_urgent_ones_cannot_starve_what_waits() -> None:
    bench = Bench(seqs=1)
    bench.add("patient", 2, 1, priority=1)
    for n in range(200):
        bench.add(f"urgent {n}", 2, 1)
        bench.step()
        if "patient" in bench.ended:
            break
    assert len(bench.ended) == 64  # the 63 that came after it and one that ran


class FickleRestorer:
    """Says each time it is asked what comes next of `answers`, and then that nothing is read."""

    def __init__(self, cache: KVCache, held: int, answers: Iterator[bool]) -> None:
        self._cache, self._answers = cache, answers
        self.tables = [cache.new_tables()] if held else []
        for tables in self.tables:
            assert cache.extend(tables, 0, held * BLOCK)

    def awaits(self, _sequence: Sequence) -> bool:
        return next(self._answers, False)

    def started(self, _sequence: Sequence) -> None: ...

    def forget(self, _sequence: Sequence) -> None: ...

    def give_way(self) -> bool:
        released = [self._cache.release(tables) for tables in self.tables]
        self.tables = []
        return bool(released)


@pytest.mark.parametrize("answers", [[True], [True, True], [True, False, True], []])
@pytest.mark.parametrize("held", [0, 3])
def test_what_was_read_for_others_or_in_vain_keeps_nobody_from_starting(
    answers: list[bool], held: int
) -> None:
    bench = Bench(blocks=4, sharing=True)
    bench.scheduler = Scheduler(
        bench.cache,
        max_num_batched_tokens=16,
        max_num_seqs=8,
        restorer=cast(Restorer, FickleRestorer(bench.cache, held, iter(answers))),
    )
    bench.add("a", 15)
    steps = [bench.step() for _ in range(3)]
    assert [output.unable for output in steps] == [None] * 3
    assert bench.ended == ["a"]
