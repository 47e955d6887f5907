"""Row groups laid end to end: nothing moves, nothing is lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.runner.batch import BLOCK_SIZE, Batch, RowGroup


def test_two_groups_of_two_cache_groups() -> None:
    prefill = RowGroup([5, 6, 7], 15, [[3, 9], [4, 1]], 1)
    decode = RowGroup([8], 2, [[2], [0]], 1)
    batch = Batch.from_groups([prefill, decode], 2)
    assert batch.token_ids.tolist() == [5, 6, 7, 8]
    assert batch.positions.tolist() == [15, 16, 17, 2]
    assert batch.first_row.tolist() == [0, 3, 4]
    assert batch.num_logits_rows.tolist() == [1, 1]
    assert batch.block_tables.tolist() == [[[3, 9], [2, -1]], [[4, 1], [0, -1]]]
    assert (batch.num_rows, batch.num_groups) == (4, 2)
    assert batch.embeddings is None


def test_arrays_are_the_int32_that_c_reads() -> None:
    batch = Batch.from_groups([RowGroup([1], 0, [[0]], 0)], 1)
    arrays = (batch.token_ids, batch.positions, batch.first_row, batch.num_logits_rows)
    assert all(array.dtype == np.int32 for array in (*arrays, batch.block_tables))


def test_no_groups() -> None:
    batch = Batch.from_groups([], 2)
    assert (batch.num_rows, batch.num_groups) == (0, 0)
    assert batch.first_row.tolist() == [0]


GROUPS = st.lists(
    st.builds(
        lambda tokens, first, tables: RowGroup(tokens, first, tables, len(tokens) // 2),
        st.lists(st.integers(0, 299), min_size=1, max_size=40),
        st.integers(0, 1000),
        st.lists(st.lists(st.integers(0, 500), max_size=8), min_size=3, max_size=3),
    ),
    max_size=6,
)


@given(GROUPS)
def test_every_group_can_be_read_back(groups: list[RowGroup]) -> None:
    batch = Batch.from_groups(groups, 3)
    for g, group in enumerate(groups):
        rows = slice(batch.first_row[g], batch.first_row[g + 1])
        last = group.first_position + len(group.token_ids)
        assert batch.token_ids[rows].tolist() == list(group.token_ids)
        assert batch.positions[rows].tolist() == list(range(group.first_position, last))
        assert batch.num_logits_rows[g] == group.num_logits_rows
        for c, table in enumerate(group.block_tables):
            row = batch.block_tables[c, g].tolist()
            assert row == [*table, *[-1] * (len(row) - len(table))]


def test_block_size_is_the_documented_one() -> None:
    assert BLOCK_SIZE == 16
