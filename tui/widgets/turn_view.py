"""What a transcript shows of a turn, and the lines around its text."""

from __future__ import annotations

from typing import Literal

from rich.style import Style

from edgeserve.chats.records import TurnState
from edgeserve.frozen import frozen
from edgeserve.tui.client import TokenFact
from edgeserve.tui.lines import BLANK, Line, Span, wrap_words
from edgeserve.tui.look import Look


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
    spans: list[Span] = [(look.shown_line(view.name or view.role), _role_style(view, look))]
    index, count = view.branch
    if count > 1:
        spans.append((f"  {look.marks.older}{index}/{count}{look.marks.newer}", look.dim))
    if word := _STATE_WORDS.get(view.state):
        spans.append((f"  {word}", look.dim))
    if view.is_greyed:
        spans.append(("  no longer in the context", look.dim))
    lines = wrap_words(spans, width)
    for name in view.attachments:
        lines += wrap_words([(f"@{look.shown_line(name)}", look.link)], width)
    return lines


_STATE_WORDS = {
    TurnState.STOPPED: "stopped",
    TurnState.INTERRUPTED: "interrupted",
    TurnState.FAILED: "failed",
}


def _role_style(view: TurnView, look: Look) -> Style:
    styles = {"user": look.user, "assistant": look.assistant}
    return styles.get(view.role, look.dim)


def foot_lines(view: TurnView, look: Look, width: int) -> list[Line]:
    """What went wrong, and what it took."""
    lines: list[Line] = []
    for text, style in (
        (look.shown(view.error), look.error),
        (look.shown_line(view.footer), look.dim),
    ):
        if text:
            lines += [BLANK] if lines or view.text or view.reasoning else []
            lines += wrap_words([(text, style)], width)
    return lines


def fold_lines(view: TurnView, look: Look, width: int, *, is_folded: bool) -> list[Line]:
    """The line that unfolds the reasoning; while it is being written, its last line too."""
    if not view.reasoning.strip():
        return []
    is_live = view.state is TurnState.STREAMING and not view.text
    mark = look.marks.folded if is_folded else look.marks.unfolded
    note = look.shown_line(view.reasoning_note) or _words(view.reasoning)
    words = f"{mark} {'thinking' if is_live else 'thought'}, {note}"
    lines = wrap_words([(words, look.dim)], width)[:1]
    if is_folded and is_live:
        last = view.reasoning[-4 * width :].rstrip().split("\n")[-1]
        lines += wrap_words([(look.shown_line(last), look.dim)], width)[-1:]
    return lines


def _words(text: str) -> str:
    count = len(text.split())
    return f"{count:,} word{'s' * (count != 1)}"
