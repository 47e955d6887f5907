"""Which rows the next step computes: decodes first, then prompts, within the token budget.

First come, first served, but that a lower priority goes ahead of at most 64 that came before. Who
starts leaves room for the answers of those before it to grow (headroom.py). When blocks run out all
the same, the running sequence that is last in this order gives its own back and is computed again
later: its tokens stay, so its answer does too. A prompt that begins like one
which is being computed waits for that one's blocks, and then shares them. Prompts take turns: in
every other step the shortest goes first, so that a short chat need not wait for a long one's end.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Protocol

from edgeserve.cache.kv_cache import KVCache
from edgeserve.engine.accounting import EngineLoad
from edgeserve.engine.headroom import Headroom
from edgeserve.engine.restorer import Restorer
from edgeserve.engine.scheduled_rows import ScheduledRows, SchedulerOutput, scheduled_rows
from edgeserve.engine.sequence import Sequence
from edgeserve.errors import OutOfBlocksError

_LEAST_ALONE = 32
"""Rows of a prompt that nobody decodes beside, however slow steps have been: fewer would read the
weights again and again for little."""
_CHUNK_SHARE = 4
"""The part of a prompt's chunk, a quarter, that drafts of those who decode beside it may take."""
PRIORITY_STEP = 64
"""Places in the queue that one step of priority is worth: it moves ahead, and starves nobody."""


class StepBound(Protocol):
    """What bounds a step further than the token budget does: engine/time_bound.py."""

    def begin(self, decodes: Iterable[tuple[int, int]]) -> None:
        """A step with these decodes, (first position, rows) each, whatever they take."""
        ...

    def take(self, first_position: int, wanted: int, least: int = 0) -> int:
        """How many of `wanted` rows of a prompt are let in; `least` always are."""
        ...


