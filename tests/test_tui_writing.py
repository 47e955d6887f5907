"""The composer by its keys: lines, history, completion, files, long pastes, prompts, the editor."""

from __future__ import annotations

import sys
from pathlib import Path

from textual import events

from edgeserve.terminal import Terminal
from tests.chat_app import Table, drive


def test_ctrl_j_and_alt_enter_begin_a_line(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("one", "ctrl+j")
        await table.type("two", "alt+enter")
        await table.type("three", "enter")
        await table.until(lambda: table.texts()[:1] == ["one\ntwo\nthree"])

    drive(tmp_path, body)


def test_arrows_go_through_what_was_sent(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("first")
        await table.ask("second")
        await table.type("half writ")
        seen: list[str] = []
        for key in ("up", "up", "down", "down"):
            await table.pilot.press(key)
            seen.append(table.chat.composer.text)
        assert seen == ["second", "first", "second", "half writ"]

    drive(tmp_path, body)


def test_a_command_is_completed(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("/th")
        await table.shows("think first")
        await table.pilot.press("down", "tab")
        assert table.chat.composer.text == "/theme "
        await table.type("light", "enter")
        await table.until(lambda: table.app.theme == "edgeserve-light")

    drive(tmp_path, body)


def test_a_path_typed_in_full_is_taken_though_there_are_longer_ones(tmp_path: Path):
    (tmp_path / "out.md.bak").write_text("older")

    async def body(table: Table) -> None:
        await table.ask("Hi")
        await table.type("/export out.md", "enter")
        await table.until(lambda: (tmp_path / "out.md").exists())
        assert (tmp_path / "out.md.bak").read_text() == "older"
        await table.type("/import out.md", "enter")
        await table.says("1 chat imported")

    drive(tmp_path, body)


def test_a_word_after_a_slash_that_is_no_command_is_not_sent(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("/nosuch", "enter")
        await table.shows("There is no command /nosuch")
        assert table.chat.composer.text == "/nosuch"
        table.chat.composer.put(
            "//etc is a path",
        )
        await table.pilot.press("enter")
        await table.until(lambda: table.texts()[:1] == ["/etc is a path"])

    drive(tmp_path, body)


def test_a_file_is_completed_and_attached(tmp_path: Path):
    (tmp_path / "notes.md").write_text("Buy milk")

    async def body(table: Table) -> None:
        await table.type("see @no", "tab")
        assert table.chat.composer.text == "see @notes.md "
        await table.pilot.press("enter")
        await table.until(lambda: len(table.texts()) == 2)
        asked = str(table.client.asked[0].messages[0].get("content"))
        assert asked == "notes.md:\n```\nBuy milk\n```\n\nsee @notes.md"

    drive(tmp_path, body)


def test_a_binary_file_is_refused_and_nothing_is_lost(tmp_path: Path):
    (tmp_path / "photo.bin").write_bytes(b"\x89PNG\0\0")

    async def body(table: Table) -> None:
        await table.type("see @photo.bin please", "enter")
        await table.shows("only text can be attached")
        assert table.chat.composer.text == "see @photo.bin please"
        assert table.texts() == []

    drive(tmp_path, body)


def test_a_long_paste_is_a_chip_and_backspace_takes_it_away(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("x" * 1_000_000)
        await table.shows("@pasted 1.0 MB")
        await table.pilot.press("backspace")
        assert table.chat.writing.attached == []
        await table.type("y" * 5000)
        await table.type("what is this?", "enter")
        await table.until(lambda: len(table.texts()) == 2)
        assert table.chat.talk.turns[0].attachments[0].text == "y" * 5000

    drive(tmp_path, body)


def test_a_prompt_is_filled_in(tmp_path: Path):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "review.md").write_text("Review {{what}} closely.")

    async def body(table: Table) -> None:
        await table.type("/prompt review", "enter")
        await table.shows("review: what")
        await table.type("this diff", "enter")
        await table.until(lambda: table.chat.composer.text == "Review this diff closely.")

    drive(tmp_path, body)


def test_where_there_is_no_clipboard_it_is_a_file_and_says_so(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        await table.type("/copy", "enter")
        await table.shows("no clipboard here")
        copied = tmp_path / "data" / "copied.txt"
        assert copied.read_text() == "You said: Hi"

    drive(tmp_path, body, find_program=lambda _: None)


def test_the_terminal_over_ssh_is_asked_through_tmux(tmp_path: Path):
    written: list[str] = []

    async def body(table: Table) -> None:
        table.chat.write_raw = written.append  # type: ignore[method-assign]
        await table.ask("Hi")
        await table.type("/copy", "enter")
        await table.shows("sent to your terminal")
        assert written == ["\x1bPtmux;\x1b\x1b]52;c;WW91IHNhaWQ6IEhp\a\x1b\\"]

    terminal = Terminal(over_ssh=True, in_tmux=True)
    drive(tmp_path, body, terminal=terminal, find_program=lambda _: None)


def test_what_the_editor_left_is_in_the_composer():
    from edgeserve.tui.editor import edited

    script = "import sys, pathlib; p = pathlib.Path(sys.argv[1]); p.write_text(p.read_text() + '!')"
    assert edited((sys.executable, "-c", script), "Hello") == "Hello!"


def test_keys_that_come_in_a_burst_keep_their_order(tmp_path: Path):
    """As a slow machine sees fast typing: Enter must not overtake what was typed before it."""

    async def body(table: Table) -> None:
        for letter in "hello":
            table.app.post_message(events.Key(letter, letter))
        table.app.post_message(events.Key("enter", "\r"))
        await table.until(lambda: table.texts()[:1] == ["hello"])

    drive(tmp_path, body)
