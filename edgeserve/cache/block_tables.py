"""One sequence's block tables: which blocks hold which of its positions, in each cache group."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass


def table_of(block_ids: Iterable[int]) -> array[int]:
    """One table: int32, as in a batch."""
    return array("i", block_ids)


@dataclass(slots=True)
class BlockTables:
    """One sequence's tables: for each group, the blocks of positions 0.., block_size.., …

    The first `num_behind` entries of a table lie behind the group's window and are not held. The
    first `num_indexed` blocks of the sequence need not be offered to the index any more. Tables are
    arrays: a step copies all of them.
    """

    groups: list[array[int]]
    num_behind: list[int]
    num_indexed: int = 0

    @classmethod
    def empty(cls, num_groups: int) -> BlockTables:
        return cls([table_of(()) for _ in range(num_groups)], [0] * num_groups)

    def held(self, group: int) -> array[int]:
        return self.groups[group][self.num_behind[group] :]
