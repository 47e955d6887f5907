"""`edgeserve chat` in a real terminal, with the real engine: typed by keys, read off the screen."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from edgeserve.chats.records import TurnState
from edgeserve.chats.store import ChatStore

from .reciting_model import SAID, write_reciting_model
from .scripted_server import answer, serving
from .tmux_chat import ALPHABET, ASKS, a_shell, is_recited, opened, turns
from .tmux_terminal import PROMPT, needs_tmux

pytestmark = needs_tmux

# What a terminal is asked for, and what takes it back.
MODES = {"1049": "the other screen", "2004": "marked pastes", "1000": "the mouse", "1004": "focus"}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It says the alphabet, some hundreds of letters a second."""
    folder = tmp_path_factory.mktemp("reciting")
    return write_reciting_model(folder / "alphabet.gguf", feed_forward=16384)


# --- the flows -----------------------------------------------------------------------------------


def test_two_questions_typed_in_a_burst(tmp_path: Path, model: Path):
    """The first is asked and answered, the second waits to be sent."""
    with a_shell(tmp_path) as terminal:
        opened(terminal, model)
        terminal.type("first line\rsecond line\r")
        terminal.shows("xyz abc", "› second line")
        terminal.keys("Escape")
        terminal.shows("/continue goes on")
        assert [turn.text for turn in turns(tmp_path) if turn.role == "user"] == ["first line"]


def test_asked_stopped_continued_edited_found_and_there_again(tmp_path: Path, model: Path):
    with a_shell(tmp_path) as terminal:
        opened(terminal, model)
        terminal.type("Recite, please", "Enter")
        terminal.shows("xyz abc", "esc stop")
        terminal.keys("Escape")
        terminal.shows("/continue goes on", ASKS)
        stopped = turns(tmp_path)[-1]
        assert stopped.state is TurnState.STOPPED
        assert is_recited(stopped.text)

        terminal.type("/continue", "Enter")
        terminal.shows("answering · ")
        terminal.keys("C-c")
        terminal.shows("/continue goes on", "ctrl+c again to leave", "enter send")
        terminal.lacks("ctrl+c again to leave")
        gone_on = turns(tmp_path)[-1]
        assert gone_on.id == stopped.id
        assert is_recited(gone_on.text)
        assert len(gone_on.text) > len(stopped.text)

        terminal.type("/set max_tokens 27", "Enter")
        terminal.shows("max_tokens = 27")
        terminal.keys("C-r")
        terminal.shows("alphabet  ‹2/2›", "27 tokens")
        terminal.keys("M-e")
        terminal.shows("Editing your question", "› Recite, please")
        terminal.keys("C-u")
        terminal.type("Recite it backwards", "Enter")
        terminal.shows("you  ‹2/2›", "27 tokens", "cut off: /continue goes on")
        assert terminal.screen().count(ALPHABET) == 1
        terminal.type("/branch -", "Enter")
        terminal.shows("you  ‹1/2›", "Recite, please", "this branch:", " cached")

        terminal.keys("C-n")
        terminal.type("Something else", "Enter")
        terminal.shows("27 tokens", "Something else")
        terminal.keys("F2")
        terminal.shows("Search all chats", "Recite, please")
        terminal.type("backwards")
        terminal.until(lambda: "Recite it backwards" in terminal.screen())
        terminal.keys("Enter")
        terminal.shows("you  ‹2/2›", "Recite it backwards", "27 tokens")

        terminal.keys("C-c")
        terminal.shows("ctrl+c again to leave")
        terminal.keys("C-c")
        terminal.shows(PROMPT)
        terminal.type("./chat", "Enter")
        terminal.shows("Something else", "27 tokens", "alphabet · ")
        terminal.keys("F2")
        terminal.shows("Recite, please", "Something else")


