"""Block tables of sequences, and which blocks they share. One table and one pool a cache group.

A block is written only while one table holds it and the index does not: otherwise it is copied
first. `pending_copies` says for each group which blocks, (source, destination), before the next
step; whoever has the bytes copies and clears them.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from edgeserve.cache.block_pool import BlockPool
from edgeserve.cache.block_tables import BlockTables, table_of
from edgeserve.cache.prefix_index import PrefixIndex
from edgeserve.frozen import frozen

Found = list[dict[int, int]]
"""For each cache group, the block ids of some block numbers of a prefix."""

_STORED = -1
"""Stands for the id of a block that is not in memory."""

_BEHIND = 0
"""What a table says where a block is no longer held: any id will do, as nothing reads there."""


_TRIES_BETWEEN = 64
"""So often a pool without memory evicts before it asks again: asking reads the system's files."""


@dataclass(slots=True)
class CacheCounts:
    """What happened so far, in blocks over all groups. `restored` from disk, they are hits next."""

    hit: int = 0
    restored: int = 0
    forked: int = 0
    copied: int = 0
    behind: int = 0
    evicted: int = 0


@frozen
class Growth:
    """Pools begin with `slab_blocks` blocks and grow by as many at a time, while `may_grow` allows
    what that takes of memory; it is asked with the cache group and a number of blocks."""

    slab_blocks: int
    may_grow: Callable[[int, int], bool]


