"""The chat is killed in the middle of an answer: what came is there, and other windows go on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from edgeserve.chats.records import TurnState
from edgeserve.chats.store import ChatStore
from tests.chat_app import Table, drive
from tests.fake_chat_client import IN_USE, FakeClient, words
from tests.other_process import process_that_said

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kill -9 is POSIX")

_STREAMS = """
import asyncio, sys
from pathlib import Path
from edgeserve.chats.store import ChatStore
from tests.chat_app import Table, drive
from tests.fake_chat_client import IN_USE, FakeClient, words

folder = Path(sys.argv[1])
client = FakeClient(model=IN_USE)
client.will_answer(words("seven words of an answer to keep"))
client.hold()

async def body(table: Table) -> None:
    await table.pilot.press("ctrl+n")
    await table.type(sys.argv[2], "enter")
    await table.until(lambda: client.answers)
    await client.let(6)
    with ChatStore(folder / "chats.db") as store:
        chat = table.chat.talk.chat
        await table.until(lambda: "words of" in store.branch(store.chat(chat.id).leaf_id)[-1].text)
    await table.type("and a half-written question")
    await table.until(lambda: table.chat.talk.draft)
    print("streaming", flush=True)
    await asyncio.Event().wait()

drive(folder, body, client=client)
"""


def another_window(folder: Path, question: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A process whose chat has said that four words of an answer are on disk."""
    return process_that_said("streaming", _STREAMS, str(folder), question)


def test_what_had_come_is_there_and_can_be_continued(tmp_path: Path):
    with another_window(tmp_path, "Tell me") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    client = FakeClient(model=IN_USE)
    client.will_answer(words("answer to keep"))

    async def body(table: Table) -> None:
        await table.shows("/continue goes on with it")
        assert table.texts() == ["Tell me", "seven words of an "]
        assert table.chat.talk.turns[-1].state is TurnState.INTERRUPTED
        assert table.chat.composer.text == "and a half-written question"
        table.chat.composer.put("")
        await table.type("/continue", "enter")
        await table.until(lambda: table.texts()[-1] == "seven words of an answer to keep")
        assert client.asked[0].continues

    drive(tmp_path, body, client=client)


def test_another_windows_answer_goes_on(tmp_path: Path):
    mine = FakeClient(model=IN_USE)
    mine.will_answer(words("mine goes on to its end"))
    mine.hold()

    async def body(table: Table) -> None:
        await table.type("Mine", "enter")
        await table.until(lambda: mine.answers)
        await mine.let(4)
        with another_window(tmp_path, "Theirs") as process:
            process.send_signal(signal.SIGKILL)
            process.wait()
        await asyncio.to_thread(_look_around, tmp_path)
        await mine.release()
        await table.until(lambda: table.texts()[-1] == "mine goes on to its end")
        assert table.chat.talk.turns[-1].state is TurnState.COMPLETE

    drive(tmp_path, body, client=mine)


def _look_around(folder: Path) -> None:
    """A third window is opened: what it finds, and what it leaves alone."""

    async def body(table: Table) -> None:
        await table.until(lambda: table.texts()[-1] == "seven words of an ")

    drive(folder, body)
    with ChatStore(folder / "chats.db") as store:
        chats = {chat.title: chat for chat in store.chats()}
        last = {title: store.branch(chat.leaf_id)[-1] for title, chat in chats.items()}
        assert last["Theirs"].state is TurnState.INTERRUPTED
        assert last["Mine"].state is TurnState.STREAMING


def test_a_window_that_shows_the_answer_of_one_that_was_killed_says_so(tmp_path: Path):
    with another_window(tmp_path, "Tell me") as process:

        async def body(table: Table) -> None:
            await table.until(lambda: table.texts() == ["Tell me", "seven words of an "])
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait)
            await table.shows("An answer was interrupted")
            assert table.chat.talk.turns[-1].state is TurnState.INTERRUPTED

        drive(tmp_path, body)
