"""A file of chats that cannot be used, as the chat on the screen and its plain sibling tell it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeserve.chats.store import ChatStore
from tests.chat_app import NOW, Table, drive

_PAGE = 4096


def _filled(path: Path) -> None:
    clock = iter(range(10_000))
    with ChatStore(path, clock=lambda: next(clock)) as store:
        for number in range(12):
            chat = store.new_chat()
            asked = store.add_turn(chat.id, None, "user", f"question {number} " + "x" * 900)
            store.add_turn(chat.id, asked.id, "assistant", f"answer {number} " + "y" * 900)


def _garbage(path: Path) -> None:
    path.write_bytes(b"\x00\xff rubbish" * 4000)


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 5 * _PAGE + 100])


def _broken_pages(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        sql = "SELECT pageno FROM dbstat WHERE name = 'turns' AND pagetype = 'leaf'"
        pages = [number - 1 for (number,) in connection.execute(sql)]
    connection.close()
    with path.open("r+b") as file:
        file.seek(pages[-1] * _PAGE)  # with the newest chat
        file.write(b"\xa5" * _PAGE)


@pytest.mark.parametrize("damage", [_garbage, _truncated, _broken_pages])
def test_a_damaged_file_is_told_moved_aside_and_gone_on_from(
    tmp_path: Path, damage: Callable[[Path], None]
):
    path = tmp_path / "chats.db"
    _filled(path)
    damage(path)
    before = path.read_bytes()

    async def body(table: Table) -> None:
        await table.says("The file of chats was damaged")
        await table.says("chats.db.damaged-1")
        await table.pilot.press("ctrl+n")
        await table.ask("And on")

    drive(tmp_path, body)
    assert before in [each.read_bytes() for each in tmp_path.glob("chats.db.damaged-1*")]
    with ChatStore(path) as store:
        assert store.chats()[0].title == "And on"


def test_damage_that_is_met_in_the_middle_is_told_and_the_chat_goes_on(tmp_path: Path):
    path = tmp_path / "chats.db"
    _filled(path)

    async def body(table: Table) -> None:
        await table.ask("Something")
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        _broken_pages(path)
        await table.chat.talk.refresh()
        await table.says("The file of chats was damaged")
        await table.type("More of it", "enter")
        composer, talk = table.chat.composer, table.chat.talk
        await table.until(lambda: composer.text or "More of it" in table.texts())
        if composer.text:  # the turn that it would have followed is among the lost
            await table.pilot.press("enter")
        await table.until(lambda: "More of it" in table.texts() and not talk.is_answering)
        await table.ask("And on")

    drive(tmp_path, body)
    with ChatStore(path) as store:
        assert store.salvage is None
        latest = store.latest()
        assert latest is not None
        assert store.branch(latest.leaf_id)[-2].text == "And on"


def test_what_the_window_has_in_memory_outlives_the_page_it_was_on(tmp_path: Path):
    path = tmp_path / "chats.db"
    _filled(path)
    shown: list[str] = []

    async def body(table: Table) -> None:
        await table.pilot.press("ctrl+n")
        for text in ("First", "Second", "Third"):
            await table.ask(text)
        await table.type("/rename Precious", "enter")
        await table.until(lambda: table.chat.talk.chat.title == "Precious")
        shown.extend(table.texts())
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        _broken_pages(path)
        await table.chat.talk.refresh()
        await table.says("What this window had of the chat it shows is kept")
        assert table.texts() == shown
        await table.ask("Fourth")
        shown.extend(table.texts()[-2:])
        assert len(shown) == 8

    drive(tmp_path, body)
    with ChatStore(path) as store:
        latest = store.latest()
        assert latest is not None
        assert latest.title == "Precious"
        assert [turn.text for turn in store.branch(latest.leaf_id)] == shown
        assert [turn.text for turn in store.turns(latest.id).turns] == shown
        assert [hit.turn_id is not None for hit in store.search("Second")] == [True, True]


def test_a_log_that_was_torn_costs_its_last_write_at_most(tmp_path: Path):
    """As after a power cut: SQLite's log ends in the middle of what it should have had."""
    path, copy = tmp_path / "first" / "chats.db", tmp_path / "chats.db"
    with ChatStore(path, clock=lambda: NOW) as store:
        chat = store.new_chat()
        asked = store.add_turn(chat.id, None, "user", "kept whatever comes")
        store.add_turn(chat.id, asked.id, "assistant", "torn " * 3000)
        copy.write_bytes(path.read_bytes())
        log = path.with_name("chats.db-wal").read_bytes()
    copy.with_name("chats.db-wal").write_bytes(log[: -len("torn ") * 1000])

    async def body(table: Table) -> None:
        assert table.texts() == ["kept whatever comes"]
        await table.type("/continue", "enter")
        await table.until(lambda: len(table.texts()) == 2 and not table.chat.talk.is_answering)

    drive(tmp_path, body)


