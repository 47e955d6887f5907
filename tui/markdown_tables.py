"""Tables that fit: columns share the width, and what is wider wraps inside its cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.style import Style

from edgeserve.frozen import frozen
from edgeserve.tui.lines import BLANK, Line, Span, wrap_words
from edgeserve.tui.look import Look
from edgeserve.tui.markdown_inline import inline_spans

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

_MIN_COLUMN = 3
_ENDLESS = 1 << 20


@frozen
class TableShape:
    """How wide each column is where nothing in it wraps, and to which side it is."""

    naturals: tuple[int, ...]
    aligns: tuple[str, ...]


def table_lines(node: SyntaxTreeNode, width: int, look: Look) -> list[Line]:
    """The head, a rule, the rows. A table with more columns than fit is a list of its cells."""
    return rows_lines(node, shape_of(node, look), width, look, begins=True)


def shape_of(node: SyntaxTreeNode, look: Look) -> TableShape:
    cells = _cells(node, look)
    naturals = tuple(_natural(cells, i) for i in range(len(cells[0])))
    return TableShape(
        naturals, tuple(_align(cell) for cell in node.children[0].children[0].children)
    )


def rows_lines(
    node: SyntaxTreeNode, shape: TableShape, width: int, look: Look, *, begins: bool
) -> list[Line]:
    """A table's rows in the columns of another one, of which it is a piece with the same head; the
    head is shown only where the piece `begins` the table."""
    cells = _cells(node, look)
    columns = len(cells[0])
    room = width - 3 * (columns - 1)
    if room < columns * _MIN_COLUMN:
        records = _as_records(cells, width, look)
        return records if begins else [BLANK, *records]
    widths = _shared(shape.naturals, room)
    lines: list[Line] = []
    between = (f" {look.marks.column} ", look.dim)
    for number, row in enumerate(cells):
        if number or begins:
            lines += _row(row, widths, shape.aligns, between)
        if number == 0 and begins:
            rule = f"{look.marks.rule}{look.marks.crossing}{look.marks.rule}".join(
                look.marks.rule * w for w in widths
            )
            lines.append(Line(((rule, look.dim),)))
    return lines


def _cells(node: SyntaxTreeNode, look: Look) -> list[list[list[Span]]]:
    """By row and column, the head first."""
    rows = [row for part in node.children for row in part.children]
    return [
        [_cell(cell, look, is_head=i == 0) for cell in row.children] for i, row in enumerate(rows)
    ]


def _cell(cell: SyntaxTreeNode, look: Look, *, is_head: bool) -> list[Span]:
    return inline_spans(cell, look, look.text + look.strong if is_head else None)


def _align(cell: SyntaxTreeNode) -> str:
    return str(cell.attrs.get("style", "")).removeprefix("text-align:") or "left"


def _natural(cells: Sequence[Sequence[Sequence[Span]]], column: int) -> int:
    """The width at which no cell of the column wraps."""
    return max(
        (line.cells for row in cells for line in wrap_words(row[column], _ENDLESS)), default=0
    )


def _shared(natural: Sequence[int], room: int) -> list[int]:
    """The narrow columns get what they need, and the wide ones share the rest alike."""
    widths = [max(w, _MIN_COLUMN) for w in natural]
    open_columns = sorted(range(len(widths)), key=widths.__getitem__)
    while open_columns:
        share = room // len(open_columns)
        column = open_columns.pop(0)
        widths[column] = min(widths[column], max(share, _MIN_COLUMN))
        room -= widths[column]
    return widths


def _row(
    row: Sequence[Sequence[Span]], widths: Sequence[int], aligns: Sequence[str], between: Span
) -> list[Line]:
    columns = [wrap_words(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines: list[Line] = []
    for i in range(max(len(column) for column in columns)):
        spans: list[Span] = []
        for column, width, align in zip(columns, widths, aligns, strict=True):
            spans += [between] if spans else []
            spans += _aligned(column[i] if i < len(column) else BLANK, width, align)
        lines.append(Line(tuple(spans)))
    return lines


def _aligned(line: Line, width: int, align: str) -> list[Span]:
    space = max(0, width - line.cells)
    left = {"right": space, "center": space // 2}.get(align, 0)
    blanks: list[Span] = [(" " * n, Style.null()) for n in (left, space - left)]
    return [blanks[0], *line.spans, blanks[1]]


def _as_records(cells: Sequence[Sequence[Sequence[Span]]], width: int, look: Look) -> list[Line]:
    head, *rows = cells
    lines: list[Line] = []
    for row in rows:
        lines += [BLANK] if lines else []
        for name, cell in zip(head, row, strict=True):
            lines += wrap_words([*name, (": ", look.dim), *cell], width)
    return lines
