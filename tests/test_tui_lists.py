"""The list of chats by its keys: search, switch, pin, rename, tag, delete and undo, files."""

from __future__ import annotations

from pathlib import Path

from textual.widgets import Input

from edgeserve.chats.store import ChatStore
from tests.chat_app import NOW, Table, drive


async def _two_chats(table: Table) -> None:
    await table.ask("The heating is broken")
    await table.pilot.press("ctrl+n")
    await table.ask("Plan a week in Lisbon")


def test_titles_are_whole_after_the_terminal_was_narrow(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Recite the alphabet")
        await table.shows("Recite the alphabet     now")
        for size in ((80, 24), (50, 16), (30, 8), (20, 5)):
            await table.pilot.resize_terminal(*size)
            await table.chat.commands.fill_list()
        await table.pilot.resize_terminal(120, 30)
        await table.shows("Recite the alphabet     now")

    drive(tmp_path, body, size=(120, 30))


def test_a_search_finds_what_was_said_and_opens_it(tmp_path: Path):
    async def body(table: Table) -> None:
        await _two_chats(table)
        await table.pilot.press("f2")
        await table.until(lambda: isinstance(table.app.focused, Input))
        await table.type("heat")
        await table.until(lambda: "Lisbon" not in table.screen().partition("Search")[0][60:])
        await table.until(lambda: table.chat.chats.words == "heat" and table.chat.chats.marked)
        await table.pilot.press("enter")
        await table.until(lambda: table.chat.talk.chat.title == "The heating is broken")

    drive(tmp_path, body)


def test_pinned_tagged_renamed(tmp_path: Path):
    async def body(table: Table) -> None:
        await _two_chats(table)
        for command in ("/pin", "/tag travel", "/rename Lisbon in May"):
            await table.type(command, "enter")
        await table.until(lambda: table.chat.talk.chat.title == "Lisbon in May")
        await table.shows("Lisbon in May #travel")
        await table.type("/tag travel", "enter")
        await table.until(lambda: not table.chat.talk.chat.tags)

    drive(tmp_path, body, size=(120, 30))
    with ChatStore(tmp_path / "chats.db") as store:
        assert [(c.title, c.pinned) for c in store.chats()] == [
            ("Lisbon in May", True),
            ("The heating is broken", False),
        ]


def test_a_deleted_chat_comes_back(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Precious")
        await table.type("/delete", "enter")
        await table.shows("/undo brings it back")
        assert table.texts() == []
        await table.type("/undo", "enter")
        await table.until(lambda: table.texts()[:1] == ["Precious"])

    drive(tmp_path, body)


def test_a_chat_goes_out_as_markdown_and_comes_in(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Take me with you")
        await table.type("/export out.md", "enter")
        await table.until(lambda: (tmp_path / "out.md").exists())
        await table.type("/import out.md", "enter")
        await table.shows("1 chat imported")
        assert table.texts() == ["Take me with you", "You said: Take me with you"]

    drive(tmp_path, body)


def test_a_file_that_is_not_this_chat_is_written_over_only_when_told(tmp_path: Path):
    notes = tmp_path / "notes.md"
    notes.write_text("mine")

    async def body(table: Table) -> None:
        await table.ask("Take me with you")
        await table.type("/export notes.md", "enter")
        await table.shows("is not this chat")
        assert notes.read_text() == "mine"
        await table.type("/export --force notes.md", "enter")
        await table.until(lambda: "Take me" in notes.read_text())
        await table.ask("And me")
        await table.type("/export notes.md", "enter")
        await table.until(lambda: "And me" in notes.read_text())
        await table.type("/export x.pdf", "enter")
        await table.shows("x.pdf was not written")

    drive(tmp_path, body)


def test_what_another_window_wrote_is_shown(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Here")
        with ChatStore(tmp_path / "chats.db", clock=lambda: NOW) as other:
            chat = other.latest()
            assert chat is not None
            other.add_turn(chat.id, chat.leaf_id, "user", "From over there")
        await table.shows("From over there")

    drive(tmp_path, body)
