"""What a branch of turns says to a model."""

from __future__ import annotations

from typing import Literal

from edgeserve.chats.messages import dropped_before, messages_of
from edgeserve.chats.records import Attachment, Generation, Turn


def _turn(
    name: str,
    role: Literal["user", "assistant", "system"],
    text: str,
    *,
    attachments: tuple[Attachment, ...] = (),
    dropped: tuple[str, ...] | None = None,
) -> Turn:
    generation = None if dropped is None else Generation(model="tiny", dropped=dropped)
    return Turn(
        id=name,
        chat_id="c",
        parent_id=None,
        role=role,
        text=text,
        attachments=attachments,
        generation=generation,
    )


def test_roles_take_turns_though_an_answer_failed():
    turns = [_turn("1", "user", "one"), _turn("2", "assistant", ""), _turn("3", "user", "two")]
    assert messages_of(turns, "Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one\n\ntwo"},
    ]


def test_a_summary_stands_in_the_system_message_for_what_it_sums_up():
    turns = [
        _turn("1", "user", "one"),
        _turn("2", "assistant", "two"),
        _turn("3", "system", "They counted.", dropped=("1", "2")),
        _turn("4", "user", "three"),
    ]
    dropped = dropped_before(turns)
    assert dropped == ("1", "2")
    assert messages_of(turns, "Be brief.", dropped) == [
        {
            "role": "system",
            "content": "Be brief.\n\nSummary of the conversation before what follows:\n"
            "They counted.",
        },
        {"role": "user", "content": "three"},
    ]


def test_dropped_is_what_the_newest_answer_was_made_without():
    turns = [
        _turn("1", "user", "one"),
        _turn("2", "assistant", "two", dropped=()),
        _turn("3", "user", "three"),
        _turn("4", "assistant", "four", dropped=("1", "2")),
        _turn("5", "user", "five"),
    ]
    assert dropped_before(turns) == ("1", "2")
    assert dropped_before(turns[:3]) == ()


def test_a_files_fence_is_longer_than_those_in_it():
    files = (Attachment("a.md", "```\nx\n```\n"), Attachment("b.txt", "y"))
    turns = [_turn("1", "user", "What is this?", attachments=files)]
    assert messages_of(turns) == [
        {
            "role": "user",
            "content": "a.md:\n````\n```\nx\n```\n````\n\nb.txt:\n```\ny\n```\n\nWhat is this?",
        }
    ]
