"""A conversation as templates want it: checked, copied, in the shapes that a template can read.

Knows OpenAI's message shapes; nothing of Jinja, and of a template only what it is told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from edgeserve.errors import InvalidRequestError
from edgeserve.types import Role

Chat = list[dict[str, object]]

_ROLES = {role.value: role.value for role in Role} | {"developer": Role.SYSTEM.value}
_REASONING = ("reasoning_content", "thinking", "reasoning")
"""A message's reasoning goes by these names; the first is the one that templates read."""
_MAX_NESTING = 100


def checked_messages(messages: object) -> Chat:
    """A copy of a request's messages without absent values; InvalidRequestError names the field."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise InvalidRequestError(
            "messages", cast(object, messages), "a list of at least one message"
        )
    items = cast("Sequence[object]", messages)
    return [_checked_message(f"messages[{index}]", item) for index, item in enumerate(items)]


def checked_tools(tools: object) -> list[object] | None:
    """A copy of a request's tools; None when there are none."""
    if tools is None:
        return None
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise InvalidRequestError("tools", tools, "a list of tool descriptions")
    copies = [
        plain_data(f"tools[{index}]", tool)
        for index, tool in enumerate(cast("Sequence[object]", tools))
    ]
    for index, tool in enumerate(copies):
        if not isinstance(tool, dict):
            raise InvalidRequestError(f"tools[{index}]", tool, "an object")
    return copies or None


def plain_data(where: str, value: object, depth: int = 0) -> object:
    """A copy made of JSON's types alone: the template gets nothing else to hold on to."""
    if depth > _MAX_NESTING:
        raise InvalidRequestError(where, "...", f"nested at most {_MAX_NESTING} deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):  # enums and numpy's scalars are strings and numbers, too
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        for key, _ in items:
            if not isinstance(key, str):
                raise InvalidRequestError(where, key, "an object whose keys are strings")
        return {str(k): plain_data(f"{where}.{k}", item, depth + 1) for k, item in items}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        items = cast("Sequence[object]", value)
        return [plain_data(f"{where}[{i}]", item, depth + 1) for i, item in enumerate(items)]
    raise InvalidRequestError(where, type(value).__name__, "text, a number, a list or an object")


def _checked_message(where: str, message: object) -> dict[str, object]:
    copy = plain_data(where, message)
    if not isinstance(copy, dict):
        raise InvalidRequestError(where, message, "an object with role and content")
    # An absent value and a null mean the same; templates know only the first.
    fields = {
        key: value for key, value in cast("dict[str, object]", copy).items() if value is not None
    }
    role = fields.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidRequestError(f"{where}.role", role, f"one of {', '.join(_ROLES)}")
    fields["role"] = _ROLES[role]
    content = fields.get("content")
    if isinstance(content, list):
        for index, part in enumerate(cast("list[object]", content)):
            _check_part(f"{where}.content[{index}]", part)
    elif content is None and role == Role.ASSISTANT.value:
        _check_says_something(where, fields)
    elif not isinstance(content, str):
        raise InvalidRequestError(f"{where}.content", content, "text or a list of text parts")
    if "tool_calls" in fields:
        _check_tool_calls(f"{where}.tool_calls", fields["tool_calls"])
    reasoning = next((fields[key] for key in _REASONING if key in fields), None)
    if reasoning is not None:
        fields = {"thinking": reasoning, **fields, "reasoning_content": reasoning}
    return fields


def _check_says_something(where: str, fields: Mapping[str, object]) -> None:
    if not fields.get("tool_calls") and not any(key in fields for key in _REASONING):
        raise InvalidRequestError(f"{where}.content", None, "text, or absent beside tool_calls")


def _check_part(where: str, part: object) -> None:
    kind = cast("dict[str, object]", part).get("type") if isinstance(part, dict) else part
    if kind != "text":
        raise InvalidRequestError(where, kind, "a text part (this model reads text only)")
    if not isinstance(cast("dict[str, object]", part).get("text"), str):
        raise InvalidRequestError(f"{where}.text", None, "text")


def _check_tool_calls(where: str, calls: object) -> None:
    if not isinstance(calls, list):
        raise InvalidRequestError(where, calls, "a list of tool calls")
    for index, call in enumerate(cast("list[object]", calls)):
        function = _function_of(call)
        if not isinstance(function.get("name"), str):
            raise InvalidRequestError(f"{where}[{index}].function.name", None, "a tool's name")


def _function_of(call: object) -> dict[str, object]:
    """The object of a tool call that holds name and arguments: `function`, or the call itself."""
    if not isinstance(call, dict):
        return {}
    fields = cast("dict[str, object]", call)
    function = fields.get("function", fields)
    return cast("dict[str, object]", function) if isinstance(function, dict) else {}


# --- shapes ------------------------------------------------------------------------------------


def functions_called(chat: Chat) -> list[dict[str, object]]:
    """What holds name and arguments, for every tool call of the conversation."""
    return [
        _function_of(call)
        for message in chat
        for call in cast("list[object]", message.get("tool_calls", []))
    ]


def arguments_to_objects(chat: Chat) -> None:
    """Tool arguments that are JSON text become the object; text that is none stays text."""
    for function in functions_called(chat):
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                value: object = json.loads(arguments)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                function["arguments"] = value


def arguments_to_text(chat: Chat) -> None:
    """Tool arguments that are objects become JSON text."""
    for function in functions_called(chat):
        if isinstance(function.get("arguments"), dict):
            function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)


def joined_parts(content: object) -> object:
    """Text parts as one text; anything else as it is."""
    if not isinstance(content, list):
        return content
    return "".join(cast(str, part["text"]) for part in cast("list[dict[str, object]]", content))


def as_parts(content: object) -> object:
    """A text as a list of one text part."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
