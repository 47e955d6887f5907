"""Which blocks of a KV pool are free and which are held. Ids only: no bytes, no C library."""

from __future__ import annotations

from collections.abc import Sequence


class BlockPool:
    """`num_blocks` blocks, handed out lowest id first when new, then longest free first."""

    def __init__(self, num_blocks: int) -> None:
        self._free = list(range(num_blocks - 1, -1, -1))
        self._held: set[int] = set()
        self._num_blocks = num_blocks

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """`count` blocks. The caller has asked `num_free` first."""
        taken = [self._free.pop() for _ in range(count)]
        self._held.update(taken)
        return taken

    def give_back(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self._held.remove(block_id)
        self._free[:0] = reversed(block_ids)

    def check(self) -> None:
        """Raises AssertionError unless every block is either free or held, once."""
        free = set(self._free)
        assert len(free) == len(self._free), "a block is free twice"
        assert not free & self._held, "a block is both free and held"
        assert free | self._held == set(range(self._num_blocks)), "a block is lost"
