"""BlockPool: every block is free or held, once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.cache.block_pool import BlockPool


def test_new_blocks_come_lowest_first() -> None:
    pool = BlockPool(4)
    assert pool.take(3) == [0, 1, 2]
    assert (pool.num_free, pool.num_blocks) == (1, 4)


def test_block_that_is_free_longest_comes_next() -> None:
    pool = BlockPool(4)
    pool.take(4)
    pool.give_back([2])
    pool.give_back([0, 3])
    assert pool.take(3) == [2, 0, 3]


def test_giving_back_what_is_not_held_is_an_error() -> None:
    pool = BlockPool(2)
    pool.take(1)
    pool.give_back([0])
    with pytest.raises(KeyError):
        pool.give_back([0])
    with pytest.raises(KeyError):
        pool.give_back([1])


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda pool: pool._free.append(pool._free[0]), "free twice"),
        (lambda pool: pool._free.append(0), "both free and held"),
        (lambda pool: pool._free.pop(), "lost"),
    ],
)
def test_check_finds_what_is_wrong(break_it: object, message: str) -> None:
    pool = BlockPool(4)
    pool.take(2)
    pool.check()
    break_it(pool)  # type: ignore[operator]
    with pytest.raises(AssertionError, match=message):
        pool.check()


@given(st.lists(st.integers(-3, 3)))
def test_books_balance_over_any_history(moves: list[int]) -> None:
    pool = BlockPool(8)
    held: list[int] = []
    for move in moves:
        if move > 0:
            held += pool.take(min(move, pool.num_free))
        else:
            pool.give_back(held[: -move or None])
            held = held[-move:] if move else []
        pool.check()
        assert len(held) == len(set(held)) == pool.num_blocks - pool.num_free
