"""Block tables of sequences: one per cache group, all grown together or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from edgeserve.cache.block_pool import BlockPool

BlockTables = list[list[int]]
"""One sequence's tables: for each cache group, the blocks of positions 0.., block_size.., …"""


class KVCache:
    """One pool of `num_blocks` blocks for each of `num_groups` cache groups."""

    def __init__(self, *, num_groups: int, num_blocks: int, block_size: int) -> None:
        self._pools = [BlockPool(num_blocks) for _ in range(num_groups)]
        self._block_size = block_size
        self._num_blocks = num_blocks

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` positions."""
        return -(-num_tokens // self._block_size)

    def new_tables(self) -> BlockTables:
        return [[] for _ in self._pools]

    def extend(self, tables: BlockTables, num_tokens: int) -> bool:
        """Grows tables to hold `num_tokens` positions. False, and nothing taken, without room."""
        wanted = self.blocks_for(num_tokens)
        missing = [max(0, wanted - len(table)) for table in tables]
        if any(n > pool.num_free for n, pool in zip(missing, self._pools, strict=True)):
            return False
        for table, n, pool in zip(tables, missing, self._pools, strict=True):
            table.extend(pool.take(n))
        return True

    def release(self, tables: BlockTables) -> None:
        """Gives a sequence's blocks back; the tables are empty afterwards."""
        for table, pool in zip(tables, self._pools, strict=True):
            pool.give_back(table)
            table.clear()

    def occupancy(self) -> float:
        """The fullest pool's held share, 0 to 1."""
        if not self._pools or self._num_blocks == 0:
            return 0.0
        return max(1.0 - pool.num_free / pool.num_blocks for pool in self._pools)

    def check(self, live_tables: Sequence[BlockTables]) -> None:
        """Raises AssertionError unless the live tables hold exactly the blocks that are held."""
        for group, pool in enumerate(self._pools):
            pool.check()
            held = [block for tables in live_tables for block in tables[group]]
            assert len(held) == len(set(held)), "two tables hold one block"
            assert len(held) == pool.num_blocks - pool.num_free, "blocks leaked"
