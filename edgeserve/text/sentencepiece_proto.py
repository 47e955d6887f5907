"""A `llama` vocabulary as the protobuf message that the sentencepiece library reads.

Writes the few fields that it reads, with numpy: there are a quarter of a million tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeserve.text.stop_tokens import BYTE, CONTROL, UNKNOWN
from edgeserve.text.tokenizer_fields import TokenizerFields
from edgeserve.text.vocabulary import Vocabulary

_NUM_BYTES = 256

# sentencepiece_model.proto: Type of a piece, and the field tags in use.
_PIECE_NORMAL, _PIECE_UNKNOWN, _PIECE_CONTROL, _PIECE_BYTE = 1, 2, 3, 6
_TAG_PIECE, _TAG_TRAINER, _TAG_NORMALIZER = 0x0A, b"\x12", b"\x1a"
_TAG_TEXT, _TAG_SCORE, _TAG_TYPE = 0x0A, 0x15, 0x18
_HEAD = np.dtype(
    [("piece_tag", "u1"), ("num_bytes", "<u4"), ("text_tag", "u1"), ("num_text_bytes", "<u4")]
)
_TAIL = np.dtype([("score_tag", "u1"), ("score", "<f4"), ("type_tag", "u1"), ("type", "u1")])
_TEXT_HEAD_BYTES = 5  # of a head, what is inside its piece
_MAX_FLOAT32 = 3.4028234663852886e38
_MODEL_TYPE_BPE = b"\x18\x02"
_BYTE_FALLBACK = b"\x98\x02"  # followed by 0 or 1
# An identity: no prefix, no squeezing of spaces, no escaping; the engine does what is to be done.
_NORMALIZER = b"\x0a\x08identity" + b"\x18\x00" + b"\x20\x00" + b"\x28\x00"


def model_proto(vocabulary: Vocabulary, fields: TokenizerFields) -> bytes:
    """A sentencepiece model of these tokens, serialised. Raises TokenizerError."""
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
        tokens, types = [*tokens, unused], types + bytes([_PIECE_UNKNOWN])
        scores = np.append(scores, np.float32(0))
    trainer = _MODEL_TYPE_BPE + _BYTE_FALLBACK + (b"\x01" if falls_back else b"\x00")
    return b"".join(
        (
            _pieces(tokens, scores, types),
            _TAG_TRAINER + _varint(len(trainer)) + trainer,
            _TAG_NORMALIZER + _varint(len(_NORMALIZER)) + _NORMALIZER,
        )
    )


def _read_scores(fields: TokenizerFields, num_tokens: int) -> NDArray[np.float32]:
    """A score per token; without any in the file, all are 0."""
    scores = fields.numbers("scores", num_tokens)
    if scores is None:
        return np.zeros(num_tokens, np.float32)
    found = np.array(scores, np.float64)
    bad = np.flatnonzero(~(np.abs(found) <= _MAX_FLOAT32))
    if len(bad):
        index = int(bad[0])
        raise fields.error("scores", f"score {index} is {scores[index]}, must be a finite float32")
    return found.astype(np.float32)


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


def _pieces(tokens: Sequence[str], scores: NDArray[np.float32], types: bytes) -> bytes:
    """All pieces, each its head, its text and its tail, without a Python step for each."""
    text = np.frombuffer("".join(tokens).encode(), np.uint8)
    lengths = _byte_lengths(tokens, text)
    heads, tails = np.empty(len(tokens), _HEAD), np.empty(len(tokens), _TAIL)
    inside = _TEXT_HEAD_BYTES + lengths + _TAIL.itemsize
    heads["piece_tag"], heads["num_bytes"] = _TAG_PIECE, _varints(inside)
    heads["text_tag"], heads["num_text_bytes"] = _TAG_TEXT, _varints(lengths)
    tails["score_tag"], tails["score"] = _TAG_SCORE, scores
    tails["type_tag"], tails["type"] = _TAG_TYPE, np.frombuffer(types, np.uint8)

    around = _HEAD.itemsize + _TAIL.itemsize
    ends = np.cumsum(lengths + around)
    model = np.empty(ends[-1], np.uint8)
    for table, first in ((heads, ends - lengths - around), (tails, ends - _TAIL.itemsize)):
        columns = table.view(np.uint8).reshape(len(tokens), -1).T
        for index, column in enumerate(columns):
            model[first + index] = column
    before_text = np.arange(len(tokens)) * around + _HEAD.itemsize
    model[np.arange(len(text)) + np.repeat(before_text, lengths)] = text
    return model.tobytes()


def _byte_lengths(tokens: Sequence[str], text: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Of each token; `text` is all of them in UTF-8, in which later bytes begin with bits 10."""
    character_at = np.append(np.flatnonzero((text & 0xC0) != 0x80), len(text))
    num_characters = np.fromiter(map(len, tokens), np.int64, len(tokens))
    return np.diff(character_at[np.cumsum(num_characters)], prepend=0)


def _varints(values: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Numbers below 2^28 as varints of four bytes each, also where fewer would do."""
    spread = (
        values & 0x7F | values << 1 & 0x7F00 | values << 2 & 0x7F0000 | values << 3 & 0x7F000000
    )
    return (spread | 0x808080).astype(np.uint32)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))
