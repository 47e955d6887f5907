"""ChatStore against a plain model in memory, over random operations from two windows in turn."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.chats.records import Chat, Turn, TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.chats.titles import made_title

_WORDS = ("rain", "Rainbow", "SNOW", "雨の日", "c++")
_MEMORY = Path("/dev/shm")  # where writing costs nothing, and durability is not what is tested
_FOLDER = _MEMORY if _MEMORY.is_dir() else None

_texts = st.lists(st.sampled_from(_WORDS), max_size=3).map(" ".join)
_numbers = st.integers(0, 7)
_operations = st.one_of(
    st.tuples(st.just("new_chat")),
    st.tuples(st.just("say"), _numbers, st.none() | _numbers, _texts),
    st.tuples(st.just("stream"), _numbers, st.none() | _numbers, _texts),
    st.tuples(st.just("show"), _numbers, st.none() | _numbers),
    st.tuples(st.just("rename"), _numbers, _texts),
    st.tuples(st.just("retitle"), _numbers, _texts),
    st.tuples(st.just("pin"), _numbers, st.booleans()),
    st.tuples(st.just("draft"), _numbers, _texts),
    st.tuples(st.just("set"), _numbers, st.sampled_from(["top_k", "seed"]), st.none() | _numbers),
    st.tuples(st.just("tag"), _numbers, st.sampled_from(["a", "b"])),
    st.tuples(st.just("untag"), _numbers, st.sampled_from(["a", "b"])),
    st.tuples(st.just("delete"), _numbers),
    st.tuples(st.just("undelete"), _numbers),
    st.tuples(st.just("purge")),
)


@dataclass
class Kept:
    """A chat as the model has it."""

    id: str
    used: float
    title: str = ""
    by_hand: bool = False
    pinned: bool = False
    draft: str = ""
    settings: dict[str, object] = field(default_factory=dict[str, object])
    tags: set[str] = field(default_factory=set[str])
    leaf: str | None = None
    deleted: bool = False
    turns: list[tuple[str, str | None, str]] = field(default_factory=list)
    questions: list[str] = field(default_factory=list[str])

    @property
    def made_title(self) -> str:
        return next((made for text in self.questions[:3] if (made := made_title(text))), "")


class Windows:
    """Two stores of one file that take turns, and the model."""

    def __init__(self, path: Path) -> None:
        ticks = itertools.count(1)
        self.now = 0.0

        def clock() -> float:
            self.now = float(next(ticks))
            return self.now

        self.stores = (ChatStore(path, clock=clock), ChatStore(path, clock=clock))
        self.turn = 0
        self.chats: list[Kept] = []
        self.created = 0

    def close(self) -> None:
        for store in self.stores:
            store.close()

    @property
    def store(self) -> ChatStore:
        self.turn += 1
        return self.stores[self.turn % 2]

    def chosen(self, number: int) -> Kept | None:
        return self.chats[number % len(self.chats)] if self.chats else None

    def do(self, name: str, *values: object) -> None:
        operation: Callable[..., None] = getattr(self, f"do_{name}")
        if name in ("new_chat", "purge"):
            operation()
            return
        chat = self.chosen(values[0])  # type: ignore[arg-type]
        if chat is not None:
            operation(chat, *values[1:])

    def do_new_chat(self) -> None:
        chat = self.store.new_chat()
        self.chats.append(Kept(chat.id, self.now))

    def parent(self, chat: Kept, number: int | None) -> str | None:
        if number is None or not chat.turns:
            return None
        return chat.turns[number % len(chat.turns)][0]

    def added(self, chat: Kept, turn: Turn, text: str) -> None:
        chat.turns.append((turn.id, turn.parent_id, text))
        chat.leaf, chat.deleted, chat.used = turn.id, False, self.now

    def do_say(self, chat: Kept, number: int | None, text: str) -> None:
        turn = self.store.add_turn(chat.id, self.parent(chat, number), "user", text)
        self.added(chat, turn, text)
        chat.questions.append(text)
        if not chat.title and not chat.by_hand:
            chat.title = chat.made_title

    def do_stream(self, chat: Kept, number: int | None, text: str) -> None:
        store = self.store
        parent = self.parent(chat, number)
        turn = store.add_turn(chat.id, parent, "assistant", "", state=TurnState.STREAMING)
        assert self.stores[0].recover() == self.stores[1].recover() == []
        store.write(turn.id, text[:3])
        store.finish(turn.id, TurnState.STOPPED, text=text)
        self.added(chat, turn, text)

    def do_show(self, chat: Kept, number: int | None) -> None:
        chat.leaf = self.parent(chat, number)
        self.store.set_leaf(chat.id, chat.leaf)

    def do_rename(self, chat: Kept, text: str) -> None:
        self.store.rename(chat.id, text)
        chat.title, chat.by_hand = text or chat.made_title, bool(text)

    def do_retitle(self, chat: Kept, text: str) -> None:
        self.store.change(chat.id, title=text)
        chat.title = chat.title if chat.by_hand else text

    def do_pin(self, chat: Kept, pinned: bool) -> None:
        self.store.change(chat.id, pinned=pinned)
        chat.pinned = pinned

    def do_draft(self, chat: Kept, text: str) -> None:
        self.store.change(chat.id, draft=text)
        chat.draft = text

    def do_set(self, chat: Kept, name: str, value: int | None) -> None:
        self.store.change(chat.id, settings={name: value})
        chat.settings[name] = value
        chat.settings = {key: kept for key, kept in chat.settings.items() if kept is not None}

    def do_tag(self, chat: Kept, tag: str) -> None:
        self.store.tag(chat.id, tag)
        chat.tags.add(tag)

    def do_untag(self, chat: Kept, tag: str) -> None:
        self.store.untag(chat.id, tag)
        chat.tags.discard(tag)

    def do_delete(self, chat: Kept) -> None:
        self.store.delete(chat.id)
        chat.deleted = True

    def do_undelete(self, chat: Kept) -> None:
        self.store.undelete(chat.id)
        chat.deleted = False

    def do_purge(self) -> None:
        assert self.store.purge() == sum(chat.deleted for chat in self.chats)
        self.chats = [chat for chat in self.chats if not chat.deleted]


def seen(chat: Chat) -> dict[str, object]:
    return {
        "id": chat.id,
        "title": chat.title,
        "by_hand": chat.titled_by_hand,
        "pinned": chat.pinned,
        "draft": chat.draft,
        "settings": chat.settings,
        "tags": set(chat.tags),
        "leaf": chat.leaf_id,
        "used": chat.updated_at,
    }


def expected(chat: Kept) -> dict[str, object]:
    return {name: getattr(chat, name) for name in seen(Chat(id=""))}


def require_same(windows: Windows, store: ChatStore) -> None:
    there = [chat for chat in windows.chats if not chat.deleted]
    in_order = sorted(there, key=lambda chat: (not chat.pinned, -chat.used))
    assert [seen(chat) for chat in store.chats()] == [expected(chat) for chat in in_order]
    newest = max(there, key=lambda chat: chat.used, default=None)
    latest = store.latest()
    assert (latest and latest.id) == (newest and newest.id)
    for chat in windows.chats:
        turns = [(turn.id, turn.parent_id, turn.text) for turn in store.turns(chat.id).turns]
        assert turns == chat.turns
        assert tuple(store.branch(chat.leaf)) == store.turns(chat.id).branch(chat.leaf)
    for tag in ("a", "b"):
        tagged = [chat.id for chat in in_order if tag in chat.tags]
        assert [chat.id for chat in store.chats(tag=tag)] == tagged


def require_found(windows: Windows, store: ChatStore) -> None:
    there = [chat for chat in windows.chats if not chat.deleted]
    for words in ("rain", "snow rainb", "の日", "rain ", "雨 c++"):
        hits = store.search(words, limit=1_000)
        titles = {hit.chat.id for hit in hits if hit.turn_id is None}
        turns = {hit.turn_id for hit in hits if hit.turn_id is not None}
        assert titles == {chat.id for chat in there if matches(chat.title, words)}
        assert turns == {
            turn_id for chat in there for turn_id, _, text in chat.turns if matches(text, words)
        }


def matches(text: str, words: str) -> bool:
    """What a search should find, written down for the few words that there are here."""
    own = text.lower().split()
    *whole, last = words.split()
    if words.endswith(" "):
        whole, last = [*whole, last], ""
    return all(any(is_in(word, one) for one in own) for word in whole) and any(
        one.startswith(last) or (not last.isascii() and last in one) for one in own or [""]
    )


def is_in(word: str, one: str) -> bool:
    return word == one or (not word.isascii() and word in one)


@given(st.lists(_operations, min_size=5, max_size=30))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_two_windows_are_one_store(operations: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        windows = Windows(Path(folder) / "chats.db")
        try:
            windows.do("new_chat")
            for name, *values in operations:
                windows.do(str(name), *values)
            for store in windows.stores:
                require_same(windows, store)
                require_found(windows, store)
        finally:
            windows.close()
        with ChatStore(Path(folder) / "chats.db") as anew:
            require_same(windows, anew)
            require_found(windows, anew)
