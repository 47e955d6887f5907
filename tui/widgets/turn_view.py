"""What a transcript shows of a turn, and the lines of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from rich.style import Style

from edgeserve.chats.records import TurnState
from edgeserve.frozen import frozen
from edgeserve.tui.client import TokenFact
from edgeserve.tui.lines import BLANK, Line, Span, wrap_words
from edgeserve.tui.look import Look
from edgeserve.tui.terminal_text import shown, shown_line


@frozen(kw_only=True)
class TurnView:
    """A turn as it is to be seen. Texts are as they came: the transcript neutralises them.

    `name` stands before it: "you", or the model's. `branch` is (which, of how many), from 1.
    `reasoning_note` says what the reasoning took: "3.1 s, 214 tokens". `is_greyed` is one that the
    model no longer sees.
    """

    id: str
    role: Literal["user", "assistant", "system", "note"]
    name: str = ""
    text: str = ""
    reasoning: str = ""
    reasoning_note: str = ""
    state: TurnState = TurnState.COMPLETE
    branch: tuple[int, int] = (1, 1)
    footer: str = ""
    is_greyed: bool = False
    attachments: tuple[str, ...] = ()
    error: str = ""
    tokens: tuple[TokenFact, ...] = ()


def head_lines(view: TurnView, look: Look, width: int) -> list[Line]:
    """Who speaks, which branch it is, how it ended if not by itself, what is attached."""
    spans: list[Span] = [(shown_line(view.name or view.role), _role_style(view, look))]
    index, count = view.branch
    if count > 1:
        spans.append((f"  {look.marks.older}{index}/{count}{look.marks.newer}", look.dim))
    if word := _STATE_WORDS.get(view.state):
        spans.append((f"  {word}", look.dim))
    if view.is_greyed:
        spans.append(("  no longer in the context", look.dim))
    lines = wrap_words(spans, width)
    for name in view.attachments:
        lines += wrap_words([(f"@{shown_line(name)}", look.link)], width)
    return lines


_STATE_WORDS = {
    TurnState.STOPPED: "stopped",
    TurnState.INTERRUPTED: "interrupted",
    TurnState.FAILED: "failed",
}


def _role_style(view: TurnView, look: Look) -> Style:
    styles = {"user": look.user, "assistant": look.assistant}
    return look.dim if view.is_greyed else styles.get(view.role, look.dim)


def foot_lines(view: TurnView, look: Look, width: int) -> list[Line]:
    """What went wrong, and what it took."""
    lines: list[Line] = []
    if view.error:
        lines += [BLANK] * bool(view.text) + wrap_words([(shown(view.error), look.error)], width)
    if view.footer:
        lines += wrap_words([(shown_line(view.footer), look.dim)], width)
    return lines


def reasoning_lines(view: TurnView, look: Look, width: int, *, is_folded: bool) -> list[Line]:
    """One line that unfolds; while the reasoning is being written, its last line too."""
    text = shown(view.reasoning).strip("\n")
    if not text:
        return []
    is_live = view.state is TurnState.STREAMING and not view.text
    mark = look.marks.folded if is_folded else look.marks.unfolded
    note = shown_line(view.reasoning_note) or _words(text)
    words = f"thinking, {note}" if is_live else f"thought for {note}"
    lines = wrap_words([(f"{words} {mark}", look.dim)], width)
    if not is_folded:
        quote: Span = (f"{look.marks.quote} ", look.dim)
        lines += [line.behind(quote) for line in wrap_words([(text, look.dim)], width - 2)]
    elif is_live:
        last = wrap_words([(text[-4 * width :].split("\n")[-1], look.dim)], width)
        lines.append(last[-1])
    return lines


def _words(text: str) -> str:
    count = len(text.split())
    return f"{count:,} word{'s' * (count != 1)}"


def token_lines(tokens: Sequence[TokenFact], look: Look, width: int, pointed: int) -> list[Line]:
    """The answer token by token, those that a draft had guessed tinted; no Markdown is drawn."""
    lines: list[Line] = []
    spans: list[Span] = []
    used = 0
    for index, text, ends_line in _token_pieces(tokens):
        style = look.text + (look.drafted if tokens[index].drafted else Style.null())
        style += look.pointed if index == pointed else Style.null()
        if used + len(text) > width and used:
            lines.append(Line(tuple(spans), joint="\n" if not lines else ""))
            spans, used = [], 0
        spans.append((text, style + Style(meta={TOKEN: index})))
        used += len(text)
        if ends_line:
            lines.append(Line(tuple(spans)))
            spans, used = [], 0
    return [*lines, Line(tuple(spans))] if spans else lines


TOKEN = "token"
"""The key of a token's index in a style's meta."""


def _token_pieces(tokens: Sequence[TokenFact]) -> Iterator[tuple[int, str, bool]]:
    """Tokens by their index, cut where they hold a newline, which is drawn as a mark."""
    for index, token in enumerate(tokens):
        *ended, rest = shown(token.text).split("\n")
        for text in ended:
            yield index, f"{text}⏎", True
        if rest:
            yield index, rest, False
