"""What a real terminal brings about, shown without one: pastes, keys in a burst, little room."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from edgeserve.chats.records import TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.terminal import Terminal
from edgeserve.tui.widgets.status_line import StatusLine
from tests.chat_app import NOW, Table, drive
from tests.fake_chat_client import FakeClient

HOSTILE = "one\x1b[31m\ttwo\u202e\x07"


@pytest.mark.parametrize(
    ("is_ascii", "expected"),
    [(False, "one␛[31m\ttwo\\u202e␇"), (True, "one^[[31m\ttwo\\u202e^G")],
)
def test_what_is_pasted_stands_there_in_signs(tmp_path: Path, is_ascii: bool, expected: str):
    async def body(table: Table) -> None:
        await table.type(HOSTILE)
        assert table.chat.composer.text == expected
        table.chat.composer.put(HOSTILE)
        assert table.chat.composer.text == expected
        await table.pilot.press("f2")
        await table.until(lambda: table.chat.chats.has_focus_within)
        await table.type(HOSTILE)
        assert table.chat.chats.words == expected

    drive(tmp_path, body, terminal=Terminal(is_ascii=is_ascii))


@pytest.mark.parametrize("rest", ["eme terminal", "eme terminal "])
def test_enter_right_behind_a_command_sends_it(tmp_path: Path, rest: str):
    """Typed at once, before its completions have been looked for."""

    async def body(table: Table) -> None:
        await table.type("/th")
        await table.shows("think first")
        table.app.post_message(events.Paste(rest))
        table.app.post_message(events.Key("enter", None))
        await table.until(lambda: table.app.theme == "terminal")
        assert table.chat.composer.text == ""

    drive(tmp_path, body)


def test_leaving_is_offered_as_long_as_it_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("edgeserve.tui.screens.chat_screen._AGAIN_S", 0.2)

    async def body(table: Table) -> None:
        await table.pilot.press("ctrl+c")
        await table.shows("ctrl+c again to leave")
        await table.until(lambda: "ctrl+c again to leave" not in table.screen())

    drive(tmp_path, body)


def test_a_note_with_no_room_there_stands_above_the_composer(tmp_path: Path):
    async def body(table: Table) -> None:
        note = f"no clipboard here: written to /{'very/' * 12}long/copied.txt"
        table.chat.note(note)
        await table.says(note)
        assert "send" in table.screen().split("\n")[-1]

    drive(tmp_path, body)


def test_a_note_has_room_before_the_keys(tmp_path: Path):
    async def body(table: Table) -> None:
        note = "this branch: 12,620 tokens · 12,608 cached · 0.1 s to read"
        table.chat.note(note)
        await table.shows(f"  {note}")
        last = table.screen().split("\n")[-1]
        assert last.split() == f"{note} enter send".split()
        table.chat.note("")
        await table.shows("f2 chats   f1 help")
        assert table.app.query_one(StatusLine).content_size.width == 76

    drive(tmp_path, body)


def test_an_answer_that_was_lost_says_whose_it_was_and_what_to_do(tmp_path: Path):
    with ChatStore(tmp_path / "chats.db", clock=lambda: NOW) as store:
        chat = store.new_chat(model="some-model")
        asked = store.add_turn(chat.id, None, "user", "Why?")
        turn = store.add_turn(chat.id, asked.id, "assistant", state=TurnState.STREAMING)
        store.finish(turn.id, TurnState.INTERRUPTED, text="Because")

    async def body(table: Table) -> None:
        await table.shows("some-model  interrupted")
        assert "broken off when the program ended: /continue goes on" in table.screen()

    drive(tmp_path, body)


def test_titles_have_the_room_that_the_list_has(tmp_path: Path):
    """It is filled while nobody sees it, and is wider or narrower later."""

    async def body(table: Table) -> None:
        await table.ask("Recite the alphabet")
        await table.pilot.press("f2")
        await table.until(
            lambda: "Recite the alphabet" in table.screen().partition("Search all")[2]
        )
        await table.pilot.resize_terminal(160, 24)
        await table.until(
            lambda: "Recite the alphabet" in table.screen().partition("Search all")[2]
        )

    drive(tmp_path, body)


@pytest.mark.parametrize("first", ["Hello", "/theme terminal"])
def test_what_is_typed_behind_enter_stays(tmp_path: Path, first: str):
    async def body(table: Table) -> None:
        table.app.post_message(events.Paste(first))
        table.app.post_message(events.Key("enter", None))
        table.app.post_message(events.Paste("How"))
        await table.until(lambda: table.texts()[:1] == [first] or table.app.theme == "terminal")
        assert table.chat.composer.text == "How"

    drive(tmp_path, body)


def test_a_model_file_that_was_used_last_is_used_again(tmp_path: Path):
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"")
    with ChatStore(tmp_path / "chats.db", clock=lambda: NOW) as store:
        store.remember_model(str(path))

    async def body(table: Table) -> None:
        await table.until(lambda: table.client.used == [str(path)])

    drive(tmp_path, body, client=FakeClient())
