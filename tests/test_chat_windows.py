"""Several processes with one file of chats: nothing is lost, not even by one that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgeserve.chats.records import TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.errors import ChatNotFoundError, ChatsBusyError

_ADDS = """
import sys
from pathlib import Path
from edgeserve.chats.store import ChatStore
with ChatStore(Path(sys.argv[1]), busy_timeout_s=60) as store:
    chat_id = sys.argv[2] or store.new_chat().id
    for number in range(int(sys.argv[3])):
        store.add_turn(chat_id, None, "user", f"{sys.argv[4]} {number}")
        store.change(chat_id, settings={sys.argv[4]: number})
        store.tag(chat_id, f"{sys.argv[4]} {number}")
"""

_STREAMS = """
import sys
from pathlib import Path
from edgeserve.chats.records import TurnState
from edgeserve.chats.store import ChatStore
store = ChatStore(Path(sys.argv[1]))
chat = store.new_chat()
question = store.add_turn(chat.id, None, "user", "count")
turn = store.add_turn(chat.id, question.id, "assistant", state=TurnState.STREAMING)
text = ""
for number in range(1_000_000):
    text += f"{number} "
    store.write(turn.id, text, "thinking")
    print(turn.id, number, flush=True)
    sys.stdin.readline()
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def streaming(path: Path, num_writes: int) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A process that has said how often it wrote, with its turn and what is in it."""
    process = start(_STREAMS, str(path))
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for _ in range(num_writes):
            turn_id, last = process.stdout.readline().split()
            process.stdin.write("\n")
            process.stdin.flush()
        yield process, turn_id, "".join(f"{number} " for number in range(int(last) + 1))
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.db"


def test_two_processes_lose_no_update(path: Path) -> None:
    with ChatStore(path) as store:
        chat = store.new_chat()
        processes = [start(_ADDS, str(path), chat.id, "15", name) for name in ("left", "right")]
        assert [process.wait() for process in processes] == [0, 0]
        for process in processes:
            process.communicate()
        said = {turn.text for turn in store.turns(chat.id).turns}
        assert said == {f"{name} {number}" for name in ("left", "right") for number in range(15)}
        after = store.chat(chat.id)
        assert after.settings == {"left": 14, "right": 14}
        assert set(after.tags) == said


def test_processes_that_start_at_once_share_the_new_file(path: Path) -> None:
    processes = [start(_ADDS, str(path), "", "1", f"window{number}") for number in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    for process in processes:
        process.communicate()
    with ChatStore(path) as store:
        assert {chat.title for chat in store.chats()} == {f"window{n} 0" for n in range(4)}


@pytest.mark.skipif(os.name == "nt", reason="kill -9 is POSIX")
def test_a_killed_process_leaves_what_it_wrote(path: Path) -> None:
    with streaming(path, 30) as (process, turn_id, written):
        process.send_signal(signal.SIGKILL)
        process.wait()
        with ChatStore(path) as store:
            assert [turn.id for turn in store.recover()] == [turn_id]
            turn = store.turn(turn_id)
            assert turn.state is TurnState.INTERRUPTED
            assert turn.text.startswith(written)
            assert turn.reasoning == "thinking"
            assert [hit.turn_id for hit in store.search("29")] == [turn_id]
            assert store.branch(store.chats()[0].leaf_id) == [
                store.turn(turn.parent_id or ""),
                turn,
            ]
            assert store.recover() == []
        assert list((path.parent / "writers").iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="SIGSTOP is POSIX")
def test_a_live_answer_of_another_window_is_left_alone_even_when_suspended(path: Path) -> None:
    with streaming(path, 2) as (process, turn_id, written), ChatStore(path) as store:
        assert process.stdout is not None
        process.stdout.readline()  # in the middle of a write it would hold the file
        process.send_signal(signal.SIGSTOP)
        assert store.recover() == []
        turn = store.turn(turn_id)
        assert turn.state is TurnState.STREAMING
        assert turn.text.startswith(written)
        with pytest.raises(ChatNotFoundError):
            store.write(turn_id, "mine now")
        process.send_signal(signal.SIGCONT)


def test_a_write_waits_for_the_one_before_it_and_sees_it(path: Path) -> None:
    with ChatStore(path) as mine, ChatStore(path, busy_timeout_s=0.05) as other:
        chat = mine.new_chat()
        # A transaction that writes holds the file from its beginning: what it read stays true.
        with (
            mine._database.writing(),  # pyright: ignore[reportPrivateUsage]
            pytest.raises(ChatsBusyError),
        ):
            other.change(chat.id, settings={"top_k": 1})
        other.change(chat.id, settings={"top_k": 1})
        assert mine.change(chat.id, settings={"seed": 2}).settings == {"seed": 2, "top_k": 1}


def test_a_closed_store_leaves_no_answer_under_way(path: Path) -> None:
    with ChatStore(path) as store:
        chat = store.new_chat()
        turn = store.add_turn(chat.id, None, "assistant", "half", state=TurnState.STREAMING)
    with ChatStore(path) as store:
        assert store.turn(turn.id).state is TurnState.INTERRUPTED
        assert store.recover() == []


def test_a_change_elsewhere_is_told_once_and_ones_own_never(path: Path) -> None:
    with ChatStore(path) as mine, ChatStore(path) as other:
        assert not mine.changed()
        chat = mine.new_chat()
        assert not mine.changed()
        assert other.changed()
        assert not other.changed()
        other.change(chat.id, draft="from there")
        assert mine.changed()
        assert not mine.changed()
        assert mine.chat(chat.id).draft == "from there"


def test_a_turn_in_a_chat_that_another_window_deleted_brings_it_back(path: Path) -> None:
    with ChatStore(path) as mine, ChatStore(path) as other:
        chat = mine.new_chat()
        other.delete(chat.id)
        mine.add_turn(chat.id, None, "user", "still here")
        assert [each.id for each in other.chats()] == [chat.id]


def test_a_chat_that_is_being_answered_is_not_purged(path: Path) -> None:
    with ChatStore(path) as mine, ChatStore(path) as other:
        chat = mine.new_chat()
        turn = mine.add_turn(chat.id, None, "assistant", state=TurnState.STREAMING)
        other.delete(chat.id)
        assert other.purge() == 0
        mine.finish(turn.id, TurnState.COMPLETE, text="done")
        assert mine.turn(turn.id).text == "done"
        assert other.purge() == 1
        with pytest.raises(ChatNotFoundError):
            mine.finish(turn.id, TurnState.COMPLETE)


def test_the_model_used_last_is_remembered(path: Path) -> None:
    with ChatStore(path) as mine, ChatStore(path) as other:
        assert mine.last_model() == ""
        mine.remember_model("smollm2")
        other.remember_model("gemma3")
        assert mine.last_model() == "gemma3"
