"""Encoding for `llama` vocabularies: the sentencepiece library over a model built in memory.

Writes the few protobuf fields that the library reads. Knows nothing of control tokens in text.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import repeat

from edgeserve.text.stop_tokens import BYTE, CONTROL, UNKNOWN
from edgeserve.text.tokenizer_fields import TokenizerFields
from edgeserve.text.vocabulary import Vocabulary

_SPACE = "▁"
_NUM_BYTES = 256

# sentencepiece_model.proto: Type of a piece, and the field tags in use.
_PIECE_NORMAL, _PIECE_UNKNOWN, _PIECE_CONTROL, _PIECE_BYTE = 1, 2, 3, 6
_TAG_PIECES, _TAG_TRAINER, _TAG_NORMALIZER = b"\x0a", b"\x12", b"\x1a"
_TAG_TEXT, _TAG_SCORE, _TAG_TYPE = b"\x0a", 0x15, 0x18
_TAIL = struct.Struct("<BfBB")
_MAX_FLOAT32 = 3.4028234663852886e38
_MODEL_TYPE_BPE = b"\x18\x02"
_BYTE_FALLBACK = b"\x98\x02"  # followed by 0 or 1
# An identity: no prefix, no squeezing of spaces, no escaping; the engine does what is to be done.
_NORMALIZER = b"\x0a\x08identity" + b"\x18\x00" + b"\x20\x00" + b"\x28\x00"


class SentencePieceEngine:
    """Encodes plain text by merging the pair of the best score; other characters become bytes."""

    def __init__(self, vocabulary: Vocabulary, fields: TokenizerFields) -> None:
        from sentencepiece import SentencePieceProcessor

        self._processor = SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(_model(vocabulary, fields))

    def encode(self, text: str) -> list[int]:
        return self._processor.EncodeAsIds(text.replace(" ", _SPACE))

    def spelling(self, token: str) -> bytes:
        """The bytes that a normal token's text stands for."""
        return token.replace(_SPACE, " ").encode()


def _model(vocabulary: Vocabulary, fields: TokenizerFields) -> bytes:
    tokens, types = vocabulary.tokens, _piece_types(vocabulary)
    scores = _read_scores(fields, len(tokens))
    falls_back = types.count(_PIECE_BYTE) == _NUM_BYTES
    if not falls_back:
        types = types.replace(bytes([_PIECE_BYTE]), bytes([_PIECE_CONTROL]))
    if _PIECE_UNKNOWN not in types:
        if not falls_back:
            raise fields.error(
                "tokens", "hold neither all 256 byte tokens nor an unknown token to stand in"
            )
        # The library insists on one. It is past the vocabulary's end, and bytes come first.
        unused = next(text for n in range(len(tokens) + 1) if (text := f"<unk{n}>") not in tokens)
        tokens, scores, types = [*tokens, unused], [*scores, 0.0], types + b"\x02"
    trainer = _MODEL_TYPE_BPE + _BYTE_FALLBACK + (b"\x01" if falls_back else b"\x00")
    return b"".join(
        (
            _pieces(tokens, scores, types),
            _TAG_TRAINER + _varint(len(trainer)) + trainer,
            _TAG_NORMALIZER + _varint(len(_NORMALIZER)) + _NORMALIZER,
        )
    )


def _read_scores(fields: TokenizerFields, num_tokens: int) -> Sequence[float]:
    """A score per token; without any in the file, all are 0."""
    scores = fields.numbers("scores", num_tokens)
    if scores is None:
        return [0.0] * num_tokens
    if not all(map(math.isfinite, scores)) or max(map(abs, scores)) > _MAX_FLOAT32:
        bad = (i for i, s in enumerate(scores) if not abs(s) <= _MAX_FLOAT32)
        index = next(bad)
        raise fields.error("scores", f"score {index} is {scores[index]}, must be a finite float32")
    return scores


def _piece_types(vocabulary: Vocabulary) -> bytes:
    """Control tokens never come out of a merge (the reference would let them); others may.

    Of several unknown tokens only the first is the library's.
    """
    type_of_kind = bytes(
        _PIECE_CONTROL
        if kind & CONTROL
        else _PIECE_UNKNOWN
        if kind & UNKNOWN
        else _PIECE_BYTE
        if kind & BYTE
        else _PIECE_NORMAL
        for kind in range(256)
    )
    types = vocabulary.kinds.translate(type_of_kind)
    head, unknown, tail = types.partition(bytes([_PIECE_UNKNOWN]))
    return head + unknown + tail.replace(bytes([_PIECE_UNKNOWN]), bytes([_PIECE_CONTROL]))


def _pieces(tokens: Sequence[str], scores: Sequence[float], types: bytes) -> bytes:
    # A piece is its length, then text (tag, length, bytes), score (tag, 4 bytes), type (tag, 1).
    texts = list(map(str.encode, tokens))
    lengths = list(map(len, texts))
    heads: dict[int, bytes] = {}
    for length in set(lengths):
        text_head = _TAG_TEXT + _varint(length)
        heads[length] = _TAG_PIECES + _varint(len(text_head) + length + _TAIL.size) + text_head
    # Interleaved without a Python step per token: there are a quarter of a million.
    parts = [b""] * (3 * len(texts))
    parts[0::3] = map(heads.__getitem__, lengths)
    parts[1::3] = texts
    parts[2::3] = map(_TAIL.pack, repeat(_TAG_SCORE), scores, repeat(_TAG_TYPE), types)
    return b"".join(parts)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))
