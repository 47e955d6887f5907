"""What goes wrong with the file of chats: each is told, and no conversation is lost."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from edgeserve.chats import database, schema
from edgeserve.chats.records import TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.errors import (
    ChatsBusyError,
    ChatsDamagedError,
    ChatsDiskError,
    ChatsDiskFullError,
    ChatsError,
    ChatsForeignError,
    ChatsNewerError,
    ChatsReadOnlyError,
)

_PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.db"


def filled(path: Path, num_chats: int = 20) -> dict[str, list[str]]:
    """A file of chats with four turns each: title to texts."""
    said: dict[str, list[str]] = {}
    with ChatStore(path) as store:
        for number in range(num_chats):
            chat = store.new_chat()
            parent, texts = None, [f"chat {number} turn {at} " + "x" * 300 for at in range(4)]
            for text in texts:
                parent = store.add_turn(chat.id, parent, "user", text).id
            store.rename(chat.id, f"title {number}")
            said[f"title {number}"] = texts
    return said


def held(store: ChatStore) -> dict[str, list[str]]:
    return {
        chat.title: [turn.text for turn in store.branch(chat.leaf_id)] for chat in store.chats()
    }


def overwrite(path: Path, at: int, length: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xa5" * length)


def pages_of(path: Path, table: str) -> list[int]:
    """Where a table's leaves lie in the file, from 0."""
    with sqlite3.connect(path) as connection:
        found = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,)
        )
        return [page - 1 for (page,) in found]


def test_a_full_disk_is_told_and_the_store_goes_on_when_there_is_room(path: Path) -> None:
    with ChatStore(path) as store:
        chat = store.new_chat()
        kept = store.add_turn(chat.id, None, "user", "kept")
        with store._database.writing() as connection:  # pyright: ignore[reportPrivateUsage]
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(ChatsDiskFullError, match="Make room") as caught:
            store.add_turn(chat.id, kept.id, "user", "y" * 100_000)
        assert caught.value.path == path
        assert held(store) == {"kept": ["kept"]}
        with store._database.writing() as connection:  # pyright: ignore[reportPrivateUsage]
            connection.execute("PRAGMA max_page_count = 100000")
        store.add_turn(chat.id, kept.id, "user", "y" * 100_000)
        assert held(store) == {"kept": ["kept", "y" * 100_000]}


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, ChatsDiskFullError),
        (errno.EDQUOT, ChatsDiskFullError),
        (errno.EIO, ChatsDiskError),
        (errno.EROFS, ChatsReadOnlyError),
    ],
)
def test_what_the_system_refuses_is_told_for_what_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[ChatsError]
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(database.os, "open", refuse)
    with pytest.raises(expected):
        ChatStore(path)


