"""Keys and commands, from the table that makes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from edgeserve.tui.commands import COMMANDS, GROUPS, Command

_WRITING = (
    ("enter", "send"),
    ("ctrl+j, alt+enter", "new line"),
    ("up, down", "what was sent before"),
    ("tab", "complete, or go to the chat"),
    ("@path", "attach a text file"),
    ("pageup, pagedown", "scroll the chat"),
    ("ctrl+home, ctrl+end", "to its beginning, its end"),
    ("esc", "stop; else one step back"),
    ("ctrl+c", "copy what is selected, or stop"),
    ("ctrl+c twice", "leave"),
    ("ctrl+p", "search all commands"),
    ("ctrl+z", "put the chat in the background"),
)
_READING = (
    ("up, down, k, j", "message above, below"),
    ("enter", "unfold its thinking"),
    ("[ ]", "branch before, after"),
    ("y", "copy the message"),
    ("c", "copy its code; again: the next"),
    ("o", "show its link; again: the next"),
    ("e", "edit it, as another branch"),
    ("r", "another answer"),
    ("t", "tint drafted tokens"),
    ("left, right", "token by token, when tinted"),
)
_LISTING = (
    ("up, down", "chat above, below"),
    ("enter", "open it"),
    ("p, r, t", "pin, rename, tag"),
    ("d, u", "delete, bring back"),
)
_KEY_CELLS = 20


class HelpScreen(ModalScreen[None]):
    """One column of keys, and one of commands; where it is narrow, one above the other."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (140, "-wide")]  # noqa: RUF012  not a ClassVar there

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q", "dismiss(None)", show=False),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="box -tall"):
            yield Static("Help", classes="dialog-title")
            with VerticalScroll(), Horizontal(classes="columns"):
                yield Static(keys_text(), markup=False, classes="-reading")
                yield Static(commands_text(), markup=False, classes="-commands")
            yield Static(
                Content.assemble(
                    ("up, down", "bold"), (" scroll   ", ""), ("esc", "bold"), (" back", "")
                ),
                classes="dialog-keys",
            )

    def on_mount(self) -> None:
        self.add_class("dialog")
        self.query_one(VerticalScroll).focus()


def keys_text() -> Content:
    groups = (
        ("Writing", _WRITING),
        ("In the chat (tab goes there)", _READING),
        ("In the list of chats (f2, then tab)", _LISTING),
    )
    return _groups((title, [_line(*each) for each in lines]) for title, lines in groups)


def commands_text() -> Content:
    return _groups(
        (title, [_command(each) for each in COMMANDS if each.group == group])
        for group, title in GROUPS.items()
    )


def _groups(groups: Iterable[tuple[str, list[Content]]]) -> Content:
    """Each under its heading, a blank line between."""
    texts = [
        Content("\n").join([Content.styled(title, "$accent"), *lines]) for title, lines in groups
    ]
    return Content("\n\n").join(texts)


def _command(command: Command) -> Content:
    keys = ", ".join(command.keys).replace("escape", "esc")
    line = _line(f"/{command.name} {command.argument}".rstrip(), command.summary)
    return Content.assemble(line, (f"  {keys}" if keys else "", "$quiet"))


def _line(left: str, right: str) -> Content:
    return Content.assemble((left.ljust(_KEY_CELLS), "bold"), (right, ""))
