"""Encoding for `llama` vocabularies, SentencePiece's way: what scores best merges first.

Knows nothing of control tokens in text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from edgeserve.binding.text import MergerOptions, scored_merger
from edgeserve.packed import PackedNumbers
from edgeserve.text.stop_tokens import BYTE, CONTROL, UNKNOWN
from edgeserve.text.tokenizer_fields import TokenizerFields
from edgeserve.text.vocabulary import Vocabulary

_SPACE = "▁"
_NUM_BYTES = 256

# Control tokens never come out of a merge (the reference would let them); others may.
_IS_MERGED = bytes(not kind & (CONTROL | UNKNOWN | BYTE) for kind in range(256))


class SentencePieceEngine:
    """Encodes plain text by merging the pair of the best score; other characters become bytes."""

    def __init__(self, vocabulary: Vocabulary, fields: TokenizerFields) -> None:
        byte_ids, unknown = _byte_ids(vocabulary), _unknown_id(vocabulary)
        if unknown is None and byte_ids is None:
            raise fields.error(
                "tokens", "hold neither all 256 byte tokens nor an unknown token to stand in"
            )
        options = MergerOptions(byte_ids=byte_ids, unknown=unknown)
        is_merged = vocabulary.kinds.translate(_IS_MERGED)
        scores = fields.numbers("scores", len(vocabulary.tokens))
        merger = scored_merger(vocabulary.ids, _floats(scores, len(is_merged)), is_merged, options)
        if isinstance(merger, int):
            found = None if scores is None else scores[merger]
            raise fields.error("scores", f"score {merger} is {found}, must be a finite float32")
        self._merger = merger

    def encode(self, text: str) -> list[int]:
        return self._merger.merge([text.replace(" ", _SPACE)])[0]

    def spelling(self, token: str) -> bytes:
        """The bytes that a normal token's text stands for."""
        return token.replace(_SPACE, " ").encode()


def _byte_ids(vocabulary: Vocabulary) -> list[int] | None:
    """The token of each byte, or None unless every byte has one."""
    kinds = vocabulary.kinds
    byte_tokens = (i for i in vocabulary.ids_of_kind(BYTE) if not kinds[i] & (CONTROL | UNKNOWN))
    ids = {vocabulary.tokens[token_id]: token_id for token_id in byte_tokens}
    found = [ids.get(f"<0x{byte:02X}>") for byte in range(_NUM_BYTES)]
    known = [token_id for token_id in found if token_id is not None]
    return known if len(known) == _NUM_BYTES else None


def _unknown_id(vocabulary: Vocabulary) -> int | None:
    """Of several unknown tokens the first stands in for text."""
    candidates = vocabulary.ids_of_kind(UNKNOWN)
    return next((i for i in candidates if not vocabulary.kinds[i] & CONTROL), None)


def _floats(scores: Sequence[float] | None, num_tokens: int) -> memoryview[Any]:
    """As float32, in which what is too large becomes infinite; without scores, all are 0."""
    if scores is None:
        return memoryview(bytes(4 * num_tokens)).cast("f")
    if isinstance(scores, PackedNumbers) and scores.view.format == "f":
        return scores.view
    return memoryview(array("f", scores))
