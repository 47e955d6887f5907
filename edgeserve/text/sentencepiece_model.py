"""Encoding for `llama` vocabularies: the sentencepiece library over a model built in memory.

Knows nothing of control tokens in text.
"""

from __future__ import annotations

from edgeserve.text.tokenizer_fields import TokenizerFields
from edgeserve.text.vocabulary import Vocabulary

_SPACE = "▁"


class SentencePieceEngine:
    """Encodes plain text by merging the pair of the best score; other characters become bytes."""

    def __init__(self, vocabulary: Vocabulary, fields: TokenizerFields) -> None:
        from sentencepiece import SentencePieceProcessor

        from edgeserve.text.sentencepiece_proto import model_proto

        self._processor = SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model_proto(vocabulary, fields))

    def encode(self, text: str) -> list[int]:
        return self._processor.EncodeAsIds(text.replace(" ", _SPACE))

    def spelling(self, token: str) -> bytes:
        """The bytes that a normal token's text stands for."""
        return token.replace(_SPACE, " ").encode()
