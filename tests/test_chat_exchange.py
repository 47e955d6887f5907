"""Export and import: what goes out comes back, and what is no export is refused with its place."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from edgeserve.chats.exchange import read, read_file
from edgeserve.chats.json_format import to_json
from edgeserve.chats.markdown_format import to_markdown
from edgeserve.chats.records import Attachment, Chat, Conversation, Generation, Turn
from edgeserve.chats.store import ChatStore
from edgeserve.errors import ChatImportError

from .chat_values import conversations, without_ids


def numbered() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"new-{next(numbers)}"


@given(conversations())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_json_keeps_everything(one: Conversation) -> None:
    other = Conversation(Chat(id="empty"), ())
    assert read(to_json([one, other]), "chats.json", numbered()) == [one, other]


@given(conversations(is_line=True))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_markdown_keeps_a_branch(conversation: Conversation) -> None:
    text = to_markdown(conversation.chat, conversation.turns)
    (found,) = read(text.encode(), "chat.md", numbered())
    kept = Chat(
        id="",
        title=conversation.chat.title,
        created_at=conversation.chat.created_at,
        updated_at=found.chat.updated_at,
        tags=conversation.chat.tags,
        model=conversation.chat.model,
        system_prompt=conversation.chat.system_prompt,
        leaf_id=without_ids(conversation).chat.leaf_id,
    )
    turns = [
        replace(turn, generation=turn.generation and Generation(model=turn.generation.model))
        for turn in without_ids(conversation).turns
    ]
    assert without_ids(found) == Conversation(kept, tuple(turns))


def test_markdown_reads_like_a_conversation() -> None:
    chat = Chat(id="c", title="Rain", created_at=5.0)
    turns = (
        Turn(
            id="1",
            chat_id="c",
            parent_id=None,
            role="user",
            text="Why does it rain?",
            attachments=(Attachment("sky.txt", "grey"),),
        ),
        Turn(
            id="2",
            chat_id="c",
            parent_id="1",
            role="assistant",
            text="Clouds.",
            reasoning="Hm.",
            generation=Generation(model="smollm2"),
        ),
    )
    shown = [
        line for line in to_markdown(chat, turns).split("\n") if line and not line.startswith("<!")
    ]
    assert shown == [
        "# Rain",
        "## You",
        "**sky.txt**",
        "```",
        "grey",
        "```",
        "Why does it rain?",
        "## smollm2",
        "<details><summary>Reasoning</summary>",
        "Hm.",
        "</details>",
        "Clouds.",
    ]


def test_markdown_survives_an_editor_on_windows() -> None:
    turn = Turn(id="1", chat_id="c", parent_id=None, role="user", text="one\ntwo")
    text = to_markdown(Chat(id="c", title="T"), [turn]).replace("\n", "\r\n")
    (found,) = read(b"\xef\xbb\xbf" + text.encode(), "chat.md", numbered())
    assert found.turns[0].text == "one\ntwo"


def small_file() -> dict[str, object]:
    """A file of one chat with a question and its answer."""
    turns = [
        {"id": "q", "parent_id": None, "role": "user", "text": "why?"},
        {"id": "a", "parent_id": "q", "role": "assistant", "text": "so"},
    ]
    chats = [{"id": "c", "leaf_id": "a", "turns": turns}]
    return {"format": "edgeserve chats", "version": 1, "chats": chats}


@pytest.mark.parametrize(
    ("old", "new", "place", "reason"),
    [
        ('"edgeserve chats"', '"else"', "$.format", "edgeserve chats"),
        ('"version": 1', '"version": 2', "$.version", "newer edgeserve"),
        ('"role": "user"', '"role": "robot"', "$.chats[0].turns[0].role", "robot"),
        ('"text": "so"', '"text": 5', "$.chats[0].turns[1].text", "str"),
        ('"text": "so"', '"txt": "so"', "$.chats[0].turns[1]", "txt"),
        ('"text": "so"', '"text": "so", "color": 1', "$.chats[0].turns[1]", "color"),
        ('"parent_id": "q"', '"parent_id": "a"', "$.chats[0].turns[1].parent_id", "no turn"),
        ('"parent_id": null', '"parent_id": "a"', "$.chats[0].turns[0].parent_id", "no turn"),
        ('"id": "a"', '"id": "q"', "$.chats[0].turns[1].id", "twice"),
        ('"id": "c"', '"id": ""', "$.chats[0].id", "empty"),
        ('"leaf_id": "a"', '"leaf_id": "z"', "$.chats[0].leaf_id", "no turn"),
        ('"text": "so"', '"text": "so", "created_at": 1e999', "$.chats[0].turns[1].created_at", ""),
        ('"text": "so"', '"text": "\\ud800"', "", "hex escape"),
        ('"chats"', '"chats', "", "JSON"),
    ],
)
def test_a_wrong_json_names_the_place(old: str, new: str, place: str, reason: str) -> None:
    text = json.dumps(small_file())
    assert read(text.encode(), "c.json", numbered())[0].turns[1].text == "so"
    changed = text.replace(old, new, 1) if old != '"edgeserve chats"' else text.replace(old, new)
    assert changed != text
    with pytest.raises(ChatImportError, match="nothing was imported") as caught:
        read(changed.encode(), "c.json", numbered())
    assert caught.value.place == place
    assert reason in caught.value.reason


_WITH_SETTING = (
    b'{"format": "edgeserve chats", "version": 1,'
    b' "chats": [{"id": "c", "turns": [], "settings": {"new": %s}}]}'
)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "line 1"),
        (b"just words", "line 1"),
        (b"# Title\n\n\xff\xfe", "line 3"),
        (b'<!-- edgeserve chat {"version":1} -->\n<!-- edgeserve text -->', "line 2"),
        (b'<!-- edgeserve chat {"version":9} -->', "line 1"),
        (b'<!-- edgeserve chat {"version":1} -->\n<!-- edgeserve turn {"role":"x"} -->', "line 2"),
        (
            b'<!-- edgeserve chat {"version":1} -->\n<!-- edgeserve turn {"role":"user"} -->',
            "line 2",
        ),
        (b'<!-- edgeserve chat {"version":1, "title":' + b'{"a":' * 50_000 + b"} -->", "line 1"),
        (b'{"chats":' + b"[" * 100_000, ""),
        (b'[{"mapping": 5}]', "$[0].mapping"),
        (_WITH_SETTING % (b'{"x":' * 900 + b"1" + b"}" * 900), "$.chats[0].settings[...]"),
        (_WITH_SETTING % b"[1, 2]", "$.chats[0].settings[...]"),
    ],
)
def test_hostile_files_are_refused_with_their_place(data: bytes, place: str) -> None:
    with pytest.raises(ChatImportError) as caught:
        read(data, "file", numbered())
    assert caught.value.place == place


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ChatImportError, match="No such file"):
        read_file(tmp_path / "none.json", numbered())


def test_an_imported_chat_is_the_one_that_was_exported(tmp_path: Path) -> None:
    with ChatStore(tmp_path / "one.db") as one, ChatStore(tmp_path / "two.db") as two:
        chat = one.new_chat(model="smollm2")
        question = one.add_turn(chat.id, None, "user", "why?")
        answer = one.add_turn(
            chat.id,
            question.id,
            "assistant",
            "so",
            generation=Generation(model="m", dropped=("x",)),
        )
        one.add_turn(chat.id, question.id, "assistant", "or so")
        one.set_leaf(chat.id, answer.id)
        one.tag(chat.id, "weather")
        exported = one.conversation(chat.id)
        (added,) = two.add(read(to_json([exported]), "x", numbered()))
        assert two.conversation(added.id) == exported
        assert [hit.turn_id for hit in two.search("why")] == [None, question.id]


def test_a_taken_id_gives_new_ones_and_both_chats_stay(tmp_path: Path) -> None:
    with ChatStore(tmp_path / "one.db") as store:
        chat = store.new_chat()
        question = store.add_turn(chat.id, None, "user", "why?")
        store.add_turn(
            chat.id,
            question.id,
            "assistant",
            "so",
            generation=Generation(model="m", dropped=(question.id, "elsewhere")),
        )
        exported = store.conversation(chat.id)
        (copy,) = store.add([exported])
        assert copy.id != chat.id
        assert store.conversation(chat.id) == exported
        copied = store.conversation(copy.id)
        made = copied.turns[1].generation
        assert made is not None
        assert made.dropped == (copied.turns[0].id, "elsewhere")
        assert copied.turns[1].parent_id == copied.turns[0].id
        assert len(store.chats()) == 2


def chatgpt_node(parent: str | None, children: list[str], **message: object) -> dict[str, object]:
    return {"message": message or None, "parent": parent, "children": children}


def said(role: str, *parts: object, **more: object) -> dict[str, object]:
    content = {"content_type": "text", "parts": list(parts)}
    return {"author": {"role": role}, "content": content, "create_time": 7.5, **more}


def test_chatgpt_conversations_come_in_with_their_branches() -> None:
    mapping = {
        "late": chatgpt_node("q", [], **said("assistant", "second")),
        "root": chatgpt_node(None, ["sys"]),
        "sys": chatgpt_node("root", ["q"], **said("system", "")),
        "q": chatgpt_node("sys", ["tool", "late"], **said("user", "why?", {"image": 1})),
        "tool": chatgpt_node("q", ["first"], **said("tool", "searching")),
        "first": chatgpt_node(
            "tool", [], **said("assistant", "first", metadata={"model_slug": "gpt-4o"})
        ),
    }
    exported = [
        {
            "title": "Rain",
            "create_time": 5.0,
            "update_time": 9.0,
            "current_node": "first",
            "mapping": mapping,
            "conversation_id": "zzz",
        }
    ]
    (found,) = read(json.dumps(exported).encode(), "conversations.json", numbered())
    by_text = {turn.text: turn for turn in found.turns}
    assert list(by_text) == ["why?", "first", "second"]
    assert by_text["first"].parent_id == by_text["second"].parent_id == by_text["why?"].id
    assert by_text["first"].generation == Generation(model="gpt-4o")
    assert found.chat.leaf_id == by_text["first"].id
    assert (found.chat.title, found.chat.updated_at) == ("Rain", 9.0)


def test_a_chatgpt_tree_that_runs_in_a_circle_ends() -> None:
    circle = {"a": chatgpt_node("b", ["b"]), "b": chatgpt_node("a", ["a"])}
    (found,) = read(json.dumps([{"mapping": circle}]).encode(), "c.json", numbered())
    assert found.turns == ()