def test_kill_9_loses_a_second_at_most(tmp_path: Path, model: Path):
    with a_shell(tmp_path) as terminal:
        opened(terminal, model)
        terminal.type("Recite", "Enter")
        terminal.shows("xyz abc")
        terminal.until(lambda: turns(tmp_path)[-1].text)
        before = turns(tmp_path)[-1].text
        terminal.until(lambda: len(turns(tmp_path)[-1].text) > len(before), bound_s=10)
        os.kill(terminal.program(), signal.SIGKILL)
        terminal.shows("Killed")
        left = turns(tmp_path)[-1]
        assert left.state is TurnState.STREAMING
        assert is_recited(left.text)

        terminal.type("./chat", "Enter")
        terminal.shows("broken off when the program ended: /continue goes on", "alphabet · ", "33k")
        assert turns(tmp_path)[-1].state is TurnState.INTERRUPTED
        terminal.type("/continue", "Enter")
        terminal.shows("answering · ")
        terminal.keys("Escape")
        terminal.shows("/continue goes on", "enter send")
        whole = turns(tmp_path)[-1]
        assert whole.id == left.id
        assert is_recited(whole.text)
        assert len(whole.text) > len(left.text)


def test_ctrl_z_gives_the_terminal_back_and_fg_the_chat(tmp_path: Path, model: Path):
    with a_shell(tmp_path) as terminal:
        opened(terminal, model)
        for question in ("", "Recite"):  # nothing goes on, then something does
            if question:
                terminal.type(question, "Enter")
                terminal.shows("xyz abc")
            terminal.keys("C-z")
            terminal.shows("Stopped")
            assert terminal.is_sane()
            terminal.type("stty -a", "Enter")
            terminal.shows(" icanon", " echo ")
            terminal.type("clear; fg", "Enter")
            terminal.shows(f"› {ASKS}", "f1 help", "alphabet · ")
            assert terminal.is_so("alternate_on")
        first = terminal.shows("answering")
        terminal.until(lambda: terminal.screen() != first)

        terminal.resize(50, 12)
        terminal.shows(f"\n  ▎ {ALPHABET}\n  ▎ {ALPHABET}\n", f"› {ASKS}", "answering")
        terminal.resize(160, 40)
        terminal.shows("Search all chats", f"{ALPHABET} {ALPHABET} {ALPHABET}", f"› {ASKS}")
        terminal.resize(80, 24)
        terminal.shows(f"\n  ▎ {ALPHABET} {ALPHABET}\n", f"› {ASKS}")
        terminal.keys("Escape")
        terminal.shows("/continue goes on")
        assert is_recited(turns(tmp_path)[-1].text)


# --- what comes from elsewhere -------------------------------------------------------------------


def test_an_editor_has_the_terminal_while_an_answer_goes_on(tmp_path: Path, model: Path):
    editor = tmp_path / "my editor"
    editor.write_text(
        '#!/bin/sh\nfor file; do :; done\nstty -a | grep -o " icanon"\necho "editing $*"\n'
        'read line\necho "$line" >> "$file"\nexit "${line##* }"\n'
    )
    editor.chmod(0o755)
    with a_shell(tmp_path, environ={"EDITOR": f"'{editor}' --wait -n"}) as terminal:
        opened(terminal, model)
        terminal.type("Recite", "Enter")
        terminal.shows("xyz abc")
        terminal.type("So: ")
        terminal.keys("C-x", "C-e")
        terminal.shows("editing --wait -n /", " icanon")
        assert terminal.is_sane()
        length = len(turns(tmp_path)[-1].text)
        terminal.until(lambda: len(turns(tmp_path)[-1].text) > length + 500)
        terminal.type("written 0", "Enter")
        terminal.shows("› So: written 0", "answering", "▎ abcdef")
        terminal.keys("C-x", "C-e")
        terminal.shows("editing --wait -n /")
        terminal.type("failed 3", "Enter")
        terminal.says("my editor: it ended with 3; what you wrote is in /")
        terminal.shows("› So: written 0", "▎ abcdef")
        terminal.keys("Escape")
        terminal.shows("/continue goes on")


