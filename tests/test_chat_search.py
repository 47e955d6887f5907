"""Searching chats: the user's words are words, in every script, and what matched is marked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.chats.records import Hit
from edgeserve.chats.store import ChatStore
from edgeserve.chats.titles import made_title


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    with ChatStore(tmp_path / "chats.db") as opened:
        yield opened


def say(store: ChatStore, *texts: str) -> list[str]:
    """One chat titled "-" with these turns; their ids."""
    chat = store.new_chat()
    store.rename(chat.id, "-")
    return [store.add_turn(chat.id, None, "assistant", text).id for text in texts]


def marked(hit: Hit) -> list[str]:
    return [hit.snippet[begin:end] for begin, end in hit.marks]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("The quick fox", "quick", ["quick"]),
        ("The quick fox", "FOX the", ["The", "fox"]),
        ("The quick fox", "qui", ["quick"]),
        ("The quick fox", "qui fox", None),
        ("The quick fox", "qui ", None),
        ("The quick fox", "quick ", ["quick"]),
        ("The quick fox", "uick", None),
        ("Das Café in Ångström", "cafe angstrom", ["Café", "Ångström"]),
        ("use foo_bar() here", "foo_bar(", ["foo_bar"]),
        ('say "hi" NEAR me', 'NEAR( "hi"', ["hi", "NEAR"]),
        ("one OR two", "OR", ["OR"]),
        ("one two", "one OR three", None),
        ("one two", "one NOT two", None),
        ("one two", "text:one", None),
        ("one two", "^one", ["one"]),
        ("one two", "one* {two}", ["one", "two"]),
        ("one two", "-one", ["one"]),
        ("大规模语言模型很好", "语言", ["语言"]),
        ("大规模语言模型很好", "言", ["言"]),
        ("大规模语言模型很好", "言语", None),
        ("今日は雨です。GPTモデル", "gptモデ", ["GPTモデ"]),
        ("한국어를 배우다", "국어", ["국어"]),
        ("ภาษาไทยง่าย", "ไทย", ["ไทย"]),
        ("a => b", "=>", ["=>"]),
        ("a => b", "<=", None),
        ("smile \U0001f600 now", "\U0001f600", ["\U0001f600"]),
        ("emoji \U0001f600 and words", "\U0001f600 words", ["words"]),
        ("nul\x00after \x1f\x02it\x03", "it", ["it"]),
        ("anything", "", None),
        ("anything", "  ", None),
    ],
)
def test_words_are_found_and_marked(
    store: ChatStore, text: str, words: str, expected: list[str] | None
) -> None:
    say(store, text)
    hits = store.search(words)
    assert [marked(hit) for hit in hits] == ([expected] if expected is not None else [])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatStore]:
    """One file for all examples: making it costs more than searching it."""
    with ChatStore(tmp_path_factory.mktemp("chats") / "chats.db") as opened:
        say(opened, "a text AND or")
        yield opened


@given(words=st.text("\"*^:(){}-+ANDORTEX'\\\x00 a日,;", max_size=12), other=st.text(max_size=8))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_no_words_are_syntax(kept: ChatStore, words: str, other: str) -> None:
    kept.search(words)
    kept.search(other + words)
    assert len(kept.search("text")) == 1


def test_the_newest_turns_come_first_and_titles_before_them(store: ChatStore) -> None:
    first, second = say(store, "about rain", "more rain")
    chat = store.new_chat()
    store.rename(chat.id, "Rain in Spain")
    hits = store.search("rain")
    assert [hit.turn_id for hit in hits] == [None, second, first]
    assert hits[0].chat.id == chat.id
    assert [hit.turn_id for hit in store.search("rain", limit=2)] == [None, second]


def test_a_changed_title_is_found_by_its_new_words_only(store: ChatStore) -> None:
    chat = store.new_chat()
    store.rename(chat.id, "old name")
    store.rename(chat.id, "new name")
    assert store.search("old") == []
    assert len(store.search("new")) == 1


def test_a_deleted_chat_is_found_again_once_it_is_back(store: ChatStore) -> None:
    chat = store.new_chat()
    store.add_turn(chat.id, None, "user", "hidden treasure")
    store.delete(chat.id)
    assert store.search("treasure") == []
    store.undelete(chat.id)
    assert len(store.search("treasure")) == 2
    store.delete(chat.id)
    store.purge()
    assert store.search("treasure") == []


def test_a_purged_chat_leaves_no_word_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with ChatStore(path) as store:
        say(store, "something that stays")
        chat = store.new_chat()
        store.add_turn(chat.id, None, "user", "xyzzyplugh is my secret")
        store.delete(chat.id)
        store.purge()
    assert b"stays" in path.read_bytes()
    assert b"xyzzyplugh" not in path.read_bytes()


def test_a_snippet_is_short_and_its_marks_are_inside(store: ChatStore) -> None:
    say(store, "before " * 500 + "needle " + "after\n" * 500)
    say(store, "needle" + "y" * 100_000)
    for hit in store.search("needle"):
        assert len(hit.snippet) <= 400
        assert "\n" not in hit.snippet
        ((begin, end),) = hit.marks
        assert hit.snippet[begin:end].startswith("needle")


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("Why does it rain?", "Why does it rain?"),
        ("\n\n  ## Why  `it` **rains**\nmore", "Why it rains"),
        ("```python\nprint(1)\n```", "python"),
        ("...\n1. first", "first"),
        ("", ""),
        ("!!!\n---", ""),
        ("word " * 30, ("word " * 11).strip() + "…"),
        ("雨" * 100, "雨" * 59 + "…"),
    ],
)
def test_a_title_is_made_of_the_first_words(message: str, title: str) -> None:
    assert made_title(message) == title


def test_a_title_by_hand_stays_and_an_empty_one_is_made_again(store: ChatStore) -> None:
    chat = store.new_chat()
    store.add_turn(chat.id, None, "user", "Why does it rain?")
    assert store.chat(chat.id).title == "Why does it rain?"
    assert store.change(chat.id, title="About rain").title == "About rain"
    assert store.rename(chat.id, " My  rain ").title == "My rain"
    assert store.change(chat.id, title="Made anew").title == "My rain"
    again = store.rename(chat.id, " ")
    assert (again.title, again.titled_by_hand) == ("Why does it rain?", False)
