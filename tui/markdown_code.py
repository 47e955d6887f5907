"""Code as lines: its language above, highlighted, wrapped where it is wide."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

from rich.cells import set_cell_size
from rich.style import Style

from edgeserve.tui.lines import Line, Span, wrap_cells
from edgeserve.tui.look import Look
from edgeserve.tui.markdown_block import Block
from edgeserve.tui.markdown_blocks import LONG_LINE

if TYPE_CHECKING:
    from pygments.lexer import Lexer


def code_lines(block: Block, width: int, look: Look) -> list[Line]:
    """A code block, or a piece of one: its background as wide as the text."""
    language = block.info.split()[0] if block.info.split() else ""
    lines = [_head(language, width, look)] if block.begins and language else []
    for spans in _highlighted(block.text, language, look):
        lines += [_padded(line, width, look) for line in wrap_cells(spans, width - 2)]
    return lines


def _head(language: str, width: int, look: Look) -> Line:
    text = set_cell_size(f" {language}", width)
    return Line(((text, look.code + look.code_note),), decoration=len(text))


def _padded(line: Line, width: int, look: Look) -> Line:
    fill = " " * (width - 1 - line.cells)
    return Line(((" ", look.code), *line.spans, (fill, look.code)), 1, line.joint)


def _highlighted(code: str, language: str, look: Look) -> list[list[Span]]:
    lexer = _lexer(language)
    if lexer is None or any(len(line) > LONG_LINE for line in code.split("\n")):
        return [[(line, look.code)] for line in code.split("\n")]
    lines: list[list[Span]] = [[]]
    styles: dict[object, Style] = {}  # adding two costs more than a token
    for kind, value in lexer.get_tokens(code):
        style = styles.get(kind)
        if style is None:
            style = styles[kind] = look.code + _style_of(kind, look)
        first, *rest = value.split("\n")
        if first:
            lines[-1].append((first, style))
        for part in rest:
            lines.append([(part, style)] if part else [])
    if code.count("\n") + 1 < len(lines):
        del lines[code.count("\n") + 1 :]  # the lexer ends the last line
    return lines


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    """Of Pygments' own: it looks for others among all that is installed, a tenth of a second for
    each name that it does not know, such as the first half of one that is being written."""
    from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]

    if language.lower() not in _languages():
        return None
    return get_lexer_by_name(language, stripnl=False, ensurenl=True)


@cache
def _languages() -> frozenset[str]:
    """What Pygments has lexers for, by all their names."""
    from pygments.lexers import get_all_lexers

    return frozenset(alias for _, names, _, _ in get_all_lexers(plugins=False) for alias in names)


_STYLES = (
    ("Comment", "comment"),
    ("Keyword.Constant", "number"),
    ("Keyword", "keyword"),
    ("Operator.Word", "keyword"),
    ("Literal.Number", "number"),
    ("Literal.String", "string"),
    ("Name.Function", "name"),
    ("Name.Class", "name"),
    ("Name.Tag", "keyword"),
    ("Name.Attribute", "name"),
    ("Name.Decorator", "name"),
    ("Generic.Inserted", "added"),
    ("Generic.Deleted", "removed"),
    ("Generic.Heading", "keyword"),
    ("Generic.Subheading", "keyword"),
)


def _style_of(kind: tuple[str, ...], look: Look) -> Style:
    name = _style_name(kind)
    return getattr(look, name) if name else Style.null()


@lru_cache(maxsize=512)
def _style_name(kind: tuple[str, ...]) -> str:
    """Of a token's kind, which is its family's name and more."""
    full = ".".join(kind) + "."
    return next((name for family, name in _STYLES if full.startswith(f"{family}.")), "")