def test_a_paste_is_text_whatever_is_in_it(tmp_path: Path, model: Path):
    with a_shell(tmp_path) as terminal:
        opened(terminal, model, "max_tokens=30")
        start = len(terminal.received())
        terminal.paste("one\x1b[31m\x1b]0;title\x07\r\x11\x1b[201~\r\x03two\u202e\u200b")
        terminal.shows("one␛[31m␛]0;title␇", "␛[201~", "␃two\\u202e\\u200b")
        received = terminal.received(start)
        assert b"\x1b]0;" not in received
        assert b"\x07" not in received
        assert turns(tmp_path) == ()
        terminal.keys(*["C-u", "BSpace"] * 4)
        terminal.shows(f"› {ASKS}")

        began = time.monotonic()
        terminal.paste("0123456789abcde\n" * 2**16)
        terminal.shows("@pasted 1.0 MB")
        terminal.type("What is it?")
        terminal.shows("› What is it?")
        assert time.monotonic() - began < 2.0


def test_what_is_no_utf_8_ends_nothing(tmp_path: Path, model: Path):
    with a_shell(tmp_path) as terminal:
        opened(terminal, model)
        terminal.raw(0xFF, 0xC3, 0x61)
        terminal.type("b")
        terminal.until(lambda: "ab" in terminal.screen())


def test_an_answer_cannot_touch_the_terminal(tmp_path: Path):
    hostile = ["Red \x1b[31m", " title \x1b]0;pwned\x07", " copy \x1b]52;c;cHduZWQ=\x07 c1 \x9b31m"]
    hostile += ["\n\n\u202egnp.exe\u202c zero\u200bwidth \u0301\u0302\u0303\u0304\u0305\u0306"]
    hostile += ["\n\n```\n\x1b[2J\x1b[H\x1b[?1049l\n```\n\n", "x" * 50_000, "y" * 50_000, " end"]
    with serving(lambda _: answer(hostile)) as server, a_shell(tmp_path) as terminal:
        terminal.type(f"./chat --url {server.url}", "Enter")
        terminal.shows(ASKS, "enter send")
        start = len(terminal.received())
        terminal.type("Go", "Enter")
        terminal.shows("yyy end", f"› {ASKS}", "f1 help")
        terminal.keys("PPage")
        terminal.lacks("yyy end")
        terminal.keys("Tab", "Home")
        terminal.shows(
            "Red ␛[31m title ␛]0;pwned␇", "c1 \\x9b31m", "\\u202egnp", "zero\\u200bwidth"
        )
        received = terminal.received(start)
        for sequence in (b"\x1b]0;", b"\x1b]52;", b"\x1b[2J", b"\x1b[?1049l", b"\x9b31m", b"\x07"):
            assert sequence not in received.replace(b"\xc2\x9b", b"\x9b")
        assert terminal.is_so("alternate_on")
        terminal.keys("End")
        terminal.shows("yyy end")


def test_tmux_takes_what_is_copied(tmp_path: Path, model: Path):
    with a_shell(tmp_path, environ={"SSH_TTY": "/dev/pts/0"}) as terminal:
        opened(terminal, model, "max_tokens=27")
        terminal.type("Recite", "Enter")
        terminal.shows("27 tokens")
        terminal.keys("C-y")
        terminal.shows("in tmux's buffer (prefix ] pastes it)")
        assert terminal.buffer() == SAID


def test_without_a_clipboard_a_copy_is_a_file(tmp_path: Path, model: Path):
    with a_shell(tmp_path) as terminal:
        terminal.type("export PATH=/nonexistent", "Enter")  # no program that copies is found
        opened(terminal, model, "max_tokens=27")
        terminal.type("Recite", "Enter")
        terminal.shows("27 tokens")
        terminal.keys("C-y")
        terminal.shows("no clipboard here: written to")
        copied = tmp_path / "data" / "copied.txt"
        assert copied.read_text() == SAID


# --- the end -------------------------------------------------------------------------------------


