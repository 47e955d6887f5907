"""Texts, tokens and merges in C, beside the plainest Python that does the same."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.binding.text import (
    MergerOptions,
    NativeMerger,
    NativeTokens,
    find_texts,
    ranked_merger,
    scored_merger,
)
from edgeserve.packed import PackedNumbers, PackedStrings

_ALPHABET = "abé😀"
_CHARACTERS = st.text(_ALPHABET, max_size=40)
_PARTS = st.text(_ALPHABET, min_size=1, max_size=3)


def _found(data: bytes, count: int) -> tuple[list[int], int]:
    starts = array("I")
    end = find_texts(bytearray(data), 0, 0, count, starts)
    return starts.tolist(), end


def _tokens(*texts: str) -> NativeTokens:
    return NativeTokens(PackedStrings.of(texts))


# --- texts -------------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_packed_texts_are_found_where_they_are(texts: list[str]) -> None:
    packed = PackedStrings.of(texts)
    starts, end = _found(packed.data, len(texts))
    assert (starts, end) == (packed.starts.tolist()[:-1], len(packed.data))
    assert packed == texts
    assert list(packed) == [packed[i] for i in range(len(texts))] == texts
    assert packed[1:] == tuple(texts[1:])


@given(st.binary(min_size=1, max_size=12))
@settings(max_examples=2000)
def test_what_counts_as_utf8_is_what_python_decodes(text: bytes) -> None:
    data = len(text).to_bytes(8, "little") + text
    try:
        text.decode()
    except UnicodeDecodeError:
        assert _found(data, 1) == ([], 0)
    else:
        assert _found(data, 1) == ([8], len(data))


@pytest.mark.parametrize(
    "text", [b"\xed\xa0\x80", b"\xc0\x80", b"\xe0\x9f\xbf", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98"]
)
def test_surrogates_overlong_and_cut_forms_end_the_search(text: bytes) -> None:
    before = (3).to_bytes(8, "little") + b"abc"
    assert _found(before + len(text).to_bytes(8, "little") + text, 2) == ([8], len(before))


def test_a_text_that_is_not_all_there_ends_the_search() -> None:
    data = PackedStrings.of(["ab", "cdef"]).data
    assert _found(data[:-1], 2) == ([8], 10)
    assert _found(data[:17], 2) == ([8], 10)
    assert _found(b"\xff" * 20, 1) == ([], 0)


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_past_the_texts_is_an_error(index: int) -> None:
    with pytest.raises(IndexError):
        PackedStrings.of(["a", "b", "c"])[index]


def test_packed_numbers_are_the_numbers() -> None:
    numbers = PackedNumbers(array("i", [3, -1, 1 << 30]).tobytes(), "i")
    assert numbers == (3, -1, 1 << 30)
    assert (len(numbers), numbers[1], numbers[:2]) == (3, -1, (3, -1))
    assert numbers != (3, -1, 7)


# --- tokens ------------------------------------------------------------------------------------


@given(st.lists(st.text("ab\0é", max_size=20), unique=True), st.text("ab\0é", max_size=20))
def test_a_token_is_found_by_its_text_and_nothing_else_is(texts: list[str], other: str) -> None:
    tokens = _tokens(*texts)
    assert [tokens.find(text) for text in texts] == list(range(len(texts)))
    assert tokens.find(other) == (texts.index(other) if other in texts else None)


def test_a_text_that_is_there_twice_is_named() -> None:
    assert _tokens("a", "b", "", "b", "a").duplicate == 3


# --- merges ------------------------------------------------------------------------------------


def _plainly_ranked(text: str, ids: dict[str, int], merges: Sequence[tuple[str, str]]) -> list[int]:
    """The best pair of all, the leftmost of equals, again and again."""
    parts = list(text)
    while True:
        ranks = [
            (merges.index(pair), at) for at, pair in enumerate(pairwise(parts)) if pair in merges
        ]
        if not ranks:
            return [ids[part] for part in parts if part in ids]
        _, at = min(ranks)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def _plainly_scored(text: str, scores: dict[str, float]) -> list[str]:
    parts = list(text)
    while True:
        joined = [(at, a + b) for at, (a, b) in enumerate(pairwise(parts))]
        best = [(-scores[both], at) for at, both in joined if both in scores]
        if not best:
            return parts
        _, at = min(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(_PARTS, _PARTS), unique=True, max_size=12),
    st.lists(_CHARACTERS, max_size=4),
)
def test_ranked_merges_are_those_of_the_plain_way(
    merges: list[tuple[str, str]], pieces: list[str]
) -> None:
    parts = [part for pair in merges for part in (*pair, "".join(pair))]
    texts = list(dict.fromkeys((*_ALPHABET, *parts)))
    tokens = _tokens(*texts)
    packed = PackedStrings.of([" ".join(pair) for pair in merges])
    merger = ranked_merger(tokens, packed, MergerOptions())
    assert isinstance(merger, NativeMerger)
    ids = {text: token_id for token_id, text in enumerate(texts)}
    assert merger.merge(pieces) == [_plainly_ranked(piece, ids, merges) for piece in pieces]


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(_PARTS, st.sampled_from([-0.0, 0.0, -1.0, 1.0, -1e30, 1e-30]), max_size=20),
    _CHARACTERS,
)
def test_scored_merges_are_those_of_the_plain_way(scores: dict[str, float], text: str) -> None:
    texts = [*scores, "<unk>"]
    merger = scored_merger(
        _tokens(*texts),
        memoryview(array("f", [*scores.values(), 0.0])),
        bytes([1] * len(scores) + [0]),
        MergerOptions(unknown=len(scores)),
    )
    assert isinstance(merger, NativeMerger)
    expected: list[int] = []
    for part in _plainly_scored(text, scores):
        token_id = texts.index(part) if part in scores else len(scores)
        if token_id < len(scores) or expected[-1:] != [token_id]:
            expected.append(token_id)  # a run of unknown characters is one token
    assert merger.merge([text]) == [expected]


def test_tokens_that_are_not_merged_still_stand_for_a_character() -> None:
    tokens, scores = _tokens("a", "b", "ab"), memoryview(array("f", [0, 0, 0]))
    merger = scored_merger(tokens, scores, bytes([0, 1, 0]), MergerOptions())
    assert isinstance(merger, NativeMerger)
    assert merger.merge(["ab"]) == [[0, 1]]


def test_bytes_are_merged_as_their_own_tokens_and_whole_pieces_are_not_cut() -> None:
    tokens = _tokens("Ā", "x", "Āx", "xĀx", "xx")
    byte_ids = [0, *[-1] * 255]
    byte_ids[ord("x")] = 1
    merges = PackedStrings.of(["Ā x"])
    options = MergerOptions(byte_ids=byte_ids, by_bytes=True, takes_whole=True)
    merger = ranked_merger(tokens, merges, options)
    assert isinstance(merger, NativeMerger)
    assert merger.merge(["\0x\0", "x\0x", "x\0xx", "xyx"]) == [[2, 0], [3], [1, 2, 1], [1, 1]]


@pytest.mark.parametrize("merge", ["ab", "a ", "b a", "a c", ""])
def test_a_merge_that_is_not_two_tokens_that_make_one_is_named(merge: str) -> None:
    merges = PackedStrings.of(["a b", merge])
    assert ranked_merger(_tokens("a", "b", "ab"), merges, MergerOptions()) == 1


def test_the_first_part_of_a_merge_may_begin_with_a_space() -> None:
    merger = ranked_merger(_tokens(" ", "b", " b"), PackedStrings.of(["  b"]), MergerOptions())
    assert isinstance(merger, NativeMerger)
    assert merger.merge([" b b"]) == [[2, 2]]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -float("inf")])
def test_a_score_that_is_not_finite_is_named(score: float) -> None:
    scores = memoryview(array("f", [0.0, score]))
    assert scored_merger(_tokens("a", "b"), scores, b"\1\1", MergerOptions()) == 1
