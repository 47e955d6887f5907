"""Cuts Markdown that is still being written into its top-level blocks.

A block that another one follows never changes again, so that only the last is looked at when text
comes. Tables are cut into rows (`markdown_rows.py`); code is kept in pieces of some lines, each
highlighted by itself; a very long line is a block of plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING

from edgeserve.tui.markdown_block import Block
from edgeserve.tui.markdown_rows import GrowingTable, table_blocks
from edgeserve.tui.terminal_text import shown

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from markdown_it.tree import SyntaxTreeNode

LONG_LINE = 4096
"""A longer one is shown as it is: reading 100,000 characters for emphasis takes seconds."""

_MAX_NESTING = 50
"""Of emphasis and links; of lists and quotes it is 20, the parser's."""

_CODE_LINES = 32
_MAX_CODE_LINES = 64
_MAX_CODE_CHARS = 4096
_PLAIN_LINES = 32


@cache
def parser() -> MarkdownIt:
    """CommonMark with tables, task lists aside. HTML is text; a link's target is where it is used,
    because one that is defined further down would change blocks that are done.

    Imported late: it takes as long as a tenth of the chat's start.
    """
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False})
    return markdown.enable(["table", "strikethrough"]).disable(["reference", "html_block"])


def tree_of(text: str) -> SyntaxTreeNode | None:
    """None where so much stands in one another that nobody could follow: Python neither, which
    goes down into each. A model that repeats itself writes thousands of asterisks around a word."""
    from markdown_it.tree import SyntaxTreeNode

    tokens = parser().parse(text)
    if any(_depth(token.children or ()) > _MAX_NESTING for token in tokens):
        return None
    return SyntaxTreeNode(tokens)


def _depth(tokens: Iterable[Token]) -> int:
    return max(accumulate(token.nesting for token in tokens), default=0)


_FENCE = re.compile(r"( {0,3})(`{3,})([^`\n]*)$|( {0,3})(~{3,})([^\n]*)$")


class MarkdownSource:
    """Text that grows at its end, as it came; blocks have it neutralised (`shown`), line by line.

    `settled` only grows, and `unsettled()` is what may still change. Fed in whatever pieces, both
    end up the same. `growing()` is the latter while more will come: the same pieces, but that a
    table's columns are as wide as its first rows need.
    """

    def __init__(self, *, is_ascii: bool = False) -> None:
        self.settled: list[Block] = []
        self._shown = partial(shown, is_ascii=is_ascii)
        self._tail = ""  # whole lines not in a settled block, outside of code
        self._line = ""  # the last line, without its newline so far
        self._fence: _Fence | None = None
        self._table: GrowingTable | None = None  # comes before the tail
        self._is_in_long_line = False

    def feed(self, text: str) -> None:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._take(line.removesuffix("\r"))
        if self._fence is not None:
            return
        if lines:
            self._settle_all_but_last()
        if self._is_in_long_line or len(self._line) > LONG_LINE:
            self._line = self._settle_long(self._line)

    def unsettled(self) -> list[Block]:
        """The blocks after the settled ones, as the text ends now."""
        table = "" if self._table is None else self._table.text
        return self._ending(lambda line: self._blocks(table + self._tail + line))

    def growing(self) -> list[Block]:
        """As `unsettled`, in which only the end is another one than before."""
        return self._ending(self._growing_with)

    def _growing_with(self, line: str) -> list[Block]:
        if self._table is None:
            return self._blocks(self._tail + line)
        if self._table.holds(line):
            return self._table.blocks(line)
        return [*self._table.blocks(""), *self._blocks(line)]

    def _ending(self, blocks: Callable[[str], list[Block]]) -> list[Block]:
        """`blocks` are those of what is not code, with the line so far."""
        line = self._shown(self._line)
        if self._is_in_long_line:
            return [Block("plain", line, begins=False)]
        if self._fence is not None:
            if self._fence.is_closed_by(line):
                return self._fence.rest()
            return self._fence.rest(line)
        if line and (fence := self._opened_by(line)) is not None:
            return [*blocks(""), *fence.rest()]
        return blocks(line)

    def _take(self, line: str) -> None:
        if self._fence is not None:
            line = self._shown(line)
            if self._fence.is_closed_by(line):
                self.settled += self._fence.rest()
                self._fence = None
            else:
                self.settled += self._fence.take(line)
        elif self._is_in_long_line or len(line) > LONG_LINE:
            rest = self._settle_long(line)
            self.settled.append(Block("plain", self._shown(rest), begins=False))
            self._is_in_long_line = False
        elif (fence := self._opened_by(self._shown(line))) is not None:
            self._settle_tail()
            self._fence = fence
        else:
            self._take_text(self._shown(line))

    def _take_text(self, line: str) -> None:
        table = self._table
        if table is not None and table.holds(line):
            table.take(line)
            if not table.is_sure:
                self._table, self._tail = None, table.text
            return
        if table is not None:
            self._settle_tail()
        self._tail += line + "\n"

    def _settle_long(self, line: str) -> str:
        """Settles pieces of a long line; what is left is less than one."""
        if not self._is_in_long_line:
            self._settle_tail()
        while len(line) > LONG_LINE:
            cut = line.rfind(" ", 0, LONG_LINE) + 1 or LONG_LINE
            begins = not self._is_in_long_line
            self.settled.append(Block("plain", self._shown(line[:cut]), begins=begins))
            self._is_in_long_line = True
            line = line[cut:]
        return line

    def _opened_by(self, line: str) -> _Fence | None:
        match = _FENCE.match(line)
        if match is None:
            return None
        indent, marks, info = match.group(1, 2, 3) if match[2] else match.group(4, 5, 6)
        if len(indent) > 1:  # it may belong to a list's item
            starts = self._starts(self._tail + line + "\n")
            if not starts or starts[-1] != self._tail.count("\n"):
                return None
        return _Fence(marks, info.strip(), len(indent))

    def _settle_tail(self) -> None:
        table = "" if self._table is None else self._table.text
        self.settled += self._blocks(table + self._tail)
        self._table, self._tail = None, ""

    def _settle_all_but_last(self) -> None:
        if not self._tail:
            return
        found = _cut(self._tail)
        if len(found) > 1:
            self.settled += [block for each in found[:-1] for block in _blocks_of(*each)]
            self._tail = found[-1][1]
        if found and found[-1][0] == "table_open":
            table = GrowingTable(found[-1][1], _is_table)
            if table.is_sure:
                self._table, self._tail = table, ""

    def _blocks(self, source: str) -> list[Block]:
        return [block for each in _cut(source) for block in _blocks_of(*each)]

    def _starts(self, source: str) -> Sequence[int]:
        return [start for _, start, _ in _tops(source)]


