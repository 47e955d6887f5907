"""Which blocks of a KV pool are free, kept or held. Ids only: no bytes, no C library."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence, Set


class BlockPool:
    """`num_blocks` blocks with reference counts, of which the first few are in use until it grows.

    A block that nobody holds is free, or, when `keep` was called for it, kept: its contents stay
    until no free block is left, and then the one that lies unused longest is taken. `on_evict`
    hears of it before anyone gets the block.
    """

    def __init__(
        self, num_blocks: int, on_evict: Callable[[int], None], num_usable: int | None = None
    ) -> None:
        """`num_usable` of them to begin with; all where it is None."""
        self._num_blocks = num_blocks
        self._num_usable = num_blocks if num_usable is None else min(num_usable, num_blocks)
        self._counts = [0] * num_blocks
        # A stack: what was used last is in the processor's caches, and in memory at all.
        self._free = list(range(self._num_usable - 1, -1, -1))
        self._kept: set[int] = set()
        self._unused: OrderedDict[int, None] = OrderedDict()
        self._on_evict = on_evict
        self.num_evicted = 0

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def num_usable(self) -> int:
        """Those that may be used so far."""
        return self._num_usable

    @property
    def num_free(self) -> int:
        """Blocks to take without anything being evicted."""
        return len(self._free)

    @property
    def num_available(self) -> int:
        """Blocks that `take` can give: those nobody holds."""
        return len(self._free) + len(self._unused)

    @property
    def counts(self) -> Sequence[int]:
        """How many hold each block."""
        return self._counts

    def is_writable(self, block_id: int) -> bool:
        """Whether its only holder may write it: nobody else reads it, now or later."""
        return self._counts[block_id] == 1 and block_id not in self._kept

    def grow(self, count: int) -> None:
        """`count` more blocks may be used, or as many as there are."""
        first = self._num_usable
        self._num_usable = min(first + count, self._num_blocks)
        self._free[:0] = range(self._num_usable - 1, first - 1, -1)

    def take(self, count: int) -> list[int]:
        """`count` blocks for a new holder each. The caller has asked `num_available` first."""
        return [self._take_one() for _ in range(count)]

    def hold(self, block_ids: Iterable[int]) -> None:
        """One more holder for each block; those that lay unused are out of eviction's way."""
        for block_id in block_ids:
            self._unused.pop(block_id, None)
            self._counts[block_id] += 1

    def give_back(self, block_ids: Iterable[int]) -> None:
        """One holder less for each block. Of kept ones, the first given back goes first."""
        for block_id in block_ids:
            if self._counts[block_id] == 0:
                raise KeyError(block_id)
            self._counts[block_id] -= 1
            if self._counts[block_id] > 0:
                continue
            if block_id in self._kept:
                self._unused[block_id] = None
            else:
                self._free.append(block_id)

    def keep(self, block_id: int) -> None:
        """Keeps a held block's contents after its last holder has gone."""
        if self._counts[block_id] == 0:
            raise KeyError(block_id)
        self._kept.add(block_id)

    def check(self, kept: Set[int]) -> None:
        """Raises AssertionError unless every block is free, kept or held, once; and those that
        others take for kept are."""
        free, unused = set(self._free), set(self._unused)
        held = {block for block, count in enumerate(self._counts) if count > 0}
        assert len(free) == len(self._free), "a block is free twice"
        assert not free & unused, "a block is both free and kept"
        assert not (free | unused) & held, "a block is both free and held"
        assert free | unused | held == set(range(self._num_usable)), "a block is lost"
        assert min(self._counts, default=0) >= 0, "a block is held less than not at all"
        assert unused <= self._kept, "a block lies unused for nothing"
        assert self._kept == kept, "a kept block cannot be found, or a found one is not kept"

    def _take_one(self) -> int:
        if self._free:
            block_id = self._free.pop()
        else:
            # Forgotten first: an interrupt in between may cost a hit, and never serves a stale one.
            block_id = next(iter(self._unused))
            self._on_evict(block_id)
            self._kept.discard(block_id)
            self._unused.popitem(last=False)
            self.num_evicted += 1
        self._counts[block_id] = 1
        return block_id
