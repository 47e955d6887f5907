"""Keys that come faster than they are dealt with: each does what it would have done alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual import events

from edgeserve.chats.records import TurnState
from edgeserve.chats.tree import TurnTree
from edgeserve.tui.app import EdgeServeApp
from edgeserve.tui.screens.dialogs import LineDialog
from tests.chat_app import NOW, Table, drive

_NAMES = {
    "\x7f": "backspace",
    "\x01": "ctrl+a",
    "\x15": "ctrl+u",
    "\x17": "ctrl+w",
    "\r": "enter",
    "\n": "ctrl+j",
    "\x1b": "escape",
    "\x03": "ctrl+c",
    "\t": "tab",
    "/": "slash",
}


def burst(table: Table, text: str) -> None:
    """All keys at once, as a terminal that was held up gives them."""
    for each in text:
        key = _NAMES.get(each, "space" if each == " " else each)
        table.app.post_message(events.Key(key, each if each.isprintable() else None))


def test_what_is_typed_before_the_first_screen_stands_in_the_composer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From the moment on in which the terminal is taken over."""
    loaded = EdgeServeApp.on_load

    def typing(app: EdgeServeApp) -> None:
        loaded(app)
        for key in "early":
            app.post_message(events.Key(key, key))
        app.post_message(events.Paste(" bird"))
        app.post_message(events.Key("s", "s"))

    monkeypatch.setattr(EdgeServeApp, "on_load", typing)

    async def body(table: Table) -> None:
        await table.until(lambda: table.chat.composer.text == "early birds")

    drive(tmp_path, body)


def test_two_questions_in_a_burst_are_one_and_what_is_still_to_be_sent(tmp_path: Path):
    async def body(table: Table) -> None:
        burst(table, "first line\rsecond line\r")
        await table.until(lambda: table.texts()[1:] == ["You said: first line"])
        await table.until(lambda: table.chat.composer.text == "second line")
        assert [turn.text for turn in table.chat.talk.tree.turns] == table.texts()

    drive(tmp_path, body)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("abc\x7f\x7fd", "ad"),
        ("one two\x17three", "one three"),
        ("b\x01a", "ab"),
        ("slip\x15right", "right"),
        ("slip\x15right\x7f\x01b", "brigh"),
    ],
)
def test_keys_that_edit_are_done_in_the_order_typed(tmp_path: Path, typed: str, shown: str):
    async def body(table: Table) -> None:
        burst(table, f"{typed}\rnext")
        await table.until(lambda: table.chat.composer.text == "next")
        await table.until(lambda: table.texts() == [shown, f"You said: {shown}"])

    drive(tmp_path, body)


def test_keys_that_edit_a_line_are_done_in_the_order_typed(tmp_path: Path):
    async def body(table: Table) -> None:
        answers: list[str | None] = []
        table.app.push_screen(LineDialog("Name", value="name"), answers.append)
        await table.until(lambda: table.app.focused is not None and table.app.screen.is_modal)
        burst(table, "\x15abc\x7f\x7fd\r")
        await table.until(lambda: answers == ["ad"])

    drive(tmp_path, body)


