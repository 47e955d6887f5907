"""PrefixIndex: what is found has the same tokens before it, the same model, and is there."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.cache.prefix_index import PrefixIndex

BLOCK = 4
PROMPT = tuple(range(10, 30))


def index_with(
    tokens: tuple[int, ...] = PROMPT, *, fingerprint: bytes = b"model"
) -> tuple[PrefixIndex, list[bytes]]:
    """Block i of the prompt is block 100 + i of group 0."""
    index = PrefixIndex(fingerprint, BLOCK)
    hashes = [index.root()]
    index.extend(hashes, tokens)
    for block in range(len(hashes) - 1):
        index.add(0, hashes, tokens, block, 100 + block)
    return index, hashes


def test_block_is_found_by_all_that_came_before() -> None:
    index, hashes = index_with()
    assert len(hashes) == 6
    assert [index.find(0, hashes, PROMPT, block) for block in range(5)] == [*range(100, 105)]
    index.check()


def test_hashes_are_those_of_the_whole_however_the_tokens_came() -> None:
    index, hashes = index_with()
    grown = [index.root()]
    for end in range(len(PROMPT) + 1):
        index.extend(grown, PROMPT[:end])
        assert len(grown) == 1 + end // BLOCK
    assert grown == hashes


def test_same_tokens_after_others_are_not_found() -> None:
    index, _ = index_with()
    other = (1, *PROMPT[1:])
    hashes = [index.root()]
    index.extend(hashes, other)
    assert [index.find(0, hashes, other, block) for block in range(5)] == [None] * 5


def test_other_group_model_adapter_or_salt_is_a_miss() -> None:
    index, hashes = index_with()
    assert index.find(1, hashes, PROMPT, 0) is None
    roots = [
        index.root(),
        PrefixIndex(b"other", BLOCK).root(),
        index.root(adapter="a"),
        index.root(salt=b"a"),
        index.root(adapter="a", salt=b"b"),
        index.root(adapter="ab"),
        index.root(salt=b"ab"),
    ]
    assert len(set(roots)) == len(roots)
    for root in roots[1:]:
        other = [root]
        index.extend(other, PROMPT)
        assert index.find(0, other, PROMPT, 0) is None


def test_collision_is_a_miss() -> None:
    index, hashes = index_with()
    # Other tokens whose hash is the same, first by their own block, then by what came before.
    assert index.find(0, hashes, (1, *PROMPT[1:]), 0) is None
    assert index.find(0, hashes, (1, *PROMPT[1:]), 1) == 101
    assert index.find(0, [b"collides", *hashes[1:]], PROMPT, 0) is None


def test_forgotten_block_is_not_found_and_once_more_is_no_error() -> None:
    index, hashes = index_with()
    index.forget(0, 102)
    index.forget(0, 102)
    index.forget(1, 103)
    assert index.find(0, hashes, PROMPT, 2) is None
    assert index.find(0, hashes, PROMPT, 3) == 103
    assert index.blocks_of(0) == {100, 101, 103, 104}
    assert (index.num_entries, index.has(0, hashes[3]), index.has(0, hashes[4])) == (4, False, True)
    index.check()


def test_check_finds_an_entry_that_went_stale() -> None:
    index, _ = index_with()
    index._hash_of[0, 100] = b"another"  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(AssertionError, match="stale"):
        index.check()


@given(st.lists(st.lists(st.integers(0, 2), min_size=BLOCK, max_size=12), min_size=2, max_size=6))
def test_hashes_agree_exactly_as_far_as_the_tokens_do(prompts: list[list[int]]) -> None:
    index = PrefixIndex(b"", BLOCK)
    chains: list[list[bytes]] = []
    for prompt in prompts:
        chains.append([index.root()])
        index.extend(chains[-1], prompt)
    for (a, one), (b, two) in combinations(zip(prompts, chains, strict=True), 2):
        for block in range(1, min(len(one), len(two))):
            assert (one[block] == two[block]) == (a[: block * BLOCK] == b[: block * BLOCK])
    assert all(before != after for chain in chains for before, after in pairwise(chain))
