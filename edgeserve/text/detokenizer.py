"""Turns generated tokens into text as they come, never cutting a character in two.

Knows nothing of stop strings, requests or how tokens are chosen.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from edgeserve.text.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """The text of one stream of tokens, piece by piece.

    All pieces together are `Tokenizer.decode_continuation` of all tokens: bytes that are no
    UTF-8 become U+FFFD, and a leading space stays, since what is generated goes on from a prompt.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        skip_special: bool = True,
        shown_ids: frozenset[int] = frozenset(),
    ) -> None:
        """`shown_ids` are control tokens whose text comes out although others are skipped."""
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._shown_ids = shown_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_ids: Iterable[int]) -> str:
        """The text that these tokens complete. The bytes of an unfinished character wait."""
        tokenizer, data = self._tokenizer, b""
        for token_id in token_ids:
            skipped = self._skip_special and tokenizer.is_control(token_id)
            if not skipped or token_id in self._shown_ids:
                data += tokenizer.token_bytes(token_id)
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left when no more tokens come: U+FFFD if a character was cut short."""
        return self._decoder.decode(b"", final=True)
