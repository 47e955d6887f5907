"""What stands in the composer belongs to its chat, a new one too, and outlives everything."""

from __future__ import annotations

import asyncio
from pathlib import Path

from edgeserve.chats.store import ChatStore
from tests.chat_app import NOW, Table, drive


async def _rested(table: Table) -> None:
    """The moment has passed after which a draft is kept."""
    table.chat.writing._rested()  # pyright: ignore[reportPrivateUsage]
    await table.pilot.pause()


def _titles(folder: Path) -> list[str]:
    with ChatStore(folder / "chats.db") as store:
        return [chat.title or f"({chat.draft})" for chat in store.chats()]


def test_a_draft_in_a_new_chat_is_there_after_a_restart(tmp_path: Path):
    async def first(table: Table) -> None:
        await table.ask("Said before")
        await table.pilot.press("ctrl+n")
        await table.type("half a thought")

    async def second(table: Table) -> None:
        assert table.chat.composer.text == "half a thought"
        assert table.texts() == []
        await table.pilot.press("enter")
        await table.until(lambda: len(table.texts()) == 2 and not table.chat.talk.is_answering)

    drive(tmp_path, first)
    drive(tmp_path, second)
    assert _titles(tmp_path) == ["half a thought", "Said before"]


def test_each_chat_has_its_own_draft(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("First")
        await table.type("for the first")
        await table.pilot.press("ctrl+n")
        assert table.chat.composer.text == ""
        await table.type("for a second")
        await table.pilot.press("ctrl+n")
        assert table.chat.composer.text == ""
        await table.shows("draft: for a second")
        with ChatStore(tmp_path / "chats.db") as store:
            first, second = sorted(store.chats(), key=lambda chat: chat.title, reverse=True)
        for chat, draft in ((first, "for the first"), (second, "for a second")):
            await table.chat.commands.open(chat.id)
            assert table.chat.composer.text == draft

    drive(tmp_path, body, size=(120, 30))
    assert _titles(tmp_path) == ["(for a second)", "First"]


def test_a_draft_that_was_emptied_leaves_no_chat(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("never mind")
        await _rested(table)
        await table.until(lambda: table.chat.talk.chat.id)
        table.chat.composer.put("")
        await _rested(table)
        await table.until(lambda: not table.chat.talk.chat.id)
        await table.ask("Now then")

    drive(tmp_path, body)
    assert _titles(tmp_path) == ["Now then"]


def test_a_question_goes_into_the_chat_that_its_draft_began(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("/system Be brief.", "enter")
        await table.type("What is ")
        await _rested(table)
        await table.until(lambda: table.chat.talk.chat.id)
        await table.type("a monad?", "enter")
        await table.until(lambda: len(table.texts()) == 2 and not table.chat.talk.is_answering)
        await table.until(lambda: not table.chat.talk.chat.draft)

    drive(tmp_path, body)
    with ChatStore(tmp_path / "chats.db") as store:
        (chat,) = store.chats()
        assert (chat.title, chat.system_prompt, chat.draft) == ("What is a monad?", "Be brief.", "")


def test_a_draft_is_kept_before_anybody_leaves(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("kept in case of a crash")
        await _rested(table)
        await table.until(lambda: table.chat.talk.chat.id)
        assert _titles(tmp_path) == ["(kept in case of a crash)"]

    drive(tmp_path, body)


def test_a_command_under_way_is_no_draft(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("/the")
        await _rested(table)
        await table.pilot.press("ctrl+n")

    drive(tmp_path, body)
    assert _titles(tmp_path) == []


def test_an_edit_gives_the_draft_back(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("one")
        await table.type("meanwhile")
        await table.pilot.press("alt+e")
        await table.until(lambda: table.chat.composer.text == "one")
        await _rested(table)
        await table.pilot.press("escape")
        await table.until(lambda: table.chat.composer.text == "meanwhile")
        await table.pilot.press("alt+e")
        await table.until(lambda: table.chat.composer.text == "one")
        await table.type(" more", "enter")
        await table.until(lambda: table.texts() == ["one more", "You said: one more"])
        await table.until(lambda: table.chat.composer.text == "meanwhile")

    drive(tmp_path, body)


def test_a_window_that_wrote_nothing_keeps_the_draft_of_another(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        with ChatStore(tmp_path / "chats.db", clock=lambda: NOW) as other:
            other.keep_draft(table.chat.talk.chat.id, "written over there")
            await table.until(lambda: table.chat.talk.chat.draft == "written over there")

    drive(tmp_path, body)
    with ChatStore(tmp_path / "chats.db") as store:
        assert [chat.draft for chat in store.chats()] == ["written over there"]


def test_the_last_chat_to_go_on_with_is_one_in_which_something_was_said(tmp_path: Path):
    clock = iter(range(100))
    with ChatStore(tmp_path / "chats.db", clock=lambda: next(clock)) as store:
        said = store.new_chat()
        store.add_turn(said.id, None, "user", "Hi")
        drafted = store.new_chat()
        store.keep_draft(drafted.id, "half")
        latest, spoken = store.latest(), store.latest_spoken()
        assert latest is not None
        assert spoken is not None
        assert (latest.id, spoken.id) == (drafted.id, said.id)


def test_two_drafts_at_once_begin_one_chat(tmp_path: Path):
    async def body(table: Table) -> None:
        talk = table.chat.talk
        await asyncio.gather(talk.keep_draft("on"), talk.keep_draft("one"), talk.ask("one"))
        await table.until(lambda: not talk.is_answering)

    drive(tmp_path, body)
    assert len(_titles(tmp_path)) == 1
