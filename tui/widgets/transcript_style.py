"""A transcript's keys and colours. A screen's stylesheet may set the components otherwise."""

from __future__ import annotations

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.widget import Widget

from edgeserve.tui.look import STYLE_NAMES, Look, Marks

TRANSCRIPT_KEYS: list[BindingType] = [
    Binding("up,k", "select(-1)", "Turn above", show=False),
    Binding("down,j", "select(1)", "Turn below", show=False),
    Binding("enter", "fold", "Unfold reasoning", show=False),
    Binding("left_square_bracket", "branch(-1)", "Branch before", show=False),
    Binding("right_square_bracket", "branch(1)", "Branch after", show=False),
    Binding("c", "copy_code", "Copy code", show=False),
    Binding("o", "open_link", "Open a link", show=False),
    Binding("t", "tint", "Drafted tokens", show=False),
    Binding("left", "point(-1)", "Token before", show=False),
    Binding("right", "point(1)", "Token after", show=False),
]

TRANSCRIPT_CSS = """
Transcript {
    background: $background;
    color: $foreground;
    overflow-x: hidden;
    overflow-y: auto;
    scrollbar-size-vertical: 1;
    scrollbar-gutter: stable;
    & > .transcript--dim { color: $text-muted; }
    & > .transcript--heading { color: $text-accent; text-style: bold; }
    & > .transcript--strong { text-style: bold; }
    & > .transcript--emphasis { text-style: italic; }
    & > .transcript--struck { text-style: strike; }
    & > .transcript--link { color: $text-accent; text-style: underline; }
    & > .transcript--inline_code { color: $text-warning; }
    & > .transcript--code { background: $surface; }
    & > .transcript--code_note { color: $text-muted; }
    & > .transcript--keyword { color: $text-accent; }
    & > .transcript--string { color: $text-success; }
    & > .transcript--number { color: $text-warning; }
    & > .transcript--comment { color: $text-muted; text-style: italic; }
    & > .transcript--name { color: $text-primary; }
    & > .transcript--added { color: $text-success; }
    & > .transcript--removed { color: $text-error; }
    & > .transcript--user { color: $text-secondary; text-style: bold; }
    & > .transcript--assistant { color: $text-primary; text-style: bold; }
    & > .transcript--selected { color: $accent; text-style: bold; }
    & > .transcript--error { color: $text-error; }
    & > .transcript--drafted { background: $success-muted; }
    & > .transcript--pointed { text-style: reverse; }
    & > .transcript--hint { background: $primary-muted; color: $text-primary; }
}
"""


def look_of(transcript: Widget, marks: Marks) -> Look:
    """The styles that its component classes have now."""
    styles = {name: _style(transcript, f"transcript--{name}") for name in STYLE_NAMES}
    return Look(**styles, marks=marks)


def _style(widget: Widget, name: str) -> Style:
    """What the component sets and no more; its colour as seen on this background."""
    style = widget.get_component_rich_style(name, partial=True)
    if widget.get_component_styles(name).has_rule("color"):
        style += Style(color=widget.get_component_rich_style(name).color)
    return style
