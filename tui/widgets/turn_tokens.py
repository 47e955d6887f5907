"""An answer token by token: those that a draft had guessed tinted, one of them pointed at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.style import Style

from edgeserve.tui.client import TokenFact
from edgeserve.tui.lines import Line, Span
from edgeserve.tui.look import Look

TOKEN = "token"
"""The key of a token's index in a style's meta."""


def token_lines(tokens: Sequence[TokenFact], look: Look, width: int, pointed: int) -> list[Line]:
    """The text as it was generated; no Markdown is drawn, so that every token is seen."""
    lines: list[Line] = []
    spans: list[Span] = []
    used = 0
    joint = "\n"
    for index, text, ends_line in _pieces(tokens, look):
        cells = cell_len(text)
        if used and used + cells > width:
            lines.append(Line(tuple(spans), joint=joint))
            spans, used, joint = [], 0, ""
        spans.append((text[:width], _style(tokens[index], index, look, pointed)))
        used += cells
        if ends_line:
            lines.append(Line(tuple(spans), joint=joint))
            spans, used, joint = [], 0, "\n"
    return [*lines, Line(tuple(spans), joint=joint)] if spans else lines


def _style(token: TokenFact, index: int, look: Look, pointed: int) -> Style:
    style = look.text + look.drafted if token.drafted else look.text
    style = style + look.pointed if index == pointed else style
    return style + Style(meta={TOKEN: index})


def _pieces(tokens: Sequence[TokenFact], look: Look) -> Iterator[tuple[int, str, bool]]:
    """Tokens by their index, cut where they hold a newline, which is drawn as a mark."""
    for index, token in enumerate(tokens):
        *ended, rest = look.shown(token.text).split("\n")
        for text in ended:
            yield index, f"{text}{look.marks.newline}", True
        if rest:
            yield index, rest, False
