"""The tag that ends reasoning: how it is known in generated tokens, and by which it is written.

Usually it is one control token. Where it is text, a model may spell it in other tokens than the
tokenizer does, and go on behind it within one token: so it is known by its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

TokenBytes = Callable[[int], bytes]


class EndTag:
    """One tag of one vocabulary. Safe for several threads."""

    def __init__(
        self,
        text: str,
        encode: Callable[[str], Sequence[int]],
        spelling: TokenBytes,
        vocab_size: int,
    ) -> None:
        """`spelling` gives a token's bytes."""
        self._text = text.encode()
        self._encode = encode
        self._ids = tuple(encode(text))
        self._vocab_size = vocab_size
        self._found: dict[bytes, Sequence[int]] = {}  # no more than the tag has bytes
        self.spelling = spelling

    @property
    def can_be_written(self) -> bool:
        """Whether the vocabulary has tokens for it."""
        return len(self._ids) == 1 or self._text in self._spelt(self._ids)

    def follow(self, tail: bytes, token_id: int) -> bytes | None:
        """What of the tag stands at the text's end when a token comes behind `tail`; None if the
        tag is whole."""
        if len(self._ids) == 1:
            return None if token_id == self._ids[0] else b""
        text = tail + self.spelling(token_id)
        if self._text in text:
            return None
        longest = min(len(text), len(self._text) - 1)
        sizes = range(longest, 0, -1)
        return next((text[-n:] for n in sizes if self._text.startswith(text[-n:])), b"")

    def rest(self, tail: bytes) -> tuple[int, ...]:
        """The tokens that complete the tag, of which `tail` stands there."""
        left = self._text[len(tail) :]
        try:
            ids = tuple(self._encode(left.decode())) if tail else self._ids
        except UnicodeDecodeError:  # it was cut within a character
            return self._ids
        return ids if self._spelt(ids) == left else self._ids

    def running_on(self, tail: bytes) -> Sequence[int]:
        """The tokens that complete the tag, of which `tail` stands there, and hold more than it."""
        if len(self._ids) == 1:
            return ()
        if tail not in self._found:
            cut = ((at, (tail + spelt).partition(self._text)) for at, spelt in self._long)
            self._found[tail] = [at for at, (_, tag, more) in cut if tag and more.strip()]
        return self._found[tail]

    @cached_property
    def _long(self) -> Sequence[tuple[int, bytes]]:
        """Tokens in which something stands behind the tag's last character."""
        last = self._text[-1:]
        spelt = ((token_id, self.spelling(token_id)) for token_id in range(self._vocab_size))
        return [pair for pair in spelt if pair[1].partition(last)[2].strip()]

    def _spelt(self, ids: Sequence[int]) -> bytes:
        return b"".join(map(self.spelling, ids))
