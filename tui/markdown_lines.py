"""Markdown's blocks as lines of a given width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.style import Style

from edgeserve.tui.lines import BLANK, Line, Span, wrap_words
from edgeserve.tui.look import Look
from edgeserve.tui.markdown_block import Block
from edgeserve.tui.markdown_blocks import MarkdownSource, parser, tree_of
from edgeserve.tui.markdown_code import code_lines
from edgeserve.tui.markdown_inline import inline_spans
from edgeserve.tui.markdown_tables import TableShape, rows_lines, shape_of, table_lines
from edgeserve.tui.terminal_text import shown

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

_MIN_WIDTH = 8
_MAX_SHAPES = 8


class MarkdownLines:
    """Draws blocks with one look."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self._shapes: dict[str, TableShape | None] = {}  # by the source that measures

    def document(self, text: str, width: int) -> list[Line]:
        """A whole text, its blocks with a blank line between them."""
        source = MarkdownSource(is_ascii=self.look.marks.is_ascii)
        source.feed(text)
        lines: list[Line] = []
        for block in [*source.settled, *source.unsettled()]:
            lines += [BLANK] if lines and block.begins else []
            lines += self.block(block, width)
        return lines

    def block(self, block: Block, width: int) -> list[Line]:
        width = max(width, _MIN_WIDTH)
        if block.kind == "plain":
            return self.plain(block, width, self.look.text)
        if block.kind == "code":
            return code_lines(block, width, self.look)
        if block.kind == "rows":
            return self._rows(block, width)
        tree = tree_of(block.text)
        if tree is None:
            return self.plain(block, width, self.look.text)
        return self._blocks(tree.children, width, self.look, is_tight=False)

    def plain(self, block: Block, width: int, style: Style) -> list[Line]:
        """Its lines, wrapped, and no more."""
        return wrap_words([(block.text, style)], max(width, _MIN_WIDTH))

    def _rows(self, block: Block, width: int) -> list[Line]:
        """A piece of a table, by the columns of all."""
        shape = self._shape(block.info)
        head = (
            "" if block.begins else "".join(f"{line}\n" for line in block.info.split("\n", 2)[:2])
        )
        tree = None if shape is None else tree_of(head + block.text)
        if shape is None or tree is None:
            return self.plain(block, width, self.look.text)
        return rows_lines(tree.children[0], shape, width, self.look, begins=block.begins)

    def _shape(self, source: str) -> TableShape | None:
        if source not in self._shapes:
            if len(self._shapes) >= _MAX_SHAPES:
                del self._shapes[next(iter(self._shapes))]
            tree = tree_of(source)
            self._shapes[source] = None if tree is None else shape_of(tree.children[0], self.look)
        return self._shapes[source]

    def _blocks(
        self, nodes: Sequence[SyntaxTreeNode], width: int, look: Look, *, is_tight: bool
    ) -> list[Line]:
        lines: list[Line] = []
        for node in nodes:
            inner = self._node(node, max(width, _MIN_WIDTH), look)
            if lines and inner and not is_tight:
                lines.append(BLANK)
            lines += inner
        return lines

    def _node(self, node: SyntaxTreeNode, width: int, look: Look) -> list[Line]:
        match node.type:
            case "paragraph":
                return wrap_words(inline_spans(node, look), width)
            case "heading":
                return self._heading(node, width, look)
            case "bullet_list" | "ordered_list":
                return self._list(node, width, look)
            case "blockquote":
                return self._quote(node, width, look)
            case "fence" | "code_block":
                text = node.content.removesuffix("\n")
                language = look.shown_line(node.info.strip())
                return code_lines(Block("code", text, language), width, look)
            case "table":
                return table_lines(node, width, look)
            case "hr":
                rule = (look.marks.rule * min(width, 24), look.dim)
                return [Line((rule,), decoration=len(rule[0]))]
            case _:
                return wrap_words([(node.content, look.text)], width)

    def _heading(self, node: SyntaxTreeNode, width: int, look: Look) -> list[Line]:
        style = look.heading + look.strong if node.tag in ("h1", "h2") else look.heading
        return wrap_words(inline_spans(node, look, style), width)

    def _quote(self, node: SyntaxTreeNode, width: int, look: Look) -> list[Line]:
        bar = (f"{look.marks.quote} ", look.dim)
        inner = self._blocks(node.children, width - 2, look, is_tight=False)
        return [line.behind(bar) for line in inner]

    def _list(self, node: SyntaxTreeNode, width: int, look: Look) -> list[Line]:
        lines: list[Line] = []
        is_tight = _is_tight(node)
        bullets = self._bullets(node, look)
        for bullet, item in zip(bullets, node.children, strict=True):
            indent = cell_len(bullet) + 1
            inner = self._blocks(item.children, width - indent, look, is_tight=is_tight) or [BLANK]
            first, *rest = _without_task_mark(inner, item, look)
            lines += [BLANK] if lines and not is_tight else []
            lines.append(Line(((f"{bullet} ", look.dim), *first.spans), 0, first.joint))
            lines += [line.behind((" " * indent, look.text)) for line in rest]
        return lines

    def _bullets(self, node: SyntaxTreeNode, look: Look) -> list[str]:
        if node.type == "ordered_list":
            first = int(node.attrs.get("start", 1))
            last = first + len(node.children) - 1
            return [f"{first + i}.".rjust(len(f"{last}.")) for i in range(len(node.children))]
        depth = 0
        above = node.parent
        while above is not None:
            depth += above.type == "bullet_list"
            above = above.parent
        bullet = look.marks.bullets[depth % len(look.marks.bullets)]
        return [bullet] * len(node.children)


def codes_in(text: str) -> list[str]:
    """The code in a text as it came, to be pasted elsewhere: neutralised, but that tabs stay."""
    tokens = parser().parse(text)
    codes = [t.content.removesuffix("\n") for t in tokens if t.type in ("fence", "code_block")]
    return ["\t".join(map(shown, code.split("\t"))) for code in codes]


def _is_tight(node: SyntaxTreeNode) -> bool:
    """A list without blank lines between its items hides its items' paragraphs."""
    return all(
        child.hidden
        for item in node.children
        for child in item.children
        if child.type == "paragraph"
    )


def _without_task_mark(lines: list[Line], item: SyntaxTreeNode, look: Look) -> list[Line]:
    """A task's `[x]` as a mark."""
    text = lines[0].text
    if item.children and item.children[0].type == "paragraph" and text[:4].lower() in _TASKS:
        is_done = text[1] != " "
        mark: Span = (
            look.marks.done if is_done else look.marks.open,
            look.string if is_done else look.dim,
        )
        rest = _without_start(lines[0].spans, 3)
        return [Line((mark, *rest), lines[0].decoration, lines[0].joint), *lines[1:]]
    return lines


_TASKS = ("[ ] ", "[x] ")


def _without_start(spans: Sequence[Span], count: int) -> list[Span]:
    left: list[Span] = []
    for text, style in spans:
        if text[count:]:
            left.append((text[count:], style))
        count = max(0, count - len(text))
    return left