class Scheduler:
    """Owns every live sequence. Budgets are tokens a step, and sequences at once."""

    def __init__(
        self,
        cache: KVCache,
        *,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        restorer: Restorer | None = None,
        headroom: Headroom | None = None,
    ) -> None:
        self._cache = cache
        self._restorer = restorer
        self._max_num_batched_tokens = max_num_batched_tokens
        # With a row a step for everyone who runs, a prompt always moves, and nobody starves.
        self._max_num_seqs = min(max_num_seqs, max_num_batched_tokens)
        self._headroom = Headroom() if headroom is None else headroom
        self._places = count()
        # Both in the order of their ranks.
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        # Hashes of full blocks that a running sequence has yet to compute, and by which.
        self._coming: dict[bytes, Sequence] = {}
        # Whether the next step that finds several prompts begins with the shortest.
        self._shortest_next = True
        # The first in the queue that found no room, and how many blocks it takes until it does.
        self._stuck: tuple[Sequence, list[int]] | None = None

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def load(self) -> EngineLoad:
        """How busy it is right now. For any thread."""
        return EngineLoad(self.num_running, self.num_waiting, self._cache.occupancy())

    def require_blocks(self, num_tokens: int) -> None:
        """Raises OutOfBlocksError if the whole pool could not hold a sequence of this length."""
        needed = self._cache.blocks_for(num_tokens)
        if needed > self._cache.num_blocks:
            raise OutOfBlocksError(needed, self._cache.num_blocks)

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence. Raises OutOfBlocksError if the whole pool could not hold it."""
        self.require_blocks(sequence.num_prompt_tokens + sequence.max_tokens)
        sequence.rank = next(self._places) + PRIORITY_STEP * sequence.priority
        insort(self._waiting, sequence, key=_rank)

    def remove(self, sequence: Sequence) -> None:
        """Forgets a sequence that is finished or no longer wanted, and frees its blocks."""
        if self._restorer is not None:
            self._restorer.forget(sequence)
        if sequence in self._running:
            self._running.remove(sequence)
            self._headroom.learn(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        self._release(sequence)

    def schedule(self, bound: StepBound | None = None) -> SchedulerOutput:
        """The next step's rows; every sequence's blocks for them are taken already.

        `bound` holds prompts back, but one always goes on; decodes it never does.
        """
        num_preempted = self._admit_and_make_room()
        budget = self._max_num_batched_tokens
        decodes = [s for s in self._running if s.num_uncomputed_tokens == 1][:budget]
        rows = [
            ScheduledRows(s, 1, 1) if s.pooler is None else scheduled_rows(s, 1) for s in decodes
        ]
        if bound is not None:
            bound.begin((sequence.num_computed_tokens, 1) for sequence in decodes)
        budget -= len(decodes)
        least = 1 if decodes else _LEAST_ALONE
        for sequence in self._prompts():
            num_tokens = min(sequence.num_uncomputed_tokens, budget)
            if num_tokens <= 0:
                break
            if bound is not None:
                num_tokens = bound.take(sequence.num_computed_tokens, num_tokens, least)
                if num_tokens == 0:
                    break
            least = 0
            rows.append(scheduled_rows(sequence, num_tokens))
            budget -= rows[-1].num_tokens
        unable = None if self._running or num_preempted else self._unable
        return SchedulerOutput(tuple(rows), len(decodes), num_preempted, unable)

    def _prompts(self) -> list[Sequence]:
        """Those who have more than a decode to compute, in the order in which they may."""
        prompts = [s for s in self._running if s.num_uncomputed_tokens > 1]
        if len(prompts) > 1:
            if self._shortest_next:
                prompts.sort(key=lambda s: (s.priority, s.num_uncomputed_tokens))
            self._shortest_next = not self._shortest_next
        return prompts

    def room_for_drafts(self, output: SchedulerOutput) -> int:
        """How many rows they may have. Beside prompts a share of a chunk that is not a prompt's
        last: first tokens wait for none of them."""
        if all(rows.sequence.is_decoding for rows in output.rows):
            return self._max_num_batched_tokens - output.num_rows
        return 0 if output.chunk is None else output.chunk.num_tokens // _CHUNK_SHARE

    def add_drafts(
        self, output: SchedulerOutput, drafts: Mapping[Sequence, tuple[int, ...]]
    ) -> SchedulerOutput:
        """The step's rows with drafts behind those sequences' rows. They take what there is room
        for and the pool leaves: a draft is cut short where either ends, and nobody gives way for
        one. A prompt's chunk gets shorter by as many rows, so that the step takes as long.
        """
        whole = room = self.room_for_drafts(output)
        found: list[ScheduledRows] = []
        for rows in output.rows:
            if rows is output.chunk:  # behind all decodes
                found.append(scheduled_rows(rows.sequence, rows.num_tokens - (whole - room)))
                continue
            draft = drafts.get(rows.sequence, ())[:room]
            draft = draft[: self._take_for_draft(rows.sequence, len(draft))]
            room -= len(draft)
            num_logits_rows = rows.num_logits_rows + len(draft)
            longer = replace(rows, draft=draft, num_logits_rows=num_logits_rows) if draft else rows
            found.append(longer)
        return replace(output, rows=tuple(found))

    def drop_draft(self, sequence: Sequence) -> None:
        """Gives back blocks that only a draft needed, so that nobody is preempted for them."""
        self._cache.trim(sequence.block_tables, len(sequence.token_ids))

    def advance(self, sequence: Sequence, num_tokens: int) -> None:
        """So many more tokens of a sequence are computed: others may find their blocks."""
        tables, hashes = sequence.block_tables, sequence.prefix_hashes
        sequence.num_computed_tokens += num_tokens
        first = tables.num_indexed
        self._cache.index_computed(tables, hashes, sequence.token_ids, sequence.num_computed_tokens)
        if tables.num_indexed > first:
            self._came(sequence, hashes[first + 1 : tables.num_indexed + 1])
        self._cache.leave_behind(tables, sequence.num_computed_tokens)

    def check(self) -> None:
        """Raises AssertionError unless the block accounting is exact."""
        live = [*self._running, *self._waiting]
        beside = [] if self._restorer is None else self._restorer.tables
        self._cache.check([*(sequence.block_tables for sequence in live), *beside])
        assert set(self._coming.values()) <= set(self._running), "nobody computes what is awaited"

    def _admit_and_make_room(self) -> int:
        """Grows running sequences' tables to hold all their tokens, in order; then admits."""
        num_preempted = 0
        index = 0
        while index < len(self._running):
            sequence = self._running[index]
            if self._extend(sequence):
                index += 1
            else:
                self._preempt(self._running.pop())
                num_preempted += 1
        if num_preempted == 0:
            self._admit()
            if self._waiting and not self._running and not self._reads(self._waiting[0]):
                self._admit_alone()
        return num_preempted

    def _admit_alone(self) -> None:
        """With nobody running the first in the queue must start, if ever it can: what it read may
        have come, or failed to, since it was asked; and nothing may be kept for others."""
        self._stuck = None
        if self._restorer is not None:
            self._restorer.give_way()
        self._admit()

    @property
    def _unable(self) -> Sequence | None:
        """With nobody running: the first in the queue, if there was no room for it even so."""
        stuck = None if self._stuck is None else self._stuck[0]
        return stuck if self._waiting and stuck is self._waiting[0] else None

    def _admit(self) -> None:
        """In order, but past those that await another's blocks: their place is kept."""
        at = 0
        while at < len(self._waiting) and len(self._running) + at < self._max_num_seqs:
            sequence = self._waiting[at]
            if self._is_stuck(sequence):
                return
            if self._awaits(sequence):
                at += 1
            elif self._start(sequence):
                del self._waiting[at]
                insort(self._running, sequence, key=_rank)
            else:
                return

    def _start(self, sequence: Sequence) -> bool:
        """Takes the blocks of all its tokens, those that exist already first."""
        self._release(sequence)  # of a start that Ctrl-C cut short
        tables, first = sequence.block_tables, sequence.forks
        shared = 0
        # Of a prompt of one token there is nothing to share, as the last is computed again.
        if first is not None and 1 < first.num_prompt_tokens <= first.num_computed_tokens:
            shared = first.num_prompt_tokens - 1 if self._forked(first, sequence) else 0
        if shared == 0 and not sequence.needs_every_row:
            shared = self._cache.adopt(tables, sequence.prefix_hashes, sequence.token_ids)
        sequence.num_computed_tokens = shared
        if self._restorer is not None:
            self._restorer.started(sequence)
        if not (self._leaves_room(sequence) and self._extend(sequence)):
            self._give_up(sequence)
            return False
        if sequence.num_preemptions == 0:
            sequence.num_cached_tokens = shared
        for block_hash in sequence.prefix_hashes[tables.num_indexed + 1 :]:
            self._coming.setdefault(block_hash, sequence)
        return True

    def _leaves_room(self, sequence: Sequence) -> bool:
        """Whether those before it, and itself, can grow if it starts. Alone it always does."""
        reserve = self._reserve(sequence)
        if reserve == 0:
            return True
        first, end = sequence.num_computed_tokens, len(sequence.token_ids)
        missing = self._cache.missing(sequence.block_tables, first, end)
        return self._cache.make_room([n + reserve for n in missing])

    def _reserve(self, sequence: Sequence) -> int:
        """Blocks of each group that have to stay free beside what it takes."""
        before = [s for s in self._running if s.rank < sequence.rank]
        if not before:
            return 0
        return self._cache.blocks_for(self._headroom.tokens([*before, sequence]))

    def _give_up(self, sequence: Sequence) -> None:
        """Lets go of what was shared, and notes how many blocks must be there for another try."""
        first, end = sequence.num_computed_tokens, len(sequence.token_ids)
        missing = self._cache.missing(sequence.block_tables, first, end)
        before = self._cache.num_available()
        self._release(sequence)
        after = self._cache.num_available()
        needed = [n + b - a for n, a, b in zip(missing, before, after, strict=True)]
        self._stuck = sequence, needed

    def _forked(self, first: Sequence, sequence: Sequence) -> bool:
        return (
            self._cache.shares
            and first.finish_reason is None
            and self._cache.fork(first.block_tables, sequence.block_tables, first.num_prompt_tokens)
        )

    def _is_stuck(self, sequence: Sequence) -> bool:
        """Whether it lacked room and still does: its prefix need not be looked up to know."""
        if self._stuck is None or self._stuck[0] is not sequence:
            return False
        reserve, available = self._reserve(sequence), self._cache.num_available()
        return any(n + reserve > room for n, room in zip(self._stuck[1], available, strict=True))

    def _awaits(self, sequence: Sequence) -> bool:
        """Whether blocks that it can use are about to be computed by another, or read."""
        if not self._cache.shares or sequence.needs_every_row:
            return False
        if sequence.waits_for_prompt or sequence.awaited in self._coming:
            return True
        self._cache.hash_prefix(sequence.prefix_hashes, sequence.token_ids)
        # Its last token it computes itself, and so the block that ends with that.
        usable = sequence.prefix_hashes[: self._cache.blocks_for(len(sequence.token_ids))]
        sequence.awaited = next((h for h in reversed(usable) if h in self._coming), None)
        return sequence.awaited is not None or self._reads(sequence)

    def _reads(self, sequence: Sequence) -> bool:
        """Whether it waits for blocks from disk."""
        if self._restorer is None or sequence.needs_every_row:
            return False
        if not self._restorer.awaits(sequence):
            return False
        self._stuck = None  # what is read for it takes of the room that it needs
        return True

    def _extend(self, sequence: Sequence) -> bool:
        tables, first = sequence.block_tables, sequence.num_computed_tokens
        extended = self._cache.extend(tables, first, len(sequence.token_ids))
        if not extended and self._restorer is not None and self._restorer.give_way():
            return self._cache.extend(tables, first, len(sequence.token_ids))
        return extended

    def _take_for_draft(self, sequence: Sequence, wanted: int) -> int:
        """For how many tokens, up to so many, there are blocks; those are taken."""
        tables, first = sequence.block_tables, sequence.num_computed_tokens
        num_tokens = len(sequence.token_ids)
        while wanted > 0 and not self._cache.extend(tables, first, num_tokens + wanted):
            wanted = self._cache.with_a_block_less(num_tokens + wanted) - num_tokens
        return max(0, wanted)

    def _preempt(self, sequence: Sequence) -> None:
        self._release(sequence)
        sequence.num_preemptions += 1
        insort(self._waiting, sequence, key=_rank)

    def _release(self, sequence: Sequence) -> None:
        self._came(sequence, sequence.prefix_hashes[sequence.block_tables.num_indexed + 1 :])
        self._cache.release(sequence.block_tables)
        sequence.num_computed_tokens = 0

    def _came(self, sequence: Sequence, hashes: Iterable[bytes]) -> None:
        """Nobody awaits these of it any more: they are there, or will not be."""
        for block_hash in hashes:
            if self._coming.get(block_hash) is sequence:
                del self._coming[block_hash]


def _rank(sequence: Sequence) -> int:
    return sequence.rank