def test_a_key_behind_one_that_moves_the_focus_is_for_whoever_has_it_then(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("a question")
        composer = table.chat.composer
        burst(table, "abc\t")
        table.app.post_message(events.Key("home", None))
        await table.until(lambda: table.app.focused is not composer)
        await table.pilot.press("tab", "shift+tab")  # the home key has been heard behind these
        assert (composer.text, composer.cursor_location) == ("abc", (0, 3))

    drive(tmp_path, body)


def test_commands_in_a_burst_are_done_one_after_the_other(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        burst(table, "/export a.md\r/export b.md\r/new\rNext\r")
        await table.until(lambda: table.texts() == ["Next", "You said: Next"])
        assert (tmp_path / "a.md").exists()
        assert (tmp_path / "b.md").exists()
        assert table.chat.composer.text == ""

    drive(tmp_path, body)


def test_a_stop_right_behind_a_question_stops_its_answer(tmp_path: Path):
    async def body(table: Table) -> None:
        table.client.hold()
        burst(table, "Hi\r\x1b")
        await table.until(lambda: table.texts()[:1] == ["Hi"])
        await table.until(lambda: not table.chat.talk.is_answering)
        await table.client.release()
        assert all(turn.state is TurnState.STOPPED for turn in table.chat.talk.turns[1:])

    drive(tmp_path, body)


def test_an_answer_that_has_just_ended_was_not_broken_off(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        talk = table.chat.talk
        asked, answered = talk.tree.turns
        talk.tree = TurnTree((asked, replace(answered, state=TurnState.STREAMING)))
        assert not await talk.recover()
        assert talk.turns[-1].state is TurnState.COMPLETE

    drive(tmp_path, body)


def test_a_question_without_an_answer_says_so(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        await table.chat.talk.show_leaf(table.chat.talk.turns[0].id)
        await table.shows("no answer yet: ctrl+r asks for one")
        await table.pilot.press("ctrl+r")
        await table.shows("You said: Hi")
        await table.until(lambda: "no answer yet" not in table.screen())

    drive(tmp_path, body)


@pytest.mark.parametrize(("after_s", "leaves"), [(0.1, False), (0.6, True), (2.1, False)])
def test_ctrl_c_after_a_stop_leaves_where_it_was_not_the_same_haste(
    tmp_path: Path, after_s: float, leaves: bool
):
    now = [NOW]

    async def body(table: Table) -> None:
        table.client.hold()
        await table.type("Hi", "enter")
        await table.until(lambda: table.client.answers)
        await table.client.let(3)
        await table.pilot.press("ctrl+c")
        await table.until(lambda: not table.chat.talk.is_answering)
        now[0] += after_s
        await table.pilot.press("ctrl+c")
        for _ in range(20):
            await table.pilot.pause()
        assert table.app.is_running is not leaves
        await table.client.release()

    drive(tmp_path, body, clock=lambda: now[0])


def test_escape_closes_what_is_suggested_before_it_stops_an_answer(tmp_path: Path):
    async def body(table: Table) -> None:
        table.client.hold()
        await table.type("Hi", "enter")
        await table.until(lambda: table.client.answers)
        await table.type("/th")
        await table.shows("think first")
        await table.pilot.press("escape")
        await table.until(lambda: "think first" not in table.screen())
        assert table.chat.talk.is_answering
        await table.pilot.press("escape")
        await table.until(lambda: not table.chat.talk.is_answering)
        await table.client.release()

    drive(tmp_path, body)


def test_still_answering_is_said_as_long_as_it_is_true(tmp_path: Path):
    async def body(table: Table) -> None:
        table.client.hold()
        await table.type("Hi", "enter")
        await table.until(lambda: table.client.answers)
        await table.type("Next", "enter")
        await table.shows("still answering: esc stops it, what you wrote stays")
        assert table.chat.composer.text == "Next"
        await table.pilot.press("escape")
        await table.until(lambda: "still answering" not in table.screen())
        await table.client.release()

    drive(tmp_path, body)


def test_a_file_that_is_not_there_is_told_before_the_text_is_sent(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("see @nofile.txt, please", "enter")
        await table.says("There is no file @nofile.txt in")
        assert table.chat.composer.text == "see @nofile.txt, please"
        assert table.client.asked == []
        await table.pilot.press("enter")
        await table.until(lambda: table.texts()[:1] == ["see @nofile.txt, please"])

    drive(tmp_path, body)


def test_a_word_after_an_at_is_no_file(tmp_path: Path):
    async def body(table: Table) -> None:
        said = "ask me@work.py or @anna about @dataclass, @pytest.mark.slow, @types/node"
        await table.type(said, "enter")
        await table.until(lambda: table.texts()[:1] == [said])

    drive(tmp_path, body)
