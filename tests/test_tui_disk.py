"""A full disk under the chat: what is said, and that nothing is lost once there is room again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest

from edgeserve.chats.records import TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.tui.client import PromptSize
from tests.chat_app import NOW, Table, drive
from tests.fake_chat_client import IN_USE, FakeClient, words

_LONG = " ".join(["x" * 1000] * 200)


class Disk(Protocol):
    """Where the chats lie, with no room once it is `fill`ed."""

    folder: Path

    def open(self) -> ChatStore: ...
    def fill(self) -> None: ...
    def free(self) -> None: ...


class RealDisk:
    """A file system in memory, of two megabytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rest = folder / "rest"

    def open(self) -> ChatStore:
        return ChatStore(self.folder / "chats.db", clock=lambda: NOW)

    def fill(self) -> None:
        with suppress(OSError), self._rest.open("ab", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def free(self) -> None:
        self._rest.unlink()


class FewPages:
    """SQLite's own bound, where nobody may mount anything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._store: ChatStore | None = None

    def open(self) -> ChatStore:
        self._store = ChatStore(self.folder / "chats.db", clock=lambda: NOW)
        return self._store

    def fill(self) -> None:
        self._bound("page_count")

    def free(self) -> None:
        self._bound("1000000")

    def _bound(self, pages: str) -> None:
        assert self._store is not None
        with self._store._database.writing() as connection:  # pyright: ignore[reportPrivateUsage]
            if pages == "page_count":
                (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")


@pytest.fixture
def real_disk(tmp_path: Path) -> Iterator[RealDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield RealDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(params=["real", "few pages"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "real":
        return request.getfixturevalue("real_disk")
    return FewPages(tmp_path)


def test_an_answer_that_cannot_be_written_is_kept_once_there_is_room(disk: Disk):
    client = FakeClient(model=IN_USE)
    client.will_answer(words(_LONG))
    client.hold()

    async def body(table: Table) -> None:
        await table.type("Tell me", "enter")
        await table.until(lambda: client.answers)
        await client.let(3)
        disk.fill()
        await client.release()
        await table.says("the disk is full")
        await table.until(lambda: not table.chat.talk.is_answering)
        assert table.texts()[-1] == _LONG
        disk.free()
        await table.says("Everything is kept on disk again")

    drive(disk.folder, body, client=client, open_chats=disk.open)
    with ChatStore(disk.folder / "chats.db") as store:
        (chat,) = store.chats()
        answer = store.branch(chat.leaf_id)[-1]
        assert (answer.state, answer.text) == (TurnState.COMPLETE, _LONG)


def test_a_question_that_cannot_be_written_stands_in_the_composer(disk: Disk):
    client = FakeClient(model=IN_USE)
    client.prompt_size = PromptSize(10)

    async def body(table: Table) -> None:
        await table.ask("Before")
        disk.fill()
        await table.type(_LONG)  # a long paste is a chip beside the text
        await table.type("And this", "enter")
        await table.says("Make room and go on")
        assert table.chat.composer.text == "And this"
        assert [each.text for each in table.chat.writing.attached] == [_LONG]
        assert table.texts() == ["Before", "You said: Before"]
        disk.free()
        await table.pilot.press("enter")
        await table.until(lambda: len(table.texts()) == 4)

    drive(disk.folder, body, client=client, open_chats=disk.open)


def test_a_title_that_cannot_be_written_is_told(real_disk: RealDisk):
    async def body(table: Table) -> None:
        await table.ask("Before")
        real_disk.fill()
        for command in ("/rename Another", "/system Be brief.", "/tag later"):
            await table.type(command, "enter")
            await table.says("the disk is full")
            table.chat.notice.dismiss()
        assert table.chat.talk.chat.title == "Before"
        await table.type("Nor this", "enter")
        await table.says("the disk is full")
        assert table.chat.composer.text == "Nor this"
        real_disk.free()

    drive(real_disk.folder, body, open_chats=real_disk.open)


def test_an_export_that_finds_no_room_leaves_the_one_before(real_disk: RealDisk):
    async def body(table: Table) -> None:
        await table.ask("First")
        await table.type("/export out.md", "enter")
        await table.says("Written to")
        before = (real_disk.folder / "out.md").read_text()
        table.client.will_answer(words("much " * 4000))
        await table.ask("Second")
        real_disk.fill()
        await table.type("/export out.md", "enter")
        await table.says("No space left on device")
        assert (real_disk.folder / "out.md").read_text() == before
        await table.type("/export new.json", "enter")
        await table.says("new.json was not written")
        real_disk.free()
        left = {each.name for each in real_disk.folder.iterdir() if "chats" not in each.name}
        assert left == {"out.md", "writers"}

    drive(real_disk.folder, body, open_chats=real_disk.open)


def test_a_disk_that_is_full_at_the_start_is_told_and_what_is_said_can_be_taken_over(
    real_disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "other"))

    async def first(table: Table) -> None:
        await table.ask("Long ago")

    async def full(table: Table) -> None:
        await table.says("the disk is full")
        await table.says("/import")
        await table.ask("Meanwhile")

    async def again(table: Table) -> None:
        assert table.texts() == ["Long ago", "You said: Long ago"]
        (kept,) = (tmp_path / "other").glob("edgeserve-chats-*/chats.db")
        await table.type(f"/import {kept}", "enter")
        await table.until(lambda: table.texts() == ["Meanwhile", "You said: Meanwhile"])

    drive(real_disk.folder, first, open_chats=real_disk.open)
    real_disk.fill()
    drive(real_disk.folder, full, open_chats=real_disk.open)
    real_disk.free()
    drive(real_disk.folder, again, open_chats=real_disk.open)
    with real_disk.open() as store:
        assert sorted(chat.title for chat in store.chats()) == ["Long ago", "Meanwhile"]


def test_where_nothing_at_all_can_be_written_it_says_so_and_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copy(__file__, tmp_path / "chats")  # a file where a folder would have to be

    def nowhere(**_: object) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkdtemp", nowhere)

    async def body(table: Table) -> None:
        await table.says("EDGESERVE_DATA")
        await table.says("nothing can be kept")
        await table.type("Not lost", "enter")
        await table.until(lambda: table.chat.composer.text == "Not lost")

    drive(tmp_path, body, open_chats=lambda: ChatStore(tmp_path / "chats" / "chats.db"))
