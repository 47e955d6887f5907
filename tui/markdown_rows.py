"""A table's rows as they come, in pieces of some rows: a row that was written stays as it is, so
that another one costs the last piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgeserve.tui.markdown_block import Block

_ROWS = 16
_MAX_MISSING = 1 << 16
"""So many cells that a table's rows lack end it for the parser."""


def table_blocks(text: str) -> list[Block]:
    """A whole table's: a short one is one block, else all its rows measure the columns."""
    pieces = _pieces(text)
    return [Block("markdown", text)] if len(pieces) == 1 else _blocks(pieces, text)


class GrowingTable:
    """`text` is of whole lines, blank ones at its end included; `is_table` says of two lines of a
    head and one more whether all three are a table."""

    def __init__(self, text: str, is_table: Callable[[str], bool]) -> None:
        self._is_table = is_table
        lines = _lines(text)
        self._head = "".join(lines[:2])
        self._columns = lines[0].strip().removeprefix("|").removesuffix("|").count("|") + 1
        self._missing = 0
        for line in lines[2:]:
            self._count(line)
        self._pieces = _pieces(text)
        self._done: list[Block] = []
        self._is_over = not lines[-1].strip()

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def is_sure(self) -> bool:
        """Whether where it ends can be told from one line alone."""
        return self._missing <= _MAX_MISSING

    def holds(self, line: str) -> bool:
        """Whether a line that follows belongs to it, or is blank."""
        if not line.strip():
            return True
        return not self._is_over and self._is_table(self._head + line)

    def take(self, line: str) -> None:
        """One that it holds."""
        self._is_over = self._is_over or not line.strip()
        self._count(line)
        self._pieces = _with_line(self._pieces, f"{line}\n")

    def blocks(self, line: str) -> list[Block]:
        """With `line` as far as it has come; columns are measured by the first piece."""
        pieces = _with_line(self._pieces, line) if line else self._pieces
        if len(pieces) == 1:
            return [Block("markdown", pieces[0])]
        for piece in pieces[len(self._done) : -1]:
            self._done.append(Block("rows", piece, pieces[0], begins=not self._done))
        return [*self._done[: len(pieces) - 1], Block("rows", pieces[-1], pieces[0], begins=False)]

    def _count(self, line: str) -> None:
        cells = line.count("|") - line.count("\\|") - 1
        self._missing += max(0, self._columns - max(0, cells))


def _blocks(pieces: Sequence[str], measured_by: str) -> list[Block]:
    return [Block("rows", piece, measured_by, begins=i == 0) for i, piece in enumerate(pieces)]


def _pieces(text: str) -> list[str]:
    """The head goes with the first, blank lines at the end with the last."""
    lines = _lines(text)
    num_rows = text.rstrip().count("\n") - 1
    starts = [0, *range(2 + _ROWS, 2 + num_rows, _ROWS)]
    ends = [*starts[1:], len(lines)]
    return ["".join(lines[a:b]) for a, b in zip(starts, ends, strict=True)]


def _lines(text: str) -> list[str]:
    *whole, last = text.split("\n")
    return [*(f"{line}\n" for line in whole), *([last] if last else [])]


def _with_line(pieces: list[str], line: str) -> list[str]:
    num_rows = pieces[-1].count("\n") - (2 if len(pieces) == 1 else 0)
    if num_rows >= _ROWS and line.strip():
        return [*pieces, line]
    return [*pieces[:-1], pieces[-1] + line]
