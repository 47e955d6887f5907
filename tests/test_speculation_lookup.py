"""What is looked up: where a text goes on as it did before, or as another did, also past edits."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.cache.kv_cache import BlockTables
from edgeserve.engine.sequence import Sequence as Line
from edgeserve.engine.speculation.acceptance import SharedAcceptance
from edgeserve.engine.speculation.corpus import Corpus
from edgeserve.engine.speculation.lookup import Lookup
from edgeserve.engine.speculation.ngram_table import NgramTable
from edgeserve.engine.speculation.verdicts import Verdicts
from edgeserve.types import SamplingDefaults, SamplingParams

texts = st.lists(st.integers(0, 3), max_size=60)


def line(prompt: Sequence[int]) -> Line:
    params = SamplingParams()
    return Line(
        request_id="r",
        index=0,
        token_ids=list(prompt),
        params=params,
        sampling=params.resolved(SamplingDefaults()),
        seed=0,
        max_tokens=1000,
        stop_ids=frozenset(),
        block_tables=BlockTables.empty(1),
    )


def guesses(lookup: Lookup, sequence: Line, count: int) -> list[int]:
    chances = lookup.foresee(sequence, count)
    assert all(0.0 < chance < 1.0 for chance in chances)
    return lookup.draft({sequence: len(chances)})[sequence]


# --- tables --------------------------------------------------------------------------------------


@given(texts, st.lists(st.integers(1, 9), max_size=60))
def test_table_finds_the_latest_place_after_the_longest_known_run(
    text: list[int], pieces: list[int]
) -> None:
    table, end = NgramTable(), 0
    for piece in [*pieces, len(text)]:
        end = min(len(text), end + piece)
        table.read(text, end)
        wanted = None
        for size in NgramTable.sizes:
            if wanted is None and end >= size:
                run = text[end - size : end]
                places = [p for p in range(size, end) if text[p - size : p] == run]
                wanted = max(places, default=None)
        assert table.find(text, end) == wanted


@given(st.lists(texts, max_size=9), st.integers(0, 100), st.integers(1, 40))
def test_corpus_is_bounded_and_finds_nothing_that_it_dropped(
    added: list[list[int]], max_tokens: int, piece: int
) -> None:
    corpus = Corpus(max_tokens)
    for text in added:
        corpus.add(text)
        corpus.read(piece)
        assert corpus.num_tokens <= max_tokens
        for end in range(len(text) + 1):
            found = corpus.find(text, end)
            if found is not None:
                other, place = found
                assert other[place - 7 : place] == text[end - 7 : end]
                assert any(other == t[max(0, len(t) - max_tokens) :] for t in added)
    corpus.add([9] * max_tokens)
    assert all(corpus.find(text, len(text)) is None for text in added)


def test_corpus_reads_piece_by_piece() -> None:
    corpus = Corpus(100)
    corpus.add(range(20, 40))
    corpus.read(8)
    assert corpus.find(range(20, 27), 7) == (list(range(20, 40)), 7)
    assert corpus.find(range(20, 30), 10) is None
    corpus.read(100)
    assert corpus.find(range(20, 30), 10) == (list(range(20, 40)), 10)


def test_corpus_holds_a_chat_once() -> None:
    corpus = Corpus(100)
    corpus.add(range(30))
    corpus.add(range(40))
    assert corpus.num_tokens == 40


# --- guesses -------------------------------------------------------------------------------------


def test_text_goes_on_as_it_did_before() -> None:
    sequence = line([*range(10, 20), 5, *range(10, 14)])
    assert guesses(Lookup(), sequence, 6) == [14, 15, 16, 17, 18, 19]


def test_what_repeats_itself_is_guessed_past_its_end() -> None:
    assert guesses(Lookup(), line([9, 9, 1, 2, 3, 1, 2, 3]), 7) == [1, 2, 3, 1, 2, 3, 1]


def test_nothing_is_guessed_of_what_was_never_there() -> None:
    lookup, sequence = Lookup(), line(range(50))
    assert lookup.foresee(sequence, 8) == []


def test_copy_goes_on_after_an_edit() -> None:
    original = list(range(100, 140))
    sequence = line([*original, 1, *original[:12]])
    lookup = Lookup()
    lookup.foresee(sequence, 4)
    sequence.token_ids += [7, 8, 9, original[14]]  # three new tokens for two old ones
    assert guesses(lookup, sequence, 5) == original[15:20]


def test_a_long_prompt_is_read_over_several_steps() -> None:
    sequence = line([*range(10, 20), *range(1000, 5000), *range(10, 14)])
    lookup = Lookup()
    assert lookup.foresee(sequence, 3) == []
    assert guesses(lookup, sequence, 3) == [14, 15, 16]


def test_another_requests_text_is_found_once_it_has_ended() -> None:
    lookup, first = Lookup(), line(range(100, 140))
    lookup.foresee(first, 1)
    second = line([1, *range(110, 118)])
    assert lookup.foresee(second, 4) == []
    lookup.forget(first)
    third = line([2, *range(110, 118)])
    assert guesses(lookup, third, 4) == [118, 119, 120, 121]
    # At the other text's end there is nothing to say.
    assert len(lookup.foresee(line([3, *range(130, 138)]), 9)) == 2


def test_chances_rise_with_the_length_of_the_match_and_fall_where_guesses_were_wrong() -> None:
    lookup = Lookup()
    sequence = line([*range(100, 140), 1, 2, 3, *range(100, 103)])
    short = lookup.foresee(sequence, 9)
    assert short == sorted(short)
    assert short[0] < short[-1]
    for n in range(11):
        at = 103 + 3 * n
        sequence.token_ids += [1000 + n, at, at + 1, at + 2]
        assert guesses(lookup, sequence, 1) == [at + 3]
    assert lookup.foresee(sequence, 1)[0] < 0.5 * short[0]


def test_a_guess_that_was_wrong_after_this_token_is_thought_less_likely_than_others() -> None:
    lookup = Lookup()
    sequence = line([*range(100, 140), 7, *range(100, 104)])
    guesses(lookup, sequence, 9)
    sequence.token_ids += [104, 9, *range(100, 104)]  # 105 was guessed, and 9 came
    chances = lookup.foresee(sequence, 3)
    assert chances[1] < chances[0]
    assert chances[1] < chances[2]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.booleans()), max_size=30))
def test_verdicts_move_a_chance_and_keep_it_one(notes: list[tuple[int, int, bool]]) -> None:
    verdicts = Verdicts()
    for before, guess, right in notes:
        was = verdicts.weigh(0.6, before, guess)
        verdicts.note(before, guess, right)
        now = verdicts.weigh(0.6, before, guess)
        assert now >= was if right else now <= was
        assert 0.2 < now < 0.9
        assert verdicts.weigh(0.6, before, 2) == 0.6


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_acceptance_becomes_what_is_seen_and_forgets_what_was(rate: float) -> None:
    random.seed(5)
    acceptance = SharedAcceptance([0.5, 0.5]).of_sequence()
    for share in (1.0 - rate, rate):
        for _ in range(400):
            acceptance.note(1, random.random() < share)
    assert acceptance.chance(1) == pytest.approx(rate, abs=0.2)
    assert acceptance.chance(0) == pytest.approx(0.5)
