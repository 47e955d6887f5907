"""KVCache: tables grow together or not at all, share what is the same, and copy what they write."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.cache.block_tables import BlockTables
from edgeserve.cache.kv_cache import Growth, KVCache
from edgeserve.cache.prefix_index import PrefixIndex

BLOCK = 4


class Timeline:
    """A sequence as the cache sees it: tokens, their hashes, tables, and how far it is."""

    def __init__(self, cache: KVCache, token_ids: Sequence[int]) -> None:
        self.cache = cache
        self.token_ids = list(token_ids)
        self.hashes: list[bytes] = []
        self.tables = cache.new_tables()
        self.num_computed = 0

    def start(self) -> int:
        """Takes what can be found; how many tokens that is."""
        self.cache.hash_prefix(self.hashes, self.token_ids)
        self.num_computed = self.cache.adopt(self.tables, self.hashes, self.token_ids)
        return self.num_computed

    def grow(self) -> bool:
        return self.cache.extend(self.tables, self.num_computed, len(self.token_ids))

    def compute(self, num_computed: int | None = None) -> None:
        self.num_computed = len(self.token_ids) if num_computed is None else num_computed
        cache, tables = self.cache, self.tables
        cache.index_computed(tables, self.hashes, self.token_ids, self.num_computed)
        cache.leave_behind(tables, self.num_computed)

    def run(self) -> int:
        """From its start to the end of its tokens, which its blocks outlive."""
        found = self.start()
        assert self.grow()
        self.compute()
        self.cache.check([self.tables])
        self.cache.release(self.tables)
        return found


def sharing(windows: Sequence[int | None] = (None, None), num_blocks: int = 64) -> KVCache:
    return KVCache(
        windows=windows, num_blocks=num_blocks, block_size=BLOCK, index=PrefixIndex(b"", BLOCK)
    )


@pytest.fixture
def cache() -> KVCache:
    """One that shares nothing."""
    return KVCache(windows=[None, None], num_blocks=4, block_size=16)


# --- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (64, 4)])
def test_blocks_for_tokens(cache: KVCache, tokens: int, blocks: int) -> None:
    assert cache.blocks_for(tokens) == blocks


def test_tables_grow_in_every_group(cache: KVCache) -> None:
    tables = cache.new_tables()
    assert cache.extend(tables, 0, 17)
    assert list(map(list, tables.groups)) == [[0, 1], [0, 1]]
    assert cache.extend(tables, 17, 32)  # they hold that already
    assert list(map(list, tables.groups)) == [[0, 1], [0, 1]]
    cache.check([tables])


def test_without_room_nothing_is_taken(cache: KVCache) -> None:
    first, second = cache.new_tables(), cache.new_tables()
    assert cache.extend(first, 0, 48)
    assert not cache.extend(second, 0, 17)
    assert second == BlockTables.empty(2)
    assert cache.extend(second, 0, 16)
    cache.check([first, second])
    assert cache.occupancy() == 1.0


@pytest.mark.parametrize(("tokens", "left"), [(17, [0, 1]), (32, [0, 1]), (33, [0, 1, 2])])
def test_blocks_past_the_last_position_are_given_back(
    cache: KVCache, tokens: int, left: list[int]
) -> None:
    tables = cache.new_tables()
    cache.extend(tables, 0, 48)
    cache.trim(tables, tokens)
    assert list(map(list, tables.groups)) == [left, left]
    assert cache.num_available() == [4 - len(left)] * 2
    cache.check([tables])


@pytest.mark.parametrize(("tokens", "fewer"), [(33, 32), (32, 16), (17, 16), (16, 0)])
def test_a_block_less_holds_so_many_positions(cache: KVCache, tokens: int, fewer: int) -> None:
    assert cache.with_a_block_less(tokens) == fewer
    assert cache.blocks_for(fewer) == cache.blocks_for(tokens) - 1


def test_released_blocks_are_free_and_the_tables_empty(cache: KVCache) -> None:
    tables = cache.new_tables()
    cache.extend(tables, 0, 64)
    assert cache.occupancy() == 1.0
    cache.release(tables)
    assert tables == BlockTables.empty(2)
    assert cache.occupancy() == 0.0
    cache.release(tables)  # twice is fine: it has none
    cache.check([])


def test_check_finds_a_leak_and_a_block_that_is_held_too_often(cache: KVCache) -> None:
    tables = cache.new_tables()
    cache.extend(tables, 0, 20)
    with pytest.raises(AssertionError, match=r"hold \[0, 0, 0, 0\], not \[1, 1, 0, 0\]"):
        cache.check([])
    with pytest.raises(AssertionError, match=r"hold \[2, 2, 0, 0\], not \[1, 1, 0, 0\]"):
        cache.check([tables, tables])


def test_a_cache_without_groups_holds_everything_and_finds_nothing() -> None:
    cache = sharing(windows=(), num_blocks=0)
    timeline = Timeline(cache, range(50))
    assert timeline.run() == 0
    assert timeline.run() == 0
    assert cache.occupancy() == 0.0
    cache.check([])


# --- prefixes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_tokens", "found"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (10, 8), (40, 20)]
)
def test_full_blocks_are_found_but_the_last_token_is_computed(num_tokens: int, found: int) -> None:
    cache = sharing()
    Timeline(cache, range(23)).run()
    assert Timeline(cache, range(num_tokens)).run() == found


def test_prefix_ends_where_a_token_differs() -> None:
    cache = sharing()
    Timeline(cache, range(24)).run()
    assert Timeline(cache, [*range(9), 99, *range(10, 24)]).run() == 8
    assert Timeline(cache, [99, *range(1, 24)]).run() == 0


def test_blocks_are_found_while_their_sequence_lives_and_only_once_computed() -> None:
    cache = sharing()
    first = Timeline(cache, range(20))
    first.start()
    first.grow()
    assert Timeline(cache, range(20)).start() == 0
    first.compute(11)
    second = Timeline(cache, range(20))
    assert second.start() == 8
    assert second.grow()
    assert second.tables.groups[0][:2] == first.tables.groups[0][:2]
    assert set(second.tables.groups[0][2:]).isdisjoint(first.tables.groups[0])
    cache.check([first.tables, second.tables])


def test_prefix_outlives_what_continues_it() -> None:
    cache = sharing(windows=[None], num_blocks=8)
    Timeline(cache, range(32)).run()
    Timeline(cache, [99] * 8).run()  # takes two blocks
    assert cache.counts.evicted == 2
    assert Timeline(cache, range(32)).start() == 24


def test_without_an_index_nothing_is_found() -> None:
    cache = KVCache(windows=[None], num_blocks=9, block_size=BLOCK)
    timeline = Timeline(cache, range(20))
    assert (timeline.run(), timeline.run()) == (0, 0)
    assert not cache.shares


# --- windows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "num_computed", "behind"),
    [(1, 0, 0), (1, 4, 0), (1, 5, 1), (4, 7, 0), (4, 8, 1), (4, 11, 1), (4, 12, 2), (5, 12, 1)],
)
def test_blocks_go_once_neither_the_next_row_nor_the_last_one_again_sees_them(
    window: int, num_computed: int, behind: int
) -> None:
    cache = sharing(windows=[None, window])
    timeline = Timeline(cache, range(20))
    timeline.start()
    timeline.grow()
    timeline.compute(num_computed)
    assert timeline.tables.num_behind == [0, behind]
    visible = range(max(0, num_computed - window), num_computed + 1)
    assert {p // BLOCK for p in visible} == set(range(behind, num_computed // BLOCK + 1))
    assert cache.counts.behind == behind
    cache.check([timeline.tables])


def test_blocks_behind_a_window_are_found_again() -> None:
    cache = sharing(windows=[None, 6])
    Timeline(cache, range(40)).run()
    # An early turn: the window's blocks there were left behind long ago.
    early = Timeline(cache, [*range(12), 99, 98, 97])
    assert early.start() == 12
    assert early.tables.groups[1][0] == 0
    assert early.tables.num_behind == [0, 1]
    assert early.grow()
    cache.check([early.tables])


def test_hit_is_the_longest_for_which_every_group_has_what_it_needs() -> None:
    index = PrefixIndex(b"", BLOCK)
    cache = KVCache(windows=[None, 6, 9], num_blocks=64, block_size=BLOCK, index=index)
    timeline = Timeline(cache, range(41))
    timeline.start()
    timeline.grow()
    tables = [list(table) for table in timeline.tables.groups]
    timeline.compute()
    assert Timeline(cache, range(41)).start() == 40
    for group, block, found in [(1, 9, 36), (2, 8, 32), (1, 7, 28), (2, 5, 20), (0, 3, 12)]:
        index.forget(group, tables[group][block])
        assert Timeline(cache, range(41)).start() == found


def test_full_group_is_not_needed_for_a_hit() -> None:
    cache = sharing(windows=[6])
    Timeline(cache, range(40)).run()
    late = Timeline(cache, range(30))
    assert late.start() == 28
    assert late.tables.num_behind == [5]


# --- forks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_prompt", [1, 3, 4, 9, 12])
def test_fork_shares_and_copies_the_block_it_writes(num_prompt: int) -> None:
    cache = sharing(windows=[None, 6])
    first, fork = Timeline(cache, range(num_prompt)), Timeline(cache, range(num_prompt))
    first.start()
    first.grow()
    first.compute()
    assert cache.fork(first.tables, fork.tables, num_prompt)
    cache.check([first.tables, fork.tables])
    assert cache.counts.forked > 0
    fork.num_computed = num_prompt - 1
    before = [list(table) for table in first.tables.groups]
    assert fork.grow()
    last = (num_prompt - 1) // BLOCK
    for group in range(2):
        ours, theirs = fork.tables.groups[group], first.tables.groups[group]
        assert list(theirs) == before[group]
        assert ours[:last] == theirs[:last]
        assert ours[last] != theirs[last]
        assert cache.pending_copies[group] == [(theirs[last], ours[last])]
    cache.check([first.tables, fork.tables])
    assert fork.grow()  # it is its own now
    assert cache.counts.copied == 2


def test_first_choice_copies_too_if_it_is_the_one_to_write() -> None:
    cache = sharing(windows=[None])
    first, fork = Timeline(cache, range(6)), Timeline(cache, range(6))
    first.start()
    first.grow()
    first.compute()
    cache.fork(first.tables, fork.tables, 6)
    first.token_ids.append(50)
    assert first.grow()
    assert first.tables.groups[0][1] != fork.tables.groups[0][1]
    assert cache.pending_copies[0] == [(fork.tables.groups[0][1], first.tables.groups[0][1])]


def test_block_that_can_be_found_is_copied_even_if_nobody_else_holds_it() -> None:
    cache = sharing(windows=[None])
    first, fork = Timeline(cache, range(8)), Timeline(cache, range(8))
    first.start()
    first.grow()
    first.compute()
    cache.fork(first.tables, fork.tables, 8)
    cache.release(first.tables)
    fork.num_computed = 7
    assert fork.grow()
    assert cache.counts.copied == 1
    cache.check([fork.tables])


def test_no_fork_of_what_the_first_choice_has_left_behind() -> None:
    cache = sharing(windows=[None, 4])
    first, fork = Timeline(cache, range(20)), Timeline(cache, range(10))
    first.start()
    first.grow()
    first.compute()
    assert not cache.fork(first.tables, fork.tables, 10)
    assert fork.tables == BlockTables.empty(2)


# --- any history ---------------------------------------------------------------------------------

prompts = st.lists(st.sampled_from([1, 2]), min_size=1, max_size=14)
moves = st.lists(
    st.tuples(st.sampled_from(["start", "fork", "grow", "release"]), prompts, st.integers(0, 99)),
    max_size=40,
)


@settings(deadline=None)
@given(moves, st.sampled_from([(None,), (3,), (None, 5), (None, None, 9, 2)]), st.booleans())
def test_books_balance_and_blocks_hold_what_they_should_over_any_history(
    history: list[tuple[str, list[int], int]], windows: tuple[int | None, ...], shares: bool
) -> None:
    cache = KVCache(
        windows=windows,
        num_blocks=9,
        block_size=2,
        index=PrefixIndex(b"", 2) if shares else None,
    )
    bytes_of: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    live: list[Timeline] = []
    for move, prompt, at in history:
        chosen = live[at % len(live)] if live else None
        if move == "start":
            live.append(Timeline(cache, prompt))
            live[-1].start()
        elif move == "fork" and chosen and chosen.num_computed > 0:
            fork = Timeline(cache, chosen.token_ids[: chosen.num_computed])
            if cache.fork(chosen.tables, fork.tables, len(fork.token_ids)):
                fork.num_computed = len(fork.token_ids) - 1
                live.append(fork)
        elif move == "grow" and chosen:
            chosen.token_ids += prompt[:3]
            if chosen.grow():
                _copy(cache, bytes_of)
                _write(chosen, bytes_of, windows)
                chosen.compute()
        elif move == "release" and chosen:
            cache.release(chosen.tables)
            live.remove(chosen)
        cache.check([timeline.tables for timeline in live])


def _copy(cache: KVCache, bytes_of: dict[tuple[int, int], list[tuple[int, ...]]]) -> None:
    for group, pairs in enumerate(cache.pending_copies):
        for source, destination in pairs:
            bytes_of[group, destination] = list(bytes_of[group, source])
        pairs.clear()


def _write(
    timeline: Timeline,
    bytes_of: dict[tuple[int, int], list[tuple[int, ...]]],
    windows: tuple[int | None, ...],
) -> None:
    """Stores what a row's key stands for, all tokens up to it, and reads back what rows see."""
    for position in range(timeline.num_computed, len(timeline.token_ids)):
        for group, table in enumerate(timeline.tables.groups):
            cells = bytes_of.setdefault((group, table[position // 2]), [(), ()])
            cells[position % 2] = tuple(timeline.token_ids[: position + 1])
    for position in range(timeline.num_computed, len(timeline.token_ids)):
        for group, table in enumerate(timeline.tables.groups):
            window = windows[group]
            first = 0 if window is None else max(0, position - window + 1)
            for seen in range(first, position + 1):
                cell = bytes_of[group, table[seen // 2]][seen % 2]
                assert cell == tuple(timeline.token_ids[: seen + 1])


# --- growing -------------------------------------------------------------------------------------


class Memory:
    """So many blocks are granted, of whichever group."""

    def __init__(self, num_blocks: int) -> None:
        self.left = num_blocks
        self.asked: list[tuple[int, int]] = []

    def may_grow(self, group: int, num_blocks: int) -> bool:
        self.asked.append((group, num_blocks))
        if num_blocks > self.left:
            return False
        self.left -= num_blocks
        return True


def growing(memory: Memory, num_blocks: int = 64) -> KVCache:
    return KVCache(
        windows=[None, 6],
        num_blocks=num_blocks,
        block_size=BLOCK,
        index=PrefixIndex(b"", BLOCK),
        growth=Growth(slab_blocks=4, may_grow=memory.may_grow),
    )


def test_pools_grow_slab_by_slab_and_only_as_far_as_needed() -> None:
    memory = Memory(1000)
    cache = growing(memory)
    tables = cache.new_tables()
    assert cache.extend(tables, 0, 4 * BLOCK)
    assert memory.asked == []
    assert cache.extend(tables, 0, 9 * BLOCK)
    assert memory.asked == [(0, 4), (0, 4), (1, 4), (1, 4)]
    cache.check([tables])
    cache.release(tables)
    assert (cache.occupancy(), cache.num_available()) == (0.0, [12, 12])
    again = cache.new_tables()
    assert cache.extend(again, 0, 12 * BLOCK)
    assert len(memory.asked) == 4
    assert cache.occupancy() == 12 / 64


def test_pool_never_grows_past_its_blocks() -> None:
    memory = Memory(1000)
    cache = growing(memory, num_blocks=6)
    tables = cache.new_tables()
    assert cache.extend(tables, 0, 6 * BLOCK)
    assert memory.asked == [(0, 2), (1, 2)]
    assert not cache.extend(tables, 0, 7 * BLOCK)


def test_without_memory_what_was_kept_is_evicted_and_else_nothing_is_taken() -> None:
    memory = Memory(8)
    cache = growing(memory)
    first = Timeline(cache, list(range(8 * BLOCK)))
    first.run()
    assert memory.left == 0
    asked = len(memory.asked)
    second = Timeline(cache, list(range(100, 100 + 8 * BLOCK)))
    second.run()
    assert cache.counts.evicted > 0
    assert len(memory.asked) > asked  # it was asked for, before anything was evicted
    tables = cache.new_tables()
    assert not cache.extend(tables, 0, 9 * BLOCK)
    assert len(tables.held(0)) == 0
    cache.check([tables])
    memory.left = 100
    assert cache.extend(tables, 0, 9 * BLOCK)


def test_memory_that_was_refused_is_asked_for_again_after_a_while() -> None:
    memory = Memory(0)
    cache = growing(memory)
    for n in range(100):
        Timeline(cache, [n + 100 * i for i in range(3 * BLOCK)]).run()
    assert 2 <= len(memory.asked) < 20
