"""Items of OpenAI's Responses, checked one by one and put into the shape that templates read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import cast

from edgeserve.errors import InvalidRequestError
from edgeserve.server.fields import Fields, fields_of
from edgeserve.server.messages import Conversation, call_of, content_of
from edgeserve.server.responses_tools import full_name
from edgeserve.types import Message

_ROLES = {"user": "user", "system": "system", "developer": "system", "assistant": "assistant"}
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_LEFT_OUT = ("_call", "_call_output", "_approval_request", "_approval_response", "_list_tools")
"""How the types end of what tools elsewhere did: nothing that a model here could read."""
_SEAL = "edgeserve:"


def sealed(reasoning: str) -> str:
    """Thoughts as `encrypted_content`, for clients that keep nothing else. It hides nothing."""
    return _SEAL + base64.b64encode(reasoning.encode()).decode()


def conversation_of(instructions: str | None, items: Sequence[object]) -> Conversation:
    """Raises InvalidRequestError naming the item, or the part of it, that is wrong."""
    given = [fields_of(item, f"input[{at}]") for at, item in enumerate(items)]
    newest_user = max((at for at, i in enumerate(given) if i.raw("role") == "user"), default=-1)
    reader = _Items()
    if instructions:
        reader.found.append({"role": "system", "content": instructions})
    for at, item in enumerate(given):
        reader.take(item, at == newest_user)
    reader.flush()
    if not reader.found:
        kinds = [item.raw("type") for item in given]
        raise InvalidRequestError("input", kinds, "items of which at least one is for the model")
    messages = tuple(cast(Message, cast(object, message)) for message in reader.found)
    return Conversation(messages, tuple(reader.adjusted))


class _Items:
    """Messages as they grow: thoughts, text and calls that follow each other are one message."""

    def __init__(self) -> None:
        self.found: list[dict[str, object]] = []
        self.adjusted: list[str] = []
        self._reasoning: list[str] = []
        self._texts: list[str] = []
        self._calls: list[dict[str, object]] = []

    def take(self, item: Fields, is_newest_user: bool) -> None:
        kind = item.text("type") or "message"
        if kind == "message":
            self._message(item, is_newest_user)
        elif kind == "reasoning":
            if self._texts or self._calls:
                self.flush()
            self._reasoning.append(_reasoning(item))
        elif kind == "function_call":
            self._call(item)
        elif kind == "custom_tool_call":
            self._calls.append(_custom_call(item))
        elif kind in _OUTPUTS:
            self._output(item)
        elif kind.endswith(_LEFT_OUT) or kind == "compaction":
            self.adjusted.append(f"{item.path('type')}: {kind} left out")
        else:
            raise InvalidRequestError(item.path("type"), kind, "message, function_call, ...")

    def flush(self) -> None:
        """What the assistant said since the last of another, as a message."""
        message: dict[str, object] = {"role": "assistant"}
        if self._texts or not self._calls:
            message["content"] = "\n".join(self._texts)
        if any(self._reasoning):
            message["reasoning_content"] = "\n".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = self._calls
        if self._texts or self._calls or any(self._reasoning):
            self.found.append(message)
        self._reasoning, self._texts, self._calls = [], [], []

    def _message(self, item: Fields, is_newest_user: bool) -> None:
        role = item.raw("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise InvalidRequestError(item.path("role"), role, f"one of {', '.join(_ROLES)}")
        content = content_of(item, is_newest_user, self.adjusted)
        if content is None:
            raise InvalidRequestError(item.path("content"), None, "a string or a list of parts")
        if role == "assistant":
            if self._texts or self._calls:
                self.flush()
            self._texts.append(content)
            return
        self.flush()
        self.found.append({"role": _ROLES[role], "content": content})

    def _call(self, item: Fields) -> None:
        call = call_of(_named_in_full(item), item.text("call_id") or "", self.adjusted)
        if "broken" in call:
            self._texts.append(cast(str, call["broken"]))
        else:
            self._calls.append(call)

    def _output(self, item: Fields) -> None:
        self.flush()
        content = content_of(item, False, self.adjusted, "output") or ""
        message: dict[str, object] = {"role": "tool", "content": content}
        call_id = item.text("call_id")
        self.found.append({**message, "tool_call_id": call_id} if call_id else message)


def _named_in_full(item: Fields) -> Fields:
    """A call by the name that the model knows the tool by."""
    namespace = item.text("namespace")
    if not namespace:
        return item
    name = full_name(namespace, item.text("name") or "")
    return Fields({"name": name, "arguments": item.raw("arguments")}, item.where)


def _custom_call(item: Fields) -> dict[str, object]:
    name = _named_in_full(item).text("name")
    if not name:
        raise InvalidRequestError(item.path("name"), name, "a tool's name")
    function = {"name": name, "arguments": {"input": item.text("input") or ""}}
    call_id = item.text("call_id")
    call: dict[str, object] = {"type": "function", "function": function}
    return {"id": call_id, **call} if call_id else call


def _reasoning(item: Fields) -> str:
    """The thoughts, or what was sealed of them, or their summary."""
    content = _texts(item, "content")
    if content:
        return content
    seal = item.text("encrypted_content") or ""
    if seal.startswith(_SEAL):
        try:
            return base64.b64decode(seal.removeprefix(_SEAL), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return _texts(item, "summary")


def _texts(item: Fields, name: str) -> str:
    return "".join(part.text("text") or "" for part in item.objects(name) or ())