def not_taken_back(received: bytes) -> list[str]:
    """What the program asked of the terminal and has left so. The shell's prompt follows."""
    of_it = received.split(PROMPT.encode())[0].removesuffix(b"\x1b[?2004h")
    asked = [mode for mode in MODES if f"\x1b[?{mode}h".encode() in of_it]
    assert asked == list(MODES)
    return [
        MODES[mode]
        for mode in asked
        if of_it.rfind(f"\x1b[?{mode}h".encode()) > of_it.rfind(f"\x1b[?{mode}l".encode())
    ]


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_it_in_order(tmp_path: Path, model: Path, name: str, code: int):
    with a_shell(tmp_path) as terminal:
        start = len(terminal.received())
        opened(terminal, model)
        terminal.type("Recite", "Enter")
        terminal.shows("xyz abc")
        os.kill(terminal.program(), getattr(signal, name))
        terminal.until(terminal.is_sane)
        terminal.type("echo code $?", "Enter")
        terminal.shows(f"code {code}")
        assert not_taken_back(terminal.received(start)) == []
        kept = turns(tmp_path)[-1]
        assert kept.state is TurnState.STOPPED
        assert is_recited(kept.text)


def test_a_terminal_that_goes_away_takes_it_along(tmp_path: Path, model: Path):
    with a_shell(tmp_path) as terminal:
        opened(terminal, model)
        terminal.type("Recite", "Enter")
        terminal.shows("xyz abc")
        program = Path(f"/proc/{terminal.program()}")
    end = time.monotonic() + 15
    while program.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not program.exists()
    with ChatStore(tmp_path / "data" / "chats.db") as store:
        store.recover()
    assert is_recited(turns(tmp_path)[-1].text)


def test_a_crash_leaves_the_terminal_as_it_was(tmp_path: Path, model: Path):
    crash = tmp_path / "crash.py"
    crash.write_text(
        "import sys\nfrom edgeserve.tui.chat_commands import ChatCommands\n"
        "async def _crash(*_): raise ZeroDivisionError('on purpose')\n"
        "ChatCommands._help = _crash\nfrom edgeserve.cli import main\n"
        "sys.exit(main(['chat', *sys.argv[1:]]))\n"
    )
    with a_shell(tmp_path) as terminal:
        start = len(terminal.received())
        terminal.type(f"{sys.executable} crash.py {model}", "Enter")
        terminal.shows(ASKS)
        terminal.keys("F1")
        terminal.until(terminal.is_sane)
        terminal.shows("on purpose")
        terminal.type("echo code $?", "Enter")
        terminal.shows("code 1")
        assert not_taken_back(terminal.received(start)) == []


# --- with a model that says something ------------------------------------------------------------


def test_smollm2_answers_in_the_terminal(tmp_path: Path, smollm2_path: Path):
    with a_shell(tmp_path) as terminal:
        opened(terminal, smollm2_path, "temperature=0", "max_tokens=200")
        terminal.type("What is the capital of France?", "Enter")
        terminal.shows("Paris", "a second", "enter send")
        terminal.type("Write a long story about the sea.", "Enter")
        terminal.shows("answering · ")
        terminal.keys("Escape")
        terminal.shows("/continue goes on", "enter send")
        terminal.keys("M-e")
        terminal.shows("Editing your question")
        terminal.keys("C-u")
        terminal.type("What is 2+2?", "Enter")
        terminal.shows("you  ‹2/2›", " 4", "enter send")
        terminal.type("/branch -", "Enter")
        terminal.shows("you  ‹1/2›", "this branch:", " cached")
        terminal.keys("C-c", "C-c")
        terminal.shows(PROMPT)
        terminal.type("./chat", "Enter")
        terminal.shows("you  ‹1/2›", f"{smollm2_path.stem} · ")
        terminal.keys("F2")
        terminal.shows("Search all chats")
        terminal.type("Paris")
        terminal.shows("The capital of France is Paris.")
