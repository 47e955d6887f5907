"""What a model's chat template teaches of answers, and what it has to be helped with.

Owns which form of tool calls and which reasoning tags a model is read by, and how conversations
with tools reach templates that know none. Knows no tokenizer and no engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import cast

from edgeserve.text.answer_reader import AnswerShape
from edgeserve.text.chat_template import ChatTemplate
from edgeserve.text.reasoning import ReasoningTags, opens_reasoning, reasoning_tags
from edgeserve.text.thinking import Thinking, thinking_variables
from edgeserve.text.tool_descriptions import Tool
from edgeserve.text.tool_formats import (
    GENERIC,
    HarmonyFormat,
    ToolFormat,
    format_of_template,
    marks_of,
)
from edgeserve.text.tool_writing import generic_preamble, generic_result, written_calls
from edgeserve.types import Message

_TOOLS_IN_SYSTEM = ("message['tools']", "message.tools")


class ChatForms:
    """One template's ways. Thread-safe, as the template is; probes it once, when first asked."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template

    @cached_property
    def tags(self) -> ReasoningTags | None:
        """What stands around reasoning."""
        return None if self._is_harmony else reasoning_tags(self._template.source)

    @cached_property
    def form(self) -> ToolFormat:
        """How this model calls tools: as its template says, or, where that says nothing that is
        read, as the generic preamble does."""
        if self._is_harmony or self._system_holds_tools or self._template.reads_tools:
            return format_of_template(self._template.source)
        return GENERIC

    @property
    def thinks(self) -> bool:
        """Whether an answer may begin with reasoning."""
        return self._is_harmony or self.tags is not None

    @property
    def _is_harmony(self) -> bool:
        return isinstance(format_of_template(self._template.source), HarmonyFormat)

    @property
    def _system_holds_tools(self) -> bool:
        """Phi-4's way: tools are JSON text in the system message."""
        return any(text in self._template.source for text in _TOOLS_IN_SYSTEM)

    def conversation(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
        """Messages as the template can read them: calls and results that it would leave out become
        text, and tools that it would leave out are described."""
        found: list[dict[str, object]] = [dict(message) for message in messages]
        if any(message.get("tool_calls") for message in found) and (
            self.form == GENERIC or not self._template.reads_calls
        ):
            found = [self._with_written_calls(message) for message in found]
        if any(message.get("role") == "tool" for message in found) and (
            self.form == GENERIC or not self._template.reads_results
        ):
            found = _with_written_results(found)
        if tools and self._system_holds_tools:
            described = json.dumps([tool.as_openai()["function"] for tool in tools])
            found = _with_system(found, "", tools=described)
        elif tools and self.form == GENERIC:
            found = _with_system(found, generic_preamble(tools))
        return cast("list[Message]", found)

    def shape(self, prompt: str, tools: Sequence[Tool]) -> AnswerShape | None:
        """What the answer to a rendered prompt may hold; None if text and nothing else."""
        tags = self.tags
        form = self.form if tools or self._is_harmony else None
        if tags is None and form is None:
            return None
        return AnswerShape(tags, opens_reasoning(prompt, tags), form, tuple(tools))

    @cached_property
    def marks(self) -> tuple[str, ...]:
        """The texts by which an answer is read: control tokens among them have to be shown."""
        tags = (self.tags.opens, self.tags.closes) if self.tags is not None else ()
        return (*tags, *marks_of(self.form))

    def variables(self, thinking: Thinking) -> Mapping[str, object]:
        """What tells the template how to think."""
        return thinking_variables(self._template.source, thinking)

    def template_tools(self, tools: Sequence[Tool]) -> list[dict[str, object]] | None:
        """What the template itself is to see of tools."""
        if not tools or self.form == GENERIC or self._system_holds_tools:
            return None
        return [tool.as_openai() for tool in tools]

    def _with_written_calls(self, message: dict[str, object]) -> dict[str, object]:
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or not calls:
            return message
        written = written_calls(self.form, [_call_of(c) for c in cast("list[object]", calls)])
        content = _text_of(message.get("content"))
        kept = {key: value for key, value in message.items() if key != "tool_calls"}
        return {**kept, "content": f"{content}\n{written}" if content else written}


def uses_tools(messages: object) -> bool:
    """Whether a conversation, or what is given as one, has calls or results of tools in it."""
    if not isinstance(messages, Sequence):
        return False
    return any(
        "tool_calls" in message or message.get("role") == "tool"
        for message in cast("Sequence[object]", messages)
        if isinstance(message, Mapping)
        for message in [cast("Mapping[str, object]", message)]
    )


def _call_of(call: object) -> tuple[str, Mapping[str, object]]:
    """A call of the history. Arguments that are no object are kept as the text they are."""
    fields = cast("Mapping[str, object]", call)
    function = cast("Mapping[str, object]", fields.get("function", fields))
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = cast(object, json.loads(arguments or "{}"))
        except (ValueError, RecursionError):
            arguments = {"": arguments}
    if not isinstance(arguments, Mapping):
        arguments = {} if arguments is None else {"": arguments}
    return str(function.get("name")), cast("Mapping[str, object]", arguments)


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = cast("list[Mapping[str, object]]", content)
    return "".join(str(part.get("text", "")) for part in parts)


def _with_written_results(messages: list[dict[str, object]]) -> list[dict[str, object]]:
    """Tool messages as user messages; neighbours, and the user's text behind them, as one."""
    found: list[dict[str, object]] = []
    follows_result = False
    for message in messages:
        is_result = message.get("role") == "tool"
        text = _text_of(message.get("content"))
        said: dict[str, object] = (
            {"role": "user", "content": generic_result(text)} if is_result else message
        )
        is_users = said.get("role") == "user"
        if follows_result and is_users:
            merged = f"{found[-1]['content']}\n{_text_of(said.get('content'))}"
            found[-1] = {**found[-1], "content": merged}
        else:
            found.append(said)
        follows_result = is_result or (follows_result and is_users)
    return found


def _with_system(
    messages: list[dict[str, object]], text: str, **fields: object
) -> list[dict[str, object]]:
    """With `text` at the end of the first system message; of a new one where there is none."""
    first = messages[0] if messages and messages[0].get("role") in ("system", "developer") else None
    said = _text_of(first.get("content")) if first is not None else ""
    content = f"{said}\n\n{text}" if said and text else said or text
    head: dict[str, object] = {**(first or {"role": "system"}), "content": content, **fields}
    return [head, *(messages if first is None else messages[1:])]
