"""What terminals of different kinds get from `edgeserve chat`: colours, ASCII, lines of text."""

from __future__ import annotations

from pathlib import Path

import pytest

from .reciting_model import write_reciting_model
from .tmux_chat import ALPHABET, a_shell, opened
from .tmux_terminal import PROMPT, TmuxTerminal, needs_tmux

pytestmark = needs_tmux


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It says the alphabet, some hundreds of letters a second."""
    folder = tmp_path_factory.mktemp("reciting")
    return write_reciting_model(folder / "alphabet.gguf", feed_forward=16384)


def looked_around(terminal: TmuxTerminal, model: Path, theme: str = "") -> bytes:
    """Every screen there is, and what the terminal got for it."""
    opened(terminal, model, "max_tokens=30")
    if theme:
        terminal.type(f"/theme {theme}", "Enter")
        terminal.until(lambda: b"\x1b[1;39;49m" in terminal.received())
    start = len(terminal.received())
    terminal.type("Recite", "Enter")
    terminal.shows("30 tokens")
    for key, shows in {
        "F1": "new line",
        "F2": "Search all chats",
        "F4": "Models",
        "F5": "Settings of this chat",
        "C-p": "Search for commands",
    }.items():
        leaves = "esc back" if key != "C-p" else "Search for commands"
        terminal.keys(key)
        terminal.shows(shows, leaves)
        terminal.keys("Escape")
        terminal.lacks(leaves)
    terminal.type("/")
    terminal.shows("/new")
    return terminal.received(start)


def colours(received: bytes) -> set[str]:
    """The colours among the sequences that say how text looks, "default" left out."""
    found: set[str] = set()
    for sequence in received.split(b"\x1b[")[1:]:
        numbers, end, _ = sequence.partition(b"m")
        if not end or not set(numbers) <= set(b"0123456789;"):
            continue
        parts = numbers.decode().split(";")
        while parts:
            part = parts.pop(0)
            if part in ("38", "48"):
                width = 4 if parts[0] == "2" else 2
                found.add(":".join((part, *parts[:width])))
                parts = parts[width:]
            elif len(part) > 1 and part not in ("39", "49"):
                found.add(part)
    return found


def test_no_color_has_none(tmp_path: Path, model: Path):
    with a_shell(tmp_path, environ={"NO_COLOR": "1"}) as terminal:
        received = looked_around(terminal, model)
        assert colours(received) == set()
        assert b"\x1b[1m" in received
        assert b"7m" in received


def test_the_terminals_theme_has_its_16_colours(tmp_path: Path, model: Path):
    with a_shell(tmp_path) as terminal:
        found = colours(looked_around(terminal, model, "terminal"))
        assert "33" in found
        assert [each for each in found if ":" in each] == []


def test_a_chosen_theme_is_there_the_next_time(tmp_path: Path, model: Path):
    paper = b"48;2;250;248;244"  # the light theme's
    with a_shell(tmp_path) as terminal:
        opened(terminal, model)
        assert paper not in terminal.received()
        terminal.type("/theme light", "Enter")
        terminal.shows("theme: light, also the next time")
        for given, is_light in (("", True), ("NO_COLOR=1 ", False), ("LANG=C ", True)):
            terminal.keys("C-q")
            terminal.until(lambda: terminal.screen().rstrip().endswith(PROMPT))
            terminal.keys("C-l")
            start = len(terminal.received())
            terminal.type(f"{given}./chat {model}", "Enter")
            terminal.shows(f"{model.stem} ", " of ")
            received = terminal.received(start)
            assert (paper in received) == is_light
            assert b"48;2;25;24;22" not in received  # the dark theme's, not for one frame


def test_an_ascii_locale_gets_ascii(tmp_path: Path, model: Path):
    with a_shell(tmp_path, environ={"LANG": "C"}) as terminal:
        received = looked_around(terminal, model)
        assert received.isascii(), [each for each in received.split(b"\x1b") if not each.isascii()]
        terminal.keys("C-u")
        terminal.paste("one\x1b[31mtwo")
        terminal.shows("> one^[[31mtwo")


def test_a_dumb_terminal_gets_lines(tmp_path: Path, model: Path):
    with a_shell(tmp_path) as terminal:
        start = len(terminal.received())
        terminal.type(f"TERM=dumb ./chat {model}", "Enter")
        terminal.shows("Note: alphabet answers", "\nYou:")
        terminal.type("Recite", "Enter")
        terminal.shows(f"Assistant: {ALPHABET}")
        terminal.keys("C-c")
        terminal.shows("Note: stopped; /continue goes on\nYou:")
        of_the_program = terminal.received(start).split(b"Note: alphabet", 1)[1]
        assert b"\x1b" not in of_the_program
        terminal.keys("C-c")
        terminal.until(lambda: terminal.screen().count(PROMPT) == 2)
