"""ChatStore: the tree of turns, what two windows see, and what outlives its process."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgeserve.chats.records import Attachment, Chat, Conversation, Generation, TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.errors import ChatNotFoundError


def counting_clock() -> Callable[[], float]:
    ticks = itertools.count(1_000)
    return lambda: float(next(ticks))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.db"


@pytest.fixture
def store(path: Path) -> Iterator[ChatStore]:
    with ChatStore(path, clock=counting_clock()) as opened:
        yield opened


def test_nobody_else_may_read_the_file(store: ChatStore, path: Path) -> None:
    store.new_chat()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file.name


def test_a_turn_comes_back_as_it_was_given(store: ChatStore) -> None:
    chat = store.new_chat(model="smollm2", system_prompt="Be brief.", settings={"top_k": 40})
    generation = Generation(
        model="smollm2", settings={"seed": 7}, seed=7, token_ids=(1, 2), dropped=("a",)
    )
    turn = store.add_turn(
        chat.id,
        None,
        "user",
        "look: \U0001f600 \x00 \ud800",
        reasoning="hm",
        attachments=[Attachment("notes.txt", "one\ntwo\n")],
        generation=generation,
    )
    assert turn.text == "look: \U0001f600 \x00 ?"
    assert turn.attachments == (Attachment("notes.txt", "one\ntwo\n"),)
    assert turn.generation == generation
    assert store.turn(turn.id) == turn
    assert store.chat(chat.id).settings == {"top_k": 40}


def test_an_edited_turn_is_a_branch_and_nothing_is_lost(store: ChatStore) -> None:
    chat = store.new_chat()
    question = store.add_turn(chat.id, None, "user", "why?")
    first = store.add_turn(chat.id, question.id, "assistant", "because")
    second = store.add_turn(chat.id, question.id, "assistant", "so that")
    more = store.add_turn(chat.id, second.id, "user", "and?")
    tree = store.turns(chat.id)
    assert tree.siblings(first.id) == (first, second)
    assert tree.place(second.id) == (2, 2)
    assert tree.newest_leaf(question.id) == more.id
    assert store.chat(chat.id).leaf_id == more.id
    assert store.branch(more.id) == [question, second, more]
    assert tree.branch(first.id) == (question, first)
    assert store.set_leaf(chat.id, first.id).leaf_id == first.id


def test_a_parent_from_another_chat_is_refused(store: ChatStore) -> None:
    mine, other = store.new_chat(), store.new_chat()
    turn = store.add_turn(other.id, None, "user", "here")
    with pytest.raises(ChatNotFoundError, match="turn of this chat"):
        store.add_turn(mine.id, turn.id, "user", "there")
    assert store.turns(mine.id).turns == ()


def test_an_answer_streams_and_ends(store: ChatStore) -> None:
    chat = store.new_chat()
    turn = store.add_turn(chat.id, None, "assistant", state=TurnState.STREAMING)
    store.write(turn.id, "Once", "first I think")
    assert store.turn(turn.id).text == "Once"
    done = store.finish(turn.id, TurnState.STOPPED, text="Once upon")
    assert (done.state, done.text, done.reasoning) == (
        TurnState.STOPPED,
        "Once upon",
        "first I think",
    )
    with pytest.raises(ChatNotFoundError):
        store.write(turn.id, "too late")
    assert store.begin(turn.id).state is TurnState.STREAMING
    store.write(turn.id, "Once upon a time")
    assert store.finish(turn.id, TurnState.COMPLETE).text == "Once upon a time"


def test_words_are_found_and_marked(store: ChatStore) -> None:
    chat = store.new_chat()
    store.add_turn(chat.id, None, "user", "Das Café am Fluß")
    (title, turn) = store.search("cafe")
    assert title.turn_id is None
    (begin, end) = turn.marks[0]
    assert turn.snippet[begin:end] == "Café"


def test_the_last_used_is_the_one_used_last_whatever_the_clock_said(path: Path) -> None:
    """Tomorrow's clock was put right, or a chat came in with times from elsewhere."""
    times = iter([9e9, 9e9, *map(float, range(1_000, 1_020))])
    with ChatStore(path, clock=lambda: next(times)) as store:
        tomorrow = store.new_chat()
        store.add_turn(tomorrow.id, None, "user", "in the future")
        today = store.new_chat()
        assert store.latest() == today
        store.add([Conversation(Chat(id="odd", updated_at=1e300), ())])
        turn = store.add_turn(today.id, None, "user", "and now")
        found = store.latest()
        assert found is not None
        assert found.id == today.id
        assert turn.created_at < 2_000
        store.add_turn(tomorrow.id, None, "user", "once more")
        assert [chat.id for chat in store.chats()] == [tomorrow.id, today.id, "odd"]
