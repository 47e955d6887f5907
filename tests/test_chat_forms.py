"""Conversations with tools, as templates read them; thinking in the words of each family."""

from __future__ import annotations

import json

import pytest

from edgeserve.errors import InvalidRequestError
from edgeserve.text.chat_forms import ChatForms
from edgeserve.text.chat_template import ChatTemplate
from edgeserve.text.thinking import Thinking, thinking_variables
from edgeserve.text.tool_descriptions import Tool, ToolChoice, tool_choice_of, tools_of

PLAIN = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
HERMES = (
    "{% if tools %}<tool_call>{% for t in tools %}{{ t | tojson }}{% endfor %}\n{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "\n{% endfor %}{% if add_generation_prompt %}<|assistant|><think>\n</think>{% endif %}"
)
TOOLS = (Tool("stop", "Stops."),)
CALL = {"id": "", "type": "function", "function": {"name": "stop", "arguments": '{"a": 1}'}}
HISTORY = [
    {"role": "user", "content": "Stop."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "", "content": "stopped"},
    {"role": "user", "content": "Thanks."},
]


def forms_of(source: str) -> tuple[ChatForms, ChatTemplate]:
    template = ChatTemplate(source, bos_token="", eos_token="")
    return ChatForms(template), template


def rendered(source: str, messages: object, tools: tuple[Tool, ...] = ()) -> str:
    forms, template = forms_of(source)
    conversation = forms.conversation(messages, tools)
    return template.render(conversation, tools=forms.template_tools(tools)).plain


def test_a_template_without_tools_gets_a_preamble_and_calls_as_text() -> None:
    text = rendered(PLAIN, HISTORY, TOOLS)
    assert text.startswith("<|system|>You may call functions")
    assert '{"name": "stop", "description": "Stops.", "parameters"' in text
    assert '<|assistant|><tool_call>\n{"name": "stop", "arguments": {"a": 1}}\n</tool_call>' in text
    assert "<|user|><tool_response>\nstopped\n</tool_response>\nThanks." in text
    assert "<|tool|>" not in text


def test_the_preamble_follows_the_callers_own_system_message() -> None:
    text = rendered(PLAIN, [{"role": "system", "content": "Be brief."}, *HISTORY[:1]], TOOLS)
    assert text.startswith("<|system|>Be brief.\n\nYou may call functions")


def test_a_template_with_tools_is_left_to_itself() -> None:
    forms, _ = forms_of(HERMES)
    assert forms.form.name == "hermes"
    assert forms.conversation(HISTORY, TOOLS) == HISTORY
    assert '"name": "stop"' in rendered(HERMES, HISTORY, TOOLS)


def test_history_with_calls_needs_no_tools() -> None:
    assert "stopped" in rendered(PLAIN, HISTORY)
    assert "You may call" not in rendered(PLAIN, HISTORY)


def test_broken_arguments_are_shown_as_text() -> None:
    broken = {"function": {"name": "stop", "arguments": '{"a": '}}
    text = rendered(PLAIN, [HISTORY[0], {"role": "assistant", "tool_calls": [broken]}])
    assert json.dumps('{"a": ') in text


def test_an_answer_is_plain_where_the_template_knows_neither_tools_nor_thinking() -> None:
    forms, _ = forms_of(PLAIN)
    assert forms.shape("x", ()) is None
    shape = forms.shape("x", TOOLS)
    assert shape is not None
    assert (shape.form.name, shape.tools) == ("generic", TOOLS)
    thinking, _ = forms_of(PLAIN + "</think>")
    opened = thinking.shape("assistant\n<think>\n", ())
    assert opened is not None
    assert opened.opened


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (None, ToolChoice()),
        ("none", ToolChoice("none")),
        ("any", ToolChoice("required")),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "function", "function": {"name": "stop"}}, ToolChoice("required", ("stop",))),
        ({"type": "tool", "name": "stop"}, ToolChoice("required", ("stop",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "stop"}]}},
            ToolChoice("auto", ("stop",)),
        ),
        ({"type": "allowed_tools", "mode": "required", "tools": []}, ToolChoice("required", ())),
    ],
)  # fmt: skip
def test_choices_are_read_in_every_dialect(choice: object, found: ToolChoice) -> None:
    assert tool_choice_of(choice, TOOLS) == found
    assert tool_choice_of(choice, ()) == (ToolChoice() if choice is not None else found)


@pytest.mark.parametrize("choice", ["maybe", 5, {"name": "start"}, {"type": "function"}])
def test_a_choice_of_nothing_there_is_refused(choice: object) -> None:
    with pytest.raises(InvalidRequestError, match="tool_choice"):
        tool_choice_of(choice, TOOLS)


def test_which_tools_may_be_called_follows_the_choice() -> None:
    tools = tools_of([{"name": "a"}, {"name": "b"}])
    assert ToolChoice("none").offered(tools) == ()
    assert ToolChoice("auto", ("b",)).offered(tools) == tools
    assert ToolChoice("auto", ("b",)).callable(tools) == (tools[1],)


@pytest.mark.parametrize(
    ("template", "thinking", "found"),
    [
        ("{% if enable_thinking %}", Thinking(enabled=False), {"enable_thinking": False}),
        ("{% if enable_thinking %}", Thinking(budget=0), {"enable_thinking": False}),
        ("{% if enable_thinking %}", Thinking(effort="none"), {"enable_thinking": False}),
        ("{% if enable_thinking %}", Thinking(effort="high"), {"enable_thinking": True}),
        ("{% if enable_thinking %}", Thinking(), {}),
        ("{{ reasoning_effort }}", Thinking(effort="high"), {"reasoning_effort": "high"}),
        (
            "{% if reasoning_effort == 'low' or reasoning_effort == 'high' %}",
            Thinking(effort="xhigh"),
            {"reasoning_effort": "high"},
        ),
        ("{{ thinking_budget }}", Thinking(budget=64), {"thinking_budget": 64}),
        ("{{ message.thinking }} {% set enable_thinking = 1 %}", Thinking(enabled=True), {}),
    ],
)
def test_thinking_is_told_in_the_templates_words(
    template: str, thinking: Thinking, found: object
) -> None:
    assert thinking_variables(template, thinking) == found