class KVCache:
    """One pool of up to `num_blocks` blocks for each cache group. `windows[g]` is how far back a
    row of group g looks, itself included, or None for all the way. Without an index nothing is
    shared, and without `growth` the pools have all their blocks from the beginning.
    """

    def __init__(
        self,
        *,
        windows: Sequence[int | None],
        num_blocks: int,
        block_size: int,
        index: PrefixIndex | None = None,
        growth: Growth | None = None,
    ) -> None:
        self._windows = tuple(windows)
        self._windowed = [group for group, window in enumerate(windows) if window is not None]
        self._block_size = block_size
        self._num_blocks = num_blocks
        self._index = index
        self._counts = CacheCounts()
        self._growth = growth
        self._refused = [0] * len(self._windows)
        usable = None if growth is None else growth.slab_blocks
        self._pools = [
            BlockPool(num_blocks, partial(self._forget, group), usable)
            for group in range(len(self._windows))
        ]
        self.pending_copies: list[list[tuple[int, int]]] = [[] for _ in self._windows]
        # Where somebody saves blocks: (group, hash, hash before) of those that are new here.
        self.unsaved: deque[tuple[int, bytes, bytes]] | None = None

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def shares(self) -> bool:
        """Whether sequences may share blocks at all."""
        return self._index is not None

    @property
    def counts(self) -> CacheCounts:
        self._counts.evicted = sum(pool.num_evicted for pool in self._pools)
        return self._counts

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` positions."""
        return -(-num_tokens // self._block_size)

    def with_a_block_less(self, num_tokens: int) -> int:
        """The most positions that need a block less than `num_tokens` do."""
        return (num_tokens - 1) // self._block_size * self._block_size

    def new_tables(self) -> BlockTables:
        return BlockTables.empty(len(self._pools))

    def num_available(self) -> list[int]:
        """Blocks that each group's pool could still give."""
        return [pool.num_available for pool in self._pools]

    def hash_prefix(self, hashes: list[bytes], token_ids: Sequence[int]) -> None:
        """Appends what `hashes` lacks for the full blocks of a sequence; see PrefixIndex."""
        if self._index is not None:
            if not hashes:
                hashes.append(self._index.root())
            self._index.extend(hashes, token_ids)

    def adopt(self, tables: BlockTables, hashes: Sequence[bytes], token_ids: Sequence[int]) -> int:
        """Fills empty tables with the longest prefix that can be found; its number of tokens.

        At least the last token is left to compute: somebody wants its logits.
        """
        length, found = self.find(hashes, token_ids)
        if length == 0:
            return 0
        for group, pool in enumerate(self._pools):
            behind = self._num_behind(group, length * self._block_size)
            held = [found[group][block] for block in range(behind, length)]
            pool.hold(held)
            tables.groups[group] = table_of([_BEHIND] * behind + held)
            tables.num_behind[group] = behind
            self._counts.hit += len(held)
        tables.num_indexed = length
        return length * self._block_size

    def fork(self, source: BlockTables, tables: BlockTables, num_tokens: int) -> bool:
        """Makes empty tables share the source's first `num_tokens` positions, the last of which
        will be computed again. False, and nothing done, if the source let go of what that needs.
        """
        behind = [self._num_behind(group, num_tokens - 1) for group in range(len(self._pools))]
        if any(gone > allowed for gone, allowed in zip(source.num_behind, behind, strict=True)):
            return False
        num_blocks = self.blocks_for(num_tokens)
        for group, pool in enumerate(self._pools):
            gone = source.num_behind[group]
            shared = source.groups[group][gone:num_blocks]
            pool.hold(shared)
            tables.groups[group] = table_of([_BEHIND]) * gone + shared
            tables.num_behind[group] = gone
            self._counts.forked += len(shared)
        tables.num_indexed = (num_tokens - 1) // self._block_size
        return True

    def extend(self, tables: BlockTables, first: int, num_tokens: int) -> bool:
        """Grows tables to hold `num_tokens` positions, those from `first` on writable.

        False, and nothing taken, without room.
        """
        writes = first // self._block_size
        if self._is_writable(tables, writes, num_tokens):
            return True  # as of fifteen decodes in sixteen
        missing = self.missing(tables, first, num_tokens)
        if not any(missing):
            return True
        if not self.make_room(missing):
            return False
        for group, (table, n, pool) in enumerate(
            zip(tables.groups, missing, self._pools, strict=True)
        ):
            if self._must_copy(group, table, writes):
                self._copy_on_write(group, table, writes)
                n -= 1
            table.extend(pool.take(n))
        return True

    def make_room(self, counts: Sequence[int]) -> bool:
        """Whether each group's pool could give so many blocks; it grows for that if it may."""
        return all(self._grown(group, count) for group, count in enumerate(counts))

    def missing(self, tables: BlockTables, first: int, num_tokens: int) -> list[int]:
        """Blocks of each group that `extend` would take."""
        wanted, writes = self.blocks_for(num_tokens), first // self._block_size
        return [
            max(0, wanted - len(table)) + self._must_copy(group, table, writes)
            for group, table in enumerate(tables.groups)
        ]

    def index_computed(
        self,
        tables: BlockTables,
        hashes: list[bytes],
        token_ids: Sequence[int],
        num_computed: int,
    ) -> None:
        """The first `num_computed` positions are stored now: full blocks of them can be found."""
        full = num_computed // self._block_size
        if self._index is None or full <= tables.num_indexed:
            return
        self.hash_prefix(hashes, token_ids)
        for block in range(tables.num_indexed, full):
            for group, table in enumerate(tables.groups):
                if block < tables.num_behind[group] or self._index.has(group, hashes[block + 1]):
                    continue
                # Kept first: an entry whose block the pool would give away could go stale.
                self._pools[group].keep(table[block])
                self._index.add(group, hashes, token_ids, block, table[block])
                if self.unsaved is not None:
                    self.unsaved.append((group, hashes[block + 1], hashes[block]))
        tables.num_indexed = full

    def leave_behind(self, tables: BlockTables, num_computed: int) -> None:
        """Gives back blocks that no row will see any more, also if the last one is computed again,
        as a fork does."""
        for group in self._windowed:
            first = tables.num_behind[group]
            end = self._num_behind(group, num_computed - 1)
            if end > first:
                gone = tables.groups[group][first:end]
                tables.groups[group][first:end] = table_of([_BEHIND]) * (end - first)
                tables.num_behind[group] = end
                self._pools[group].give_back(gone)
                self._counts.behind += len(gone)

    def trim(self, tables: BlockTables, num_tokens: int) -> None:
        """Gives back blocks past those that hold `num_tokens` positions."""
        end = self.blocks_for(num_tokens)
        for table, pool in zip(tables.groups, self._pools, strict=True):
            if len(table) > end:
                beyond = table[end:]
                del table[end:]
                pool.give_back(beyond)

    def release(self, tables: BlockTables) -> None:
        """Gives a sequence's blocks back, the last first: a prefix outlives what continues it."""
        for group, pool in enumerate(self._pools):
            held = tables.held(group)
            tables.groups[group] = table_of(())
            tables.num_behind[group] = 0
            pool.give_back(reversed(held))
        tables.num_indexed = 0

    def occupancy(self) -> float:
        """The fullest pool's held share, 0 to 1."""
        if not self._pools or self._num_blocks == 0:
            return 0.0
        return max((p.num_usable - p.num_available) / p.num_blocks for p in self._pools)

    def check(self, live_tables: Sequence[BlockTables]) -> None:
        """Raises AssertionError unless each block is held exactly by the live tables that name
        it, and what can be found is what the pools keep."""
        if self._index is not None:
            self._index.check()
        for group, pool in enumerate(self._pools):
            pool.check(self._index.blocks_of(group) if self._index is not None else set())
            counts = [0] * pool.num_blocks
            for tables in live_tables:
                for block in tables.held(group):
                    counts[block] += 1
            assert counts == pool.counts, f"group {group}: tables hold {counts}, not {pool.counts}"

    def _grown(self, group: int, count: int) -> bool:
        """Whether a pool can give `count` blocks. It grows before anything that may be found again
        is evicted, and asks for memory again a while after it was refused."""
        pool, growth = self._pools[group], self._growth
        while growth is not None and count > pool.num_free and pool.num_usable < self._num_blocks:
            if self._refused[group] > 0 and count <= pool.num_available:
                self._refused[group] -= 1
                break
            slab = min(growth.slab_blocks, self._num_blocks - pool.num_usable)
            if not growth.may_grow(group, slab):
                self._refused[group] = _TRIES_BETWEEN
                break
            pool.grow(slab)
        return count <= pool.num_available

    def block_of(self, group: int, block_hash: bytes) -> int | None:
        """The block that is found by a hash. Nobody writes it, until another is taken."""
        return None if self._index is None else self._index.block_of(group, block_hash)

    def begin_restore(
        self,
        hashes: Sequence[bytes],
        token_ids: Sequence[int],
        stored: Callable[[int, bytes], bool],
    ) -> tuple[BlockTables, list[tuple[int, int]]] | None:
        """What a longer prefix than can be found lacks and others have `stored`: (group, block)
        in order. Also tables that hold the rest of it meanwhile. None without any, or room."""
        length, found = self.find(hashes, token_ids, stored)
        tables = self.new_tables()
        lacking: list[tuple[int, int]] = []
        for group, pool in enumerate(self._pools):
            needed = range(self._num_behind(group, length * self._block_size), length)
            ids = {block: found[group][block] for block in needed}
            lacking += [(group, block) for block, block_id in ids.items() if block_id == _STORED]
            tables.groups[group] = table_of(filter(_STORED.__ne__, ids.values()))
            pool.hold(tables.groups[group])
        missing = Counter(group for group, _ in lacking)
        if not lacking or not all(self._grown(group, count) for group, count in missing.items()):
            self.release(tables)
            return None
        return tables, sorted(lacking, key=lambda at: at[1])

    def take_one(self, tables: BlockTables, group: int) -> int | None:
        """One more block for tables to hold; None without room."""
        if not self._grown(group, 1):
            return None
        tables.groups[group].extend(self._pools[group].take(1))
        return tables.groups[group][-1]

    def index_restored(
        self,
        group: int,
        hashes: Sequence[bytes],
        token_ids: Sequence[int],
        block: int,
        block_id: int,
    ) -> None:
        """A held block has got the contents of block number `block` of these tokens."""
        if self._index is not None and not self._index.has(group, hashes[block + 1]):
            self._pools[group].keep(block_id)
            self._index.add(group, hashes, token_ids, block, block_id)
            self._counts.restored += 1
            if self.unsaved is not None:  # in case the rest of its file is damaged
                self.unsaved.append((group, hashes[block + 1], hashes[block]))

    def find(
        self,
        hashes: Sequence[bytes],
        token_ids: Sequence[int],
        stored: Callable[[int, bytes], bool] | None = None,
    ) -> tuple[int, Found]:
        """The most blocks for which every group has what it needs, and those: of a full group
        all, of a window group the ones that the next row sees. What is only `stored` counts too,
        as _STORED. Takes nothing."""
        index, length = self._index, (len(token_ids) - 1) // self._block_size
        found: Found = [{} for _ in self._windows]
        if index is None or not found:
            return 0, found

        def has(group: int, block: int) -> bool:
            if block not in found[group]:
                block_id = index.find(group, hashes, token_ids, block)
                if block_id is None:
                    if stored is None or not stored(group, hashes[block + 1]):
                        return False
                    block_id = _STORED
                found[group][block] = block_id
            return True

        for group, window in enumerate(self._windows):
            if window is None:
                length = next((b for b in range(length) if not has(group, b)), length)
        # A shorter prefix needs other blocks of a window: again, until all have theirs.
        shorter: int | None = length
        while shorter is not None:
            length, shorter = shorter, None
            for group in range(len(self._windows)):
                first = self._num_behind(group, length * self._block_size)
                needed = range(length - 1, first - 1, -1)
                shorter = next((b for b in needed if not has(group, b)), shorter)
                if shorter is not None:
                    break
        return length, found

    def _forget(self, group: int, block_id: int) -> None:
        if self._index is not None:
            self._index.forget(group, block_id)

    def _num_behind(self, group: int, position: int) -> int:
        """Blocks of a group that rows from `position` on cannot see."""
        window = self._windows[group]
        return 0 if window is None else max(0, position - window + 1) // self._block_size

    def _is_writable(self, tables: BlockTables, writes: int, num_tokens: int) -> bool:
        """Whether block number `writes` is the last one needed, there, and the tables' alone."""
        if self.blocks_for(num_tokens) != writes + 1:
            return False
        for table, pool in zip(tables.groups, self._pools, strict=True):
            if len(table) <= writes or not pool.is_writable(table[writes]):
                return False
        return True

    def _must_copy(self, group: int, table: Sequence[int], block: int) -> bool:
        return block < len(table) and not self._pools[group].is_writable(table[block])

    def _copy_on_write(self, group: int, table: array[int], block: int) -> None:
        pool, shared = self._pools[group], table[block]
        (own,) = pool.take(1)
        # Noted first: an interrupt may then leave a copy that nobody needs, never a missing one.
        self.pending_copies[group].append((shared, own))
        table[block] = own
        pool.give_back([shared])
        self._counts.copied += 1
