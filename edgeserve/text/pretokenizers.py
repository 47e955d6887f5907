"""Cuts text into the pieces within which a byte-pair vocabulary merges its tokens.

Reads the rules the way the reference does: one that names a Unicode category sees the text with
every non-ASCII character replaced by its class, any other sees the text itself. Knows no tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgeserve.text.pretokenizer_styles import PreTokenizerStyle, Span
from edgeserve.text.unicode_classes import (
    HAN_LETTER,
    HAN_OTHER,
    LETTER,
    MARK,
    NUMBER,
    PUNCTUATION,
    SYMBOL,
    class_table,
    han_class_table,
)

_CATEGORIES = {
    r"\p{L}": f"A-Za-z{LETTER}",
    r"\p{l}": LETTER,
    r"\p{N}": f"0-9{NUMBER}",
    r"\p{P}": rf"!-#%-*,-/:;?@\[-\]_{{}}{PUNCTUATION}",
    r"\p{M}": MARK,
    r"\p{S}": rf"$+<=>\^`|~{SYMBOL}",
    r"\p{Han}": f"{HAN_LETTER}{HAN_OTHER}",
    r"\p{HanL}": HAN_LETTER,
}
_WIDE_SPACES = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


def _expand(pattern: str) -> re.Pattern[str]:
    for name, members in _CATEGORIES.items():
        pattern = pattern.replace(name, members)
    return re.compile(pattern, re.ASCII)  # \s and \d beyond ASCII are the classes' business


def _cut(pattern: re.Pattern[str], text: str, spans: Sequence[Span]) -> list[Span]:
    pieces: list[Span] = []
    append, finditer = pieces.append, pattern.finditer
    for start, end in spans:
        at = start
        for match in finditer(text, start, end):
            first, last = match.span()
            if first > at:
                append((at, first))
            append((first, last))
            at = last
        if at < end:
            append((at, end))
    return pieces


class PreTokenizer:
    """Cuts text into the pieces within which tokens are merged."""

    def __init__(self, style: PreTokenizerStyle) -> None:
        self._uses_han = any(isinstance(rule, str) and r"\p{Han}" in rule for rule in style.rules)
        # (reads classes, pattern or function)
        self._rules = [
            (r"\p{" in rule, _expand(rule)) if isinstance(rule, str) else (True, rule)
            for rule in style.rules
        ]

    def split(self, text: str) -> list[str]:
        """The pieces of `text` in order; joined, they are the text."""
        classes = plain = text
        if not text.isascii():
            classes = text.translate(han_class_table() if self._uses_han else class_table())
            plain = _WIDE_SPACES.sub("\v", text)
        spans: list[Span] = [(0, len(text))]
        for reads_classes, rule in self._rules:
            seen = classes if reads_classes else plain
            spans = _cut(rule, seen, spans) if isinstance(rule, re.Pattern) else rule(seen, spans)
        return [text[start:end] for start, end in spans]