def test_a_newer_file_is_left_alone_and_the_chat_works(tmp_path: Path):
    path = tmp_path / "chats.db"
    _filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()

    async def body(table: Table) -> None:
        await table.says("Update edgeserve")
        await table.says("Until then new chats are kept in")
        await table.ask("Still works")
        assert len(table.texts()) == 2

    drive(tmp_path, body)
    assert path.read_bytes() == before


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
@pytest.mark.parametrize("mode", ["file", "folder"])
def test_what_may_not_be_written_is_told(tmp_path: Path, mode: str):
    path = tmp_path / "data" / "chats.db"
    _filled(path)
    what = path if mode == "file" else path.parent
    what.chmod(0o400 if mode == "file" else 0o500)

    async def body(table: Table) -> None:
        await table.says("EDGESERVE_DATA")
        await table.ask("Still works")

    drive(tmp_path, body, open_chats=lambda: ChatStore(path))
    what.chmod(0o700)
    with ChatStore(path) as store:
        assert len(store.chats()) == 12


def test_a_file_that_turns_read_only_keeps_the_question_in_the_composer(tmp_path: Path):
    stores: list[ChatStore] = []

    def opened() -> ChatStore:
        stores.append(ChatStore(tmp_path / "chats.db", clock=lambda: NOW))
        return stores[0]

    def read_only(is_so: bool) -> None:
        with stores[0]._database.reading() as connection:  # pyright: ignore[reportPrivateUsage]
            connection.execute(f"PRAGMA query_only = {'ON' if is_so else 'OFF'}")

    async def body(table: Table) -> None:
        await table.ask("Before")
        read_only(True)
        await table.type("Not lost", "enter")
        await table.says("Make the folder writable")
        assert table.chat.composer.text == "Not lost"
        read_only(False)
        await table.pilot.press("enter")
        await table.until(lambda: table.texts()[2:] == ["Not lost", "You said: Not lost"])

    drive(tmp_path, body, open_chats=opened)


def test_a_file_that_another_program_holds_is_told_and_used_once_it_is_free(tmp_path: Path):
    path = tmp_path / "chats.db"

    async def body(table: Table) -> None:
        await table.ask("Before")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await table.type("Not lost", "enter")
        await table.says("another program has been writing")
        assert table.chat.composer.text == "Not lost"
        other.execute("ROLLBACK")
        other.close()
        await table.pilot.press("enter")
        await table.until(lambda: table.texts()[2:] == ["Not lost", "You said: Not lost"])

    drive(tmp_path, body, open_chats=lambda: ChatStore(path, busy_timeout_s=0.1))


def test_a_file_that_is_held_while_an_answer_streams_gets_it_afterwards(tmp_path: Path):
    path = tmp_path / "chats.db"

    async def body(table: Table) -> None:
        table.client.hold()
        await table.type("Hi", "enter")
        await table.until(lambda: table.client.answers)
        await table.client.let(2)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await table.client.release()
        await table.says("Not kept on disk")
        await table.until(lambda: not table.chat.talk.is_answering)
        assert table.texts() == ["Hi", "You said: Hi"]
        other.execute("ROLLBACK")
        other.close()
        await table.says("Everything is kept on disk again")

    drive(tmp_path, body, open_chats=lambda: ChatStore(path, busy_timeout_s=0.1))
    with ChatStore(path) as store:
        (chat,) = store.chats()
        assert store.branch(chat.leaf_id)[-1].text == "You said: Hi"


def test_a_file_that_is_held_at_the_start_is_told(tmp_path: Path):
    path = tmp_path / "chats.db"
    _filled(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def body(table: Table) -> None:
        await table.says("another program has been writing")
        await table.ask("Still works")

    drive(tmp_path, body, open_chats=lambda: ChatStore(path, busy_timeout_s=0.1))
    other.close()
