"""What goes on from what is typed: commands, their arguments, paths after an @."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from edgeserve.tui.attachments import as_typed, completions, path_being_typed
from edgeserve.tui.commands import BY_NAME, starting_with
from edgeserve.tui.widgets.suggestions import Suggestion

Arguments = Callable[[str], Iterable[tuple[str, str]]]
"""For a command's name: what may follow it, each with a note."""


def suggestions_for(
    before_cursor: str, is_first_line: bool, folder: Path, arguments: Arguments
) -> Sequence[Suggestion]:
    """Reads a folder where a path is typed."""
    if is_first_line and before_cursor.startswith("/"):
        return _commands(before_cursor, folder, arguments)
    typed = path_being_typed(before_cursor)
    if typed is None:
        return ()
    quoted = before_cursor[: len(before_cursor) - len(typed)].endswith('"')
    replaced = len(typed) + 1 + quoted
    return [
        Suggestion(as_typed(path) + ("" if path.endswith("/") else " "), path, "", replaced)
        for path in completions(typed, folder)
    ]


def _commands(typed: str, folder: Path, arguments: Arguments) -> Sequence[Suggestion]:
    name, space, argument = typed[1:].partition(" ")
    if not space:
        return [
            Suggestion(
                f"/{command.name}{' ' if command.argument else ''}",
                f"/{command.name} {command.argument}".rstrip(),
                command.summary,
                len(typed),
            )
            for command in starting_with(typed)
        ]
    if name in ("attach", "import"):  # not "export": its file is a new one
        found = ((path, "") for path in completions(argument, folder))
    elif name in BY_NAME:
        found = arguments(name)
    else:
        return ()
    fitting = [each for each in found if each[0].lower().startswith(argument.lower())]
    if [value for value, _ in fitting] == [argument]:
        return ()  # Enter does the command
    # What is typed in full stands first: Enter does the command with it, and with no longer one.
    fitting.sort(key=lambda each: each[0] != argument)
    return [Suggestion(f"/{name} {value}", value, note, len(typed)) for value, note in fitting]
