"""Lines of styled text, and how a run of text is broken into them. Text here has passed `shown`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style

from edgeserve.frozen import frozen

Span = tuple[str, Style]


@frozen
class Line:
    """One line of the screen. `spans` lie side by side from the left.

    The first `decoration` characters are not the text's own (a quote's bar, an indentation made by
    wrapping); `joint` is what stood between the line above and this one in the text.
    """

    spans: tuple[Span, ...]
    decoration: int = 0
    joint: str = "\n"

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.spans)

    @property
    def cells(self) -> int:
        return sum(cell_len(text) for text, _ in self.spans)

    def segments(self) -> list[Segment]:
        return [Segment(text, style) for text, style in self.spans]

    def behind(self, prefix: Span) -> Line:
        """The line with a decoration before it."""
        return Line((prefix, *self.spans), self.decoration + len(prefix[0]), self.joint)


BLANK = Line(())
END = Line((), joint="\n\n")
"""What lies between two turns."""

_WORDS = re.compile(r"\s*\S+|\s+$")
_WIDE_OR_WORD = (
    r"\s*(?:[\u1100-\u115f\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f"
    r"\uff01-\uff60\U00020000-\U0003fffd][\u3001\u3002\uff0c\uff0e\uff01\uff1f\uff1a\uff1b]?"
    r"|[^\s\u1100-\u115f\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f"
    r"\uff01-\uff60\U00020000-\U0003fffd]+)|\s+$"
)
"""Chinese, Japanese and Korean break between any two characters, but not before a full stop."""


@cache
def _wide_or_word() -> re.Pattern[str]:
    return re.compile(_WIDE_OR_WORD)


def wrap_words(spans: Sequence[Span], width: int) -> list[Line]:
    """Broken at spaces, which are dropped there; a word longer than a line is broken inside."""
    text = "".join(part for part, _ in spans)
    ranges: list[tuple[int, int]] = []
    joints: list[str] = []
    at = 0
    for paragraph in text.split("\n"):
        found = list(_line_ranges(paragraph, width)) or [(0, 0)]
        ranges += [(at + start, at + end) for start, end in found]
        joints.append("\n")
        joints += [paragraph[a[1] : b[0]] for a, b in pairwise(found)]
        at += len(paragraph) + 1
    return _cut(spans, ranges, joints)


def wrap_cells(spans: Sequence[Span], width: int) -> list[Line]:
    """Broken where the line is full: for code, in which spaces count. No newline in it."""
    text = "".join(part for part, _ in spans)
    if not text:
        return [BLANK]
    ranges = list(pairwise([0, *_fold_ends(text, width)]))
    return _cut(spans, ranges, ["\n", *[""] * (len(ranges) - 1)])


def _line_ranges(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Where each line begins and ends in `text`; what lies between two lines is spaces."""
    room_of = len if text.isascii() else cell_len
    words = _WORDS if text.isascii() else _wide_or_word()
    start = end = used = 0  # the line so far, and its cells
    for match in words.finditer(text):
        room = room_of(match[0])
        if used and used + room > width:
            yield start, end
            start = end = match.end() - len(match[0].lstrip())
            used, room = 0, room_of(text[start : match.end()])
        end = match.end()
        if used + room > width:
            *full, _ = _fold_ends(text[start:end], width)
            yield from pairwise([start, *(start + offset for offset in full)])
            start += full[-1] if full else 0
            room = room_of(text[start:end])
        used += room
    if end > start:
        yield start, end


def _fold_ends(text: str, width: int) -> Iterator[int]:
    """The ends of pieces of at most `width` cells."""
    if text.isascii():
        yield from range(width, len(text), width)
        yield len(text)
        return
    end = 0
    for piece in chop_cells(text, max(width, 2)):
        end += len(piece)
        yield end


def _cut(
    spans: Sequence[Span], ranges: Sequence[tuple[int, int]], joints: Sequence[str]
) -> list[Line]:
    """The spans' parts in `ranges` of characters, which ascend."""
    lines: list[Line] = []
    index = at = 0  # the span that is looked at, and where it begins
    for (start, end), joint in zip(ranges, joints, strict=True):
        found: list[Span] = []
        while index < len(spans):
            text, style = spans[index]
            if part := text[max(start - at, 0) : max(end - at, 0)]:
                found.append((part, style))
            if at + len(text) > end:
                break
            at += len(text)
            index += 1
        lines.append(Line(tuple(found), joint=joint))
    return lines
