"""Every command once: what it is called after a slash, in the palette, and on which key.

The screen that has the methods is screens/chat_screen.py; help and README print this table.
"""

from __future__ import annotations

from edgeserve.frozen import frozen
from edgeserve.tui.chat_settings import NUMBERS


@frozen
class Command:
    """`keys` as Textual names them, the first is the one that is shown. `argument` is what may
    follow the name, in brackets where it may be left out."""

    name: str
    summary: str
    keys: tuple[str, ...] = ()
    argument: str = ""
    group: str = "chat"

    @property
    def title(self) -> str:
        """As the palette has it."""
        return self.summary[:1].upper() + self.summary[1:]

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")


COMMANDS: tuple[Command, ...] = (
    Command("new", "start a new chat", ("ctrl+n",)),
    Command("chats", "show the chats, search them", ("f2", "ctrl+b"), "[WORDS]"),
    Command("rename", "give this chat a title", (), "TITLE"),
    Command("tag", "tag this chat; again takes the tag off", (), "TAG"),
    Command("pin", "keep this chat at the top of the list, or no more"),
    Command("delete", "delete this chat"),
    Command("undo", "bring back the chat deleted last"),
    Command("export", "write this chat to a file, .md or .json", (), "[FILE]"),
    Command("import", "read a chat from a file", (), "FILE"),
    Command("stop", "stop the answer", ("escape",), group="turn"),
    Command("regenerate", "ask again for the last answer", ("ctrl+r",), group="turn"),
    Command("continue", "go on with an answer that was cut off", group="turn"),
    Command("edit", "edit a question, and ask it as another branch", ("alt+e",), group="turn"),
    Command("branch", "show the branch before (-) or after (+)", (), "[+ or -]", "turn"),
    Command("copy", "copy an answer, or its code block N", ("ctrl+y",), "[code N]", "turn"),
    Command("attach", "attach a text file", (), "FILE", "write"),
    Command("editor", "write in your editor ($VISUAL, $EDITOR)", ("ctrl+x ctrl+e",), "", "write"),
    Command("prompt", "fill in a prompt from the library", (), "[NAME]", "write"),
    Command("models", "choose a model, here or to fetch", ("f4", "ctrl+o"), "", "answer"),
    Command("model", "answer with this model from now on", (), "NAME", "answer"),
    Command("settings", "system prompt, sampling, thinking", ("f5", "ctrl+s"), "", "answer"),
    Command("system", "set this chat's system prompt", (), "[TEXT]", "answer"),
    Command("think", "think first: on, off, auto, or a budget", (), "HOW", "answer"),
    Command("set", "set a value: /set temperature 0.2", (), "NAME VALUE", "answer"),
    Command("cockpit", "show what the engine does", ("f3", "ctrl+g"), "", "look"),
    Command("tint", "tint drafted tokens, point at tokens", ("ctrl+t",), "", "look"),
    Command("theme", "dark, light or terminal", (), "[NAME]", "look"),
    Command("help", "show keys and commands", ("f1",), "", "look"),
    Command("quit", "leave", ("ctrl+q",), "", "look"),
)

BY_NAME = {command.name: command for command in COMMANDS}

GROUPS = {
    "chat": "Chats",
    "turn": "Questions and answers",
    "write": "Writing",
    "answer": "How it answers",
    "look": "Screen",
}

ALIASES = {
    **dict.fromkeys(("exit", "bye", "q"), "quit"),
    "?": "help",
    "retry": "regenerate",
    "clear": "new",
}


def parse(text: str) -> tuple[Command, str] | None:
    """A command and its argument from what was typed; None where it is none of ours.

    `//` begins a text with a slash; so does a path such as /etc/hosts.
    """
    if not text.startswith("/") or text.startswith("//") or "\n" in text.strip():
        return None
    name, _, argument = text[1:].strip().partition(" ")
    command = BY_NAME.get(ALIASES.get(name, name))
    return None if command is None else (command, argument.strip())


def starting_with(text: str) -> list[Command]:
    """Those whose names begin with what stands after a slash; first the one that is typed in full,
    which Enter means."""
    name = text[1:].lower()
    found = [command for command in COMMANDS if command.name.startswith(name)]
    return sorted(found, key=lambda command: command.name != name)


def no_such_command(text: str) -> str:
    """What to do instead, for a text that `is_unknown`."""
    word, *values = text.split()
    name = word[1:].replace("-", "_")
    if name in NUMBERS:
        return f"There is no command {word}: /set {' '.join([name, *values])} sets it"
    return f"There is no command {word}: / lists them, // begins a text with /"


def is_unknown(text: str) -> bool:
    """Whether somebody meant a command that there is none of. A path that is asked about is none:
    it has another slash, or more lines follow."""
    word = text.split(maxsplit=1)[0] if text.strip() else ""
    is_one_line = "\n" not in text.strip()
    return is_one_line and len(word) > 1 and word.startswith("/") and "/" not in word[1:]
