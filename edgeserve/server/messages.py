"""OpenAI's messages, checked one by one and put into the one shape that templates are given.

What a template makes of their order is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.server.fields import Fields, fields_of
from edgeserve.types import Message

IMAGE_OMITTED = "[image omitted]"

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_IMAGE_PARTS = ("image_url", "input_image", "image")  # no set: a type may be what has no hash
_KEPT = ("name", "tool_call_id", "reasoning_content", "reasoning")


@frozen
class Conversation:
    """Messages in one shape, and what had to be changed for it."""

    messages: tuple[Message, ...]
    adjusted: tuple[str, ...]


def conversation_of(messages: object) -> Conversation:
    """Raises InvalidRequestError naming the message, or the part of it, that is wrong."""
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError(
            "messages", cast(object, messages), "a list of at least one message"
        )
    items = cast("list[object]", messages)
    given = [fields_of(item, f"messages[{index}]") for index, item in enumerate(items)]
    newest_user = max((at for at, m in enumerate(given) if m.raw("role") == "user"), default=-1)
    adjusted: list[str] = []
    found = [_message(m, at == newest_user, adjusted) for at, m in enumerate(given)]
    return Conversation(tuple(found), tuple(adjusted))


def _message(given: Fields, is_newest_user: bool, adjusted: list[str]) -> Message:
    role = given.raw("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidRequestError(given.path("role"), role, f"one of {', '.join(_ROLES)}")
    message: dict[str, object] = {"role": _ROLES[role]}
    content = content_of(given, is_newest_user, adjusted)
    if content is None and _ROLES[role] == "tool":
        content = ""  # a tool that found nothing to say
    if content is None and role != "assistant":
        raise InvalidRequestError(given.path("content"), None, "a string or a list of parts")
    calls = _tool_calls(given, adjusted) if role == "assistant" else []
    texts: list[str] = [] if content is None else [content]
    if role == "assistant":
        broken = [call for call in calls if "broken" in call]
        calls = [call for call in calls if "broken" not in call]
        texts += [cast(str, call["broken"]) for call in broken]
        if not texts and not calls and not any(given.has(name) for name in _KEPT[2:]):
            texts = [""]
    if texts:
        message["content"] = "\n".join(texts)
    if calls:
        message["tool_calls"] = calls
    for name in _KEPT:
        value = given.text(name)
        if value:
            message[name] = value
    return cast(Message, cast(object, message))


def content_of(
    given: Fields, is_newest_user: bool, adjusted: list[str], field: str = "content"
) -> str | None:
    """A message's text, of a string or of parts."""
    value = given.raw(field)
    if isinstance(value, list):
        parts = cast("list[object]", value)
        path = given.path(field)
        return "".join(
            _part(fields_of(part, f"{path}[{at}]"), is_newest_user, adjusted)
            for at, part in enumerate(parts)
        )
    if value is not None and not isinstance(value, str):
        raise InvalidRequestError(given.path(field), value, "a string or a list of parts")
    return value


def _part(part: Fields, is_newest_user: bool, adjusted: list[str]) -> str:
    kind = part.raw("type")
    if isinstance(kind, str) and kind in _TEXT_PARTS:
        text = part.text(_TEXT_PARTS[kind])
        if text is None:
            raise InvalidRequestError(part.path(_TEXT_PARTS[kind]), None, "a string")
        return text
    if kind in _IMAGE_PARTS and not is_newest_user:
        adjusted.append(f"{part.path('type')}: {IMAGE_OMITTED}")
        return IMAGE_OMITTED
    if kind in _IMAGE_PARTS:
        raise InvalidRequestError(part.path("type"), kind, "text: this model reads no images")
    raise InvalidRequestError(part.path("type"), kind, "text")


def _tool_calls(given: Fields, adjusted: list[str]) -> list[dict[str, object]]:
    """Of an assistant's message; the legacy function_call too."""
    calls: Sequence[Fields] = given.objects("tool_calls") or []
    found: list[dict[str, object]] = []
    for call in calls:
        function = call.object("function")
        if function is None:
            raise InvalidRequestError(call.path("function"), None, "an object")
        found.append(call_of(function, call.text("id") or "", adjusted))
    legacy = given.object("function_call")
    if legacy is not None:
        found.append(call_of(legacy, "", adjusted))
    return found


def call_of(function: Fields, call_id: str, adjusted: list[str]) -> dict[str, object]:
    """A call in OpenAI's shape; or, where its arguments are no object, {"broken": its text}."""
    name = function.text("name")
    if not name:
        raise InvalidRequestError(function.path("name"), name, "a tool's name")
    arguments = function.raw("arguments")
    if arguments is None or arguments == "":
        arguments = "{}"
    if isinstance(arguments, str) and not _is_object(arguments):
        adjusted.append(f"{function.path('arguments')}: rendered as text")
        return {"broken": f"{name}({arguments})"}
    if not isinstance(arguments, str | dict):
        raise InvalidRequestError(function.path("arguments"), arguments, "the text of an object")
    said: dict[str, object] = {"name": name, "arguments": cast(object, arguments)}
    call: dict[str, object] = {"type": "function", "function": said}
    return {"id": call_id, **call} if call_id else call


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