def test_a_file_of_rubbish_is_kept_aside_and_a_new_one_begun(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database at all, " * 1_000)
    with ChatStore(path) as store:
        assert store.salvage is not None
        assert store.salvage.num_chats == 0
        assert store.salvage.kept_as.read_bytes().startswith(b"not a database")
        store.new_chat()
    with ChatStore(path) as store:
        assert store.salvage is None
        assert len(store.chats()) == 1


def test_broken_pages_cost_their_own_turns_only(path: Path) -> None:
    said = filled(path)
    pages = pages_of(path, "turns")
    overwrite(path, pages[1] * _PAGE, _PAGE)
    overwrite(path, pages[3] * _PAGE, _PAGE)
    with pytest.raises(ChatsDamagedError, match="Start edgeserve again"), ChatStore(path) as store:
        held(store)
    with ChatStore(path) as store:
        salvage = store.salvage
        assert salvage is not None
        assert salvage.kept_as.exists()
        assert salvage.num_chats == 20
        assert 0 < salvage.num_lost_rows < 40
        assert salvage.num_turns + salvage.num_lost_rows == 80
        after = held(store)
        assert set(after) == set(said)
        texts = [text for each in after.values() for text in each]
        assert len(texts) == salvage.num_turns
        assert all(set(after[title]) <= set(said[title]) for title in said)
        assert sum(after[title] == said[title] for title in said) >= 8
        assert len(store.search("turn", limit=1_000)) == salvage.num_turns
    with ChatStore(path) as store:
        assert store.salvage is None


def test_turns_of_chats_that_are_gone_are_found_again(path: Path) -> None:
    said = filled(path)
    (page, *_) = pages_of(path, "chats")
    overwrite(path, page * _PAGE, _PAGE)
    with pytest.raises(ChatsDamagedError), ChatStore(path) as store:
        store.chats()
    with ChatStore(path) as store:
        assert store.salvage is not None
        assert store.salvage.num_turns == 80
        found = sorted(held(store).items())
        texts = sorted(
            text for chat in store.chats() for text in (t.text for t in store.branch(chat.leaf_id))
        )
        assert texts == sorted(text for each in said.values() for text in each), found


def test_a_row_that_makes_no_sense_is_mended(path: Path) -> None:
    filled(path, 2)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE turns SET attachments = '{', state = 'wet' WHERE seq = 2")
        connection.execute("UPDATE chats SET settings = '5' WHERE seq = 2")
    with pytest.raises(ChatsDamagedError), ChatStore(path) as store:
        held(store)
    with ChatStore(path) as store:
        assert store.salvage is not None
        assert (store.salvage.num_turns, store.salvage.num_lost_rows) == (8, 0)
        assert [len(texts) for texts in held(store).values()] == [4, 4]


def test_what_followed_a_lost_turn_follows_the_one_before_it(path: Path) -> None:
    filled(path, 1)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM turns WHERE seq = 2")
        connection.execute("UPDATE turns SET state = 'streaming' WHERE seq = 4")
    path.with_name("chats.db.damage-met").touch()
    with ChatStore(path) as store:
        (chat,) = store.chats()
        turns = store.branch(chat.leaf_id)
        assert [turn.text.split(" x")[0] for turn in turns] == [
            "chat 0 turn 0",
            "chat 0 turn 2",
            "chat 0 turn 3",
        ]
        assert turns[-1].state is TurnState.INTERRUPTED


def test_damage_that_is_met_in_the_middle_is_repaired_on_the_spot(path: Path) -> None:
    said = filled(path)
    with ChatStore(path) as store:
        chat = store.chats()[0]
        overwrite(path, pages_of(path, "turns")[2] * _PAGE, _PAGE)
        with pytest.raises(ChatsDamagedError):
            held(store)
        salvage = store.repair()
        assert salvage is not None
        assert salvage.num_turns + salvage.num_lost_rows == 80
        assert set(held(store)) == set(said)
        store.add_turn(chat.id, None, "user", "and on")


def test_another_window_goes_on_with_the_repaired_file(path: Path) -> None:
    filled(path, 3)
    with ChatStore(path) as other:
        chat = other.chats()[0]
        answer = other.add_turn(chat.id, None, "assistant", state=TurnState.STREAMING)
        path.with_name("chats.db.damage-met").touch()  # as the first to meet it leaves it
        with ChatStore(path) as store:
            assert store.salvage is not None
            assert store.recover() == []
            assert other.changed()
            other.write(answer.id, "half")
            other.finish(answer.id, TurnState.COMPLETE, text="whole")
            assert store.turn(answer.id).text == "whole"
            other.add_turn(chat.id, chat.leaf_id, "user", "said after")
            assert [turn.text for turn in store.branch(store.chat(chat.id).leaf_id)][-1] == (
                "said after"
            )


def test_a_repair_that_is_cut_off_before_its_last_step_is_finished(path: Path) -> None:
    said = filled(path, 3)
    os.replace(path, path.with_name("chats.db.repaired"))
    with ChatStore(path) as store:
        assert held(store) == said


def test_a_repair_that_finds_no_room_leaves_everything(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = filled(path, 3)
    before = path.read_bytes()
    path.with_name("chats.db.damage-met").touch()

    def no_room(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("edgeserve.chats.salvage.index_turn", no_room)
        with pytest.raises(ChatsDiskFullError):
            ChatStore(path)
    assert path.read_bytes() == before
    with ChatStore(path) as store:
        assert store.salvage is not None
        assert held(store) == said


def test_a_newer_file_is_left_alone(path: Path) -> None:
    filled(path, 1)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(ChatsNewerError, match="Update edgeserve") as caught:
        ChatStore(path)
    assert (caught.value.version, caught.value.known) == (99, len(schema.STEPS))
    assert path.read_bytes() == before


def test_another_programs_database_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE moz_places (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(ChatsForeignError, match="EDGESERVE_DATA"):
        ChatStore(path)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ChatsReadOnlyError, match="EDGESERVE_DATA"):
        ChatStore(tmp_path / "file" / "chats.db")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
def test_a_read_only_folder_is_told(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o500)
    with pytest.raises(ChatsReadOnlyError, match="Make the folder writable"):
        ChatStore(path)


def test_a_file_that_turns_read_only_is_told(path: Path) -> None:
    with ChatStore(path) as store:
        with store._database.reading() as connection:  # pyright: ignore[reportPrivateUsage]
            connection.execute("PRAGMA query_only = ON")
        with pytest.raises(ChatsReadOnlyError):
            store.new_chat()


def test_a_folder_in_the_files_place_is_told(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ChatsReadOnlyError, match="directory"):
        ChatStore(path)


def test_a_writer_that_never_ends_is_told(path: Path) -> None:
    filled(path, 1)
    with ChatStore(path, busy_timeout_s=0.05) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ChatsBusyError, match=r"for 0\.05 seconds"):
            store.new_chat()
        other.execute("ROLLBACK")
        other.close()
        store.new_chat()


def test_a_deleted_file_is_not_brought_back(path: Path) -> None:
    with ChatStore(path) as store:
        chat = store.new_chat()
        for file in path.parent.glob("chats.db*"):
            file.unlink()
        assert store.chats() == []
        with pytest.raises(ChatsError, match="deleted"):
            store.add_turn(chat.id, None, "user", "where?")
        store.new_chat()
    with ChatStore(path) as store:
        assert len(store.chats()) == 1


def test_a_closed_store_says_so(path: Path) -> None:
    store = ChatStore(path)
    store.close()
    store.close()
    with pytest.raises(ChatsError, match="closed"):
        store.chats()


def test_an_older_file_is_taken_to_the_newest_version_or_left(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path, isolation_level=None)

    def tables() -> list[str]:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_schema")]

    steps = [("CREATE TABLE one (x)",), ("CREATE TABLE two (x)", "CREATE TABLE one (x)")]
    schema.migrate(connection, steps[:1])
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(connection, steps)
    connection.execute("ROLLBACK")
    assert tables() == ["one"]
    schema.migrate(connection, [steps[0], ("CREATE TABLE two (x)",)])
    assert tables() == ["one", "two"]
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()
