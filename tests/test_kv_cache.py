"""KVCache: tables of all groups grow together or not at all."""

from __future__ import annotations

import pytest

from edgeserve.cache.kv_cache import KVCache


@pytest.fixture
def cache() -> KVCache:
    return KVCache(num_groups=2, num_blocks=4, block_size=16)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (64, 4)])
def test_blocks_for_tokens(cache: KVCache, tokens: int, blocks: int) -> None:
    assert cache.blocks_for(tokens) == blocks


def test_tables_grow_in_every_group(cache: KVCache) -> None:
    tables = cache.new_tables()
    assert cache.extend(tables, 17)
    assert tables == [[0, 1], [0, 1]]
    assert cache.extend(tables, 32)  # they hold that already
    assert tables == [[0, 1], [0, 1]]
    cache.check([tables])


def test_without_room_nothing_is_taken(cache: KVCache) -> None:
    first, second = cache.new_tables(), cache.new_tables()
    assert cache.extend(first, 48)
    assert not cache.extend(second, 17)
    assert second == [[], []]
    assert cache.extend(second, 16)
    cache.check([first, second])
    assert cache.occupancy() == 1.0


def test_released_blocks_are_free_and_the_tables_empty(cache: KVCache) -> None:
    tables = cache.new_tables()
    cache.extend(tables, 64)
    assert cache.occupancy() == 1.0
    cache.release(tables)
    assert tables == [[], []]
    assert cache.occupancy() == 0.0
    cache.release(tables)  # twice is fine: it has none
    cache.check([])


def test_check_finds_a_leak_and_a_shared_block(cache: KVCache) -> None:
    tables = cache.new_tables()
    cache.extend(tables, 20)
    with pytest.raises(AssertionError, match="leaked"):
        cache.check([])
    with pytest.raises(AssertionError, match="two tables"):
        cache.check([tables, tables])


def test_a_cache_without_groups_holds_everything() -> None:
    cache = KVCache(num_groups=0, num_blocks=0, block_size=16)
    assert cache.extend(cache.new_tables(), 10**6)
    assert cache.occupancy() == 0.0
    cache.check([])
