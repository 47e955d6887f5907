"""What a template refuses is said another way, where it stood; a prefix stays a prefix."""

from __future__ import annotations

from typing import Any

import pytest

from edgeserve.text.chat_template import ChatTemplate
from edgeserve.text.message_order import MessageOrder

CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

# Gemma's: the system message is part of the first user turn, and turns must alternate.
ALTERNATING = """{% if messages[0].role == 'system' %}\
{% set first = messages[0].content + '\n\n' %}\
{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}\
{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('roles must alternate') }}{% endif %}\
<{{ m.role }}>{{ first if loop.first else '' }}{{ m.content }}</{{ m.role }}>{% endfor %}\
{% if add_generation_prompt %}<assistant>{% endif %}"""

NO_SYSTEM = """{% for m in messages %}{% if m.role == 'system' %}\
{{ raise_exception('no system role') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"""

# Hoists: all system messages first, wherever they stood.
HOISTING = """{% for m in messages if m.role == 'system' %}<s>{{ m.content }}{% endfor %}\
{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"""

# Leaves later system messages out without a word.
SILENT = """{% for m in messages %}{% if m.role != 'system' or loop.first %}\
<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"""

ALL = [CHATML, ALTERNATING, NO_SYSTEM, HOISTING, SILENT]


def order(source: str) -> tuple[MessageOrder, ChatTemplate]:
    template = ChatTemplate(source, bos_token="", eos_token="")
    return MessageOrder(template.preview), template


def said(*turns: str) -> list[Any]:
    """Messages of "role: text"."""
    pairs = (turn.split(": ", 1) for turn in turns)
    return [{"role": role, "content": text} for role, text in pairs]


def test_what_a_template_takes_stays_as_it_is() -> None:
    messages = said("system: a", "user: b", "system: c", "user: d", "user: e")
    fitted = order(CHATML)[0].fitted(messages)
    assert list(fitted.messages) == messages
    assert fitted.adjusted == ()


@pytest.mark.parametrize("source", [ALTERNATING, HOISTING, SILENT])
def test_a_later_system_message_is_text_of_the_next_user_turn(source: str) -> None:
    messages = said("system: a", "user: b", "assistant: c", "system: d", "user: e")
    fitted = order(source)[0].fitted(messages)
    assert list(fitted.messages) == said(
        "system: a", "user: b", "assistant: c", "user: <system>\nd\n</system>\n\ne"
    )
    assert fitted.adjusted == ("messages[3]: system, within a user turn",)


def test_where_no_user_speaks_next_it_is_a_turn_of_its_own() -> None:
    for messages in (
        said("user: a", "assistant: b", "system: c"),
        said("user: a", "assistant: b", "system: c", "assistant: d", "user: e"),
    ):
        fitted = order(ALTERNATING)[0].fitted(messages)
        assert list(fitted.messages)[2:3] == said("user: <system>\nc\n</system>")


def test_results_of_tools_stay_with_their_calls() -> None:
    messages = said("user: a", "assistant: b", "tool: c", "system: d", "tool: e", "user: f")
    fitted = order(SILENT)[0].fitted(messages)
    roles = [message["role"] for message in fitted.messages]
    assert roles == ["user", "assistant", "tool", "tool", "user"]
    assert fitted.messages[-1]["content"] == "<system>\nd\n</system>\n\nf"


def test_neighbours_are_merged_where_turns_must_alternate() -> None:
    messages = said("user: a", "user: b", "assistant: c", "assistant: d", "user: e")
    fitted = order(ALTERNATING)[0].fitted(messages)
    assert list(fitted.messages) == said("user: a\n\nb", "assistant: c\n\nd", "user: e")
    assert fitted.adjusted == (
        "messages[1]: merged with the one before",
        "messages[3]: merged with the one before",
    )


def test_merged_assistants_keep_their_calls() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = said("user: a", "assistant: b", "assistant: c")
    messages[1]["tool_calls"], messages[2]["tool_calls"] = [call], [call]
    fitted = order(ALTERNATING)[0].fitted(messages)
    assert fitted.messages[-1].get("tool_calls") == [call, call]


def test_a_template_without_system_role_says_it_in_the_first_turn() -> None:
    fitted = order(NO_SYSTEM)[0].fitted(said("system: a", "user: b"))
    assert list(fitted.messages) == said("user: <system>\na\n</system>\n\nb")


@pytest.mark.parametrize("source", ALL)
def test_a_system_message_alone_is_rendered(source: str) -> None:
    arranging, template = order(source)
    assert "needle" in template.render(arranging.fitted(said("system: needle")).messages).plain


@pytest.mark.parametrize("source", ALL)
def test_all_that_is_said_is_rendered_in_order_and_prefixes_stay(source: str) -> None:
    arranging, template = order(source)
    messages = said(
        "system: s1", "system: s2", "user: u1", "system: s3", "user: u2", "user: u3",
        "assistant: a1", "system: s4", "user: u4", "assistant: a2", "user: u5", "system: s5",
        "assistant: a3", "user: u6",
    )  # fmt: skip
    whole = template.render(arranging.fitted(messages).messages, add_generation_prompt=False).plain
    places = [whole.index(message["content"]) for message in messages]
    assert places == sorted(places) or source == HOISTING
    for count in (7, 10, 13):  # an answer ends each
        begun = arranging.fitted(messages[:count]).messages
        text = template.render(begun, add_generation_prompt=False).plain
        assert whole.startswith(text)
