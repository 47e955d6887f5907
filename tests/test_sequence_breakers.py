"""Which tokens end a repetition: those that hold a breaker, and those that begin one."""

from __future__ import annotations

from edgeserve.text.sequence_breakers import sequence_breakers
from edgeserve.text.tokenizer import Tokenizer

from .engine_harness import ids_of, tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def texts_of(tokenizer: Tokenizer, sequences: tuple[tuple[int, ...], ...]) -> set[tuple[str, ...]]:
    return {tuple(tokenizer.token_text(i) for i in ids) for ids in sequences}


def test_every_token_that_contains_a_breaker_ends_a_repetition() -> None:
    found = texts_of(TOKENIZER, sequence_breakers(TOKENIZER, ["n"]).sequences)
    pieces = {TOKENIZER.token_text(i) for i in range(TOKENIZER.vocab_size)}
    assert found == {(piece,) for piece in pieces if "n" in piece}
    assert ("n",) in found
    assert len(found) > 2


def test_a_breaker_may_begin_in_a_token_and_go_on_in_others() -> None:
    found = sequence_breakers(TOKENIZER, ["e:"])
    (colon,) = ids_of(TOKENIZER, ":")
    ending_in_e = [i for i in range(TOKENIZER.vocab_size) if TOKENIZER.token_bytes(i)[-1:] == b"e"]
    assert set(found.sequences) == {(i, colon) for i in ending_in_e}
    assert len(ending_in_e) > 2


def test_a_breaker_goes_on_with_whole_characters_only() -> None:
    found = sequence_breakers(TOKENIZER, ["aé"])
    (a,) = ids_of(TOKENIZER, "a")
    heads = {ids[0] for ids in found.sequences}
    assert a in heads
    assert not heads & set(ids_of(TOKENIZER, "é"))


def test_no_breakers_are_none() -> None:
    assert sequence_breakers(TOKENIZER, []).sequences == ()