def _blocks_of(kind: str, text: str) -> list[Block]:
    return table_blocks(text) if kind == "table_open" else [Block("markdown", text)]


def _cut(source: str) -> list[tuple[str, str]]:
    """The kinds and texts of the top-level blocks."""
    tops = _tops(source)
    lines = source.split("\n")
    ends = [*(start for _, start, _ in tops[1:]), len(lines)]
    return [
        (kind, "\n".join(lines[a:b]) + ("\n" if b < len(lines) else ""))
        for (kind, a, _), b in zip(tops, ends, strict=bool(tops))
    ]


def _is_table(source: str) -> bool:
    """All of it, and nothing else."""
    tops = _tops(source)
    return [(kind, end) for kind, _, end in tops] == [("table_open", source.count("\n") + 1)]


def _tops(source: str) -> list[tuple[str, int, int]]:
    """The kinds of top-level blocks, the lines at which they begin, and those behind them; their
    inside is not looked at."""
    if not source.strip():
        return []
    from markdown_it.rules_block import StateBlock

    tokens: list[Token] = []
    state = StateBlock(source, parser(), {}, tokens)
    parser().block.tokenize(state, 0, state.lineMax)
    tops = [token for token in tokens if token.level == 0]
    return [(token.type, token.map[0], token.map[1]) for token in tops if token.map]


class _Fence:
    """A code block that is open."""

    def __init__(self, marks: str, info: str, indent: int) -> None:
        self._closing = re.compile(rf" {{0,3}}{marks[0]}{{{len(marks)},}}\s*$")
        self._indent = indent
        self._info = info
        self._lines: list[str] = []
        self._num_chars = 0
        self._begins = True

    def is_closed_by(self, line: str) -> bool:
        return self._closing.match(line) is not None

    def take(self, line: str) -> list[Block]:
        """The pieces that are complete now that `line` follows."""
        done: list[Block] = []
        if self._is_full_before(line):
            done.append(self._piece())
            self._lines = []
            self._num_chars = 0
            self._begins = False
        self._lines.append(self._bare(line))
        self._num_chars += len(line)
        return done

    def rest(self, line: str = "") -> list[Block]:
        """The last pieces, `line` being what is there of the next one."""
        lines = self._lines
        pieces: list[Block] = []
        if line and self._is_full_before(line):
            pieces.append(self._piece())
            pieces.append(Block("code", self._bare(line), self._info, begins=False))
            return pieces
        text = "\n".join([*lines, self._bare(line)] if line else lines)
        return [Block("code", text, self._info, begins=self._begins)]

    def _is_full_before(self, line: str) -> bool:
        """A piece ends where code is likely to begin anew: before an unindented line."""
        count = len(self._lines)
        if count >= _MAX_CODE_LINES or self._num_chars >= _MAX_CODE_CHARS:
            return True
        is_seam = line[:1].strip() != "" and not self._lines[-1].strip() if count else False
        return count >= _CODE_LINES and is_seam

    def _piece(self) -> Block:
        return Block("code", "\n".join(self._lines), self._info, self._begins)

    def _bare(self, line: str) -> str:
        spaces = len(line) - len(line.lstrip(" "))
        return line[min(spaces, self._indent) :]


class PlainSource:
    """The same for text in which nothing but its lines means anything."""

    def __init__(self, *, is_ascii: bool = False) -> None:
        self.settled: list[Block] = []
        self._shown = partial(shown, is_ascii=is_ascii)
        self._lines: list[str] = []
        self._line = ""

    def feed(self, text: str) -> None:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            if len(self._lines) == _PLAIN_LINES:
                self.settled.append(self._piece(self._lines))
                self._lines = []
            self._lines.append(self._shown(line.removesuffix("\r")))

    def growing(self) -> list[Block]:
        return self.unsettled()

    def unsettled(self) -> list[Block]:
        return [self._piece([*self._lines, self._shown(self._line)])]

    def _piece(self, lines: Sequence[str]) -> Block:
        return Block("plain", "\n".join(lines), begins=not self.settled)
