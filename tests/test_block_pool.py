"""BlockPool: every block is free, kept or held, and held as often as it was taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.cache.block_pool import BlockPool


def ignored(block_id: int) -> None:
    """For pools of which nobody keeps an index."""


def test_new_blocks_come_lowest_first() -> None:
    pool = BlockPool(4, ignored)
    assert pool.take(3) == [0, 1, 2]
    assert (pool.num_available, pool.num_blocks) == (1, 4)


def test_block_that_was_used_last_comes_next() -> None:
    pool = BlockPool(4, ignored)
    pool.take(4)
    pool.give_back([2])
    pool.give_back([0, 3])
    assert pool.take(3) == [3, 0, 2]


def test_pool_that_grows_gives_what_was_used_before_what_is_new() -> None:
    pool = BlockPool(5, ignored, num_usable=2)
    assert (pool.num_available, pool.num_usable, pool.num_blocks) == (2, 2, 5)
    assert pool.take(2) == [0, 1]
    pool.give_back([0])
    pool.grow(2)
    assert (pool.num_free, pool.num_usable) == (3, 4)
    assert pool.take(2) == [0, 2]
    pool.grow(9)
    assert pool.num_usable == 5
    assert pool.take(2) == [3, 4]
    pool.check(set())


def test_giving_back_what_is_not_held_is_an_error() -> None:
    pool = BlockPool(2, ignored)
    pool.take(1)
    pool.give_back([0])
    with pytest.raises(KeyError):
        pool.give_back([0])
    with pytest.raises(KeyError):
        pool.give_back([1])


def test_keeping_what_nobody_holds_is_an_error() -> None:
    with pytest.raises(KeyError):
        BlockPool(2, ignored).keep(0)


def test_shared_block_is_there_until_its_last_holder_goes() -> None:
    pool = BlockPool(2, ignored)
    pool.take(1)
    pool.hold([0])
    assert (pool.counts[0], pool.is_writable(0)) == (2, False)
    pool.give_back([0])
    assert (pool.counts[0], pool.is_writable(0), pool.num_available) == (1, True, 1)
    pool.give_back([0])
    assert (pool.counts[0], pool.is_writable(0), pool.num_available) == (0, False, 2)


def test_kept_blocks_go_last_and_those_unused_longest_first() -> None:
    evicted: list[int] = []
    pool = BlockPool(4, evicted.append)
    pool.take(3)
    for block in (0, 1, 2):
        pool.keep(block)
        assert not pool.is_writable(block)
    pool.give_back([2, 0, 1])
    assert pool.num_available == 4
    pool.hold([2])  # used again: now it is the youngest
    pool.give_back([2])
    assert pool.take(1) == [3]
    assert evicted == []
    assert pool.take(3) == evicted == [0, 1, 2]
    assert pool.num_evicted == 3
    assert all(pool.is_writable(block) for block in range(4))
    pool.check(set())


def test_held_block_is_never_evicted() -> None:
    pool = BlockPool(2, ignored)
    pool.take(2)
    pool.keep(0)
    pool.keep(1)
    pool.give_back([0, 1])
    pool.hold([0])
    assert (pool.num_available, pool.take(1)) == (1, [1])


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda pool: pool._free.append(pool._free[0]), "free twice"),
        (lambda pool: pool._free.append(0), "both free and held"),
        (lambda pool: pool._free.append(1), "both free and kept"),
        (lambda pool: pool._free.pop(), "lost"),
        (lambda pool: pool._unused.clear(), "lost"),
        (lambda pool: pool._kept.add(0), "cannot be found"),
        (lambda pool: pool._kept.clear(), "for nothing"),
        (lambda pool: pool._counts.__setitem__(3, -1), "less than not at all"),
    ],
)
def test_check_finds_what_is_wrong(break_it: Callable[[BlockPool], object], message: str) -> None:
    pool = BlockPool(4, ignored)
    pool.take(2)
    pool.keep(1)
    pool.give_back([1])
    pool.check({1})
    break_it(pool)
    with pytest.raises(AssertionError, match=message):
        pool.check({1})


MOVES = ["take", "hold", "keep", "give", "grow"]
moves = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 99)))


@given(moves)
def test_books_balance_over_any_history(history: list[tuple[str, int]]) -> None:
    kept: set[int] = set()
    pool = BlockPool(6, kept.remove, num_usable=3)  # a block that was evicted twice would raise
    held: Counter[int] = Counter()
    for move, at in history:
        holdable = sorted(kept | set(held))
        if move == "take" and pool.num_available:
            (block,) = pool.take(1)
            assert block not in held
            assert block not in kept
            held[block] = 1
        elif move == "hold" and holdable:
            block = holdable[at % len(holdable)]
            pool.hold([block])
            held[block] += 1
        elif move == "keep" and held:
            block = sorted(held)[at % len(held)]
            pool.keep(block)
            kept.add(block)
        elif move == "give" and held:
            block = sorted(held)[at % len(held)]
            pool.give_back([block])
            held -= Counter([block])
        elif move == "grow":
            pool.grow(at % 3)
        pool.check(kept)
        assert pool.counts == [held[block] for block in range(6)]
        held = +held
        assert pool.num_available == pool.num_usable - len(held)
