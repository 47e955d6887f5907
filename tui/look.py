"""The styles of what is said in a chat, and the marks it is drawn with."""

from __future__ import annotations

from dataclasses import field

from rich.style import Style

from edgeserve.frozen import frozen
from edgeserve.tui.terminal_text import shown, shown_line


@frozen(kw_only=True)
class Marks:
    """What is drawn besides text; `ASCII` where a terminal knows no more."""

    is_ascii: bool = False
    bar: str = "▎"
    selected_bar: str = "▌"
    bullets: tuple[str, ...] = ("•", "◦", "▪")
    rule: str = "─"
    column: str = "│"
    crossing: str = "┼"
    quote: str = "│"
    done: str = "[✓]"
    open: str = "[ ]"
    folded: str = "▸"
    unfolded: str = "▾"
    down: str = "↓"
    newline: str = "⏎"
    older: str = "‹"
    newer: str = "›"
    ellipsis: str = "…"


UNICODE = Marks()
ASCII = Marks(
    is_ascii=True,
    bar="|",
    selected_bar="#",
    bullets=("*", "-", "+"),
    rule="-",
    column="|",
    crossing="+",
    quote="|",
    done="[x]",
    folded=">",
    unfolded="v",
    down="v",
    newline="$",
    older="<",
    newer=">",
    ellipsis="...",
)


@frozen(kw_only=True)
class Look:
    """Styles by what they are for. A widget's component classes fill them: `transcript--heading`
    for `heading`. `marks` go with the terminal, not with the theme."""

    text: Style = field(default_factory=Style)
    dim: Style = field(default_factory=Style)
    heading: Style = field(default_factory=Style)
    strong: Style = field(default_factory=lambda: Style(bold=True))
    emphasis: Style = field(default_factory=lambda: Style(italic=True))
    struck: Style = field(default_factory=lambda: Style(strike=True))
    link: Style = field(default_factory=Style)
    inline_code: Style = field(default_factory=Style)
    code: Style = field(default_factory=Style)
    code_note: Style = field(default_factory=Style)
    keyword: Style = field(default_factory=Style)
    string: Style = field(default_factory=Style)
    number: Style = field(default_factory=Style)
    comment: Style = field(default_factory=Style)
    name: Style = field(default_factory=Style)
    added: Style = field(default_factory=Style)
    removed: Style = field(default_factory=Style)
    quote: Style = field(default_factory=Style)
    user: Style = field(default_factory=Style)
    assistant: Style = field(default_factory=Style)
    selected: Style = field(default_factory=Style)
    error: Style = field(default_factory=Style)
    drafted: Style = field(default_factory=Style)
    pointed: Style = field(default_factory=Style)
    hint: Style = field(default_factory=Style)
    marks: Marks = UNICODE

    def shown(self, text: str) -> str:
        """Neutralised, by marks that the terminal knows."""
        return shown(text, is_ascii=self.marks.is_ascii)

    def shown_line(self, text: str) -> str:
        return shown_line(text, is_ascii=self.marks.is_ascii)


STYLE_NAMES = tuple(name for name in Look.__annotations__ if name != "marks")
