"""Which tokens make up a text that ends a repetition, for DRY. As llama.cpp finds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgeserve.text.tokenizer import Tokenizer
from edgeserve.types import SequenceBreakers

_MAX_TAIL = 20


def sequence_breakers(tokenizer: Tokenizer, texts: Sequence[str]) -> SequenceBreakers:
    """Every token that contains one of `texts`; and every token that ends in the beginning of one,
    followed by the tokens of the rest.

    The rest is tokenized in one way only, is at most 20 tokens long, and begins with a whole
    character: other spellings of a text that spans tokens end nothing. Looks at the whole
    vocabulary, which takes a third of a second where it is large.
    """
    return SequenceBreakers.of(tokenizer.vocab_size, _sequences(tokenizer, texts))


def _sequences(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[tuple[int, ...]]:
    wanted = [text.encode() for text in texts]
    tails = {text: dict(_tails(tokenizer, text)) for text in wanted}
    for token_id in range(tokenizer.vocab_size):
        piece = tokenizer.token_bytes(token_id)
        for text in wanted:
            if text in piece:
                yield (token_id,)
                continue
            for length, tail in tails[text].items():
                if piece.endswith(text[:length]):
                    yield (token_id, *tail)


def _tails(tokenizer: Tokenizer, text: bytes) -> Iterator[tuple[int, list[int]]]:
    """For each beginning of `text`, by its length: the tokens of what follows it."""
    for length in range(1, len(text)):
        try:
            rest = text[length:].decode()
        except UnicodeDecodeError:
            continue
        yield length, tokenizer.encode_continuation(rest)[:_MAX_TAIL]
