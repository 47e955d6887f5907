"""Anthropic's messages, checked block by block and put into the shape that templates are given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from edgeserve.errors import InvalidRequestError
from edgeserve.server.fields import Fields, fields_of
from edgeserve.server.messages import IMAGE_OMITTED, Conversation
from edgeserve.types import Message

_ROLES = ("user", "assistant", "system")
_VOLATILE = re.compile(r"\A\s*(?:x-anthropic-[a-z-]+:[^\n]*(?:\n|\Z)\s*)+")
"""What Claude Code puts before a system prompt, another for every request: a line of accounts, and
no instruction. In the prompt it would cost the cache of the whole conversation at every turn."""
_OMITTED_FILE = "[document omitted]"
_LEFT_OUT = frozenset(
    (
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "container_upload",
        "compaction",
    )
)
"""Of an assistant that ran elsewhere: nothing that a model here could read."""


def conversation_of(body: Fields) -> Conversation:
    """`system` and `messages`. Raises InvalidRequestError naming the block that is wrong."""
    adjusted: list[str] = []
    found: list[dict[str, object]] = []
    system = _system(body, adjusted)
    if system:
        found.append({"role": "system", "content": system})
    given = body.objects("messages")
    if not given:
        raise InvalidRequestError("messages", given, "a list of at least one message")
    newest_user = max((at for at, m in enumerate(given) if m.raw("role") == "user"), default=-1)
    for at, message in enumerate(given):
        found += _Blocks(at == newest_user, adjusted).messages(message)
    return Conversation(tuple(cast(Message, cast(object, m)) for m in found), tuple(adjusted))


def _system(body: Fields, adjusted: list[str]) -> str:
    """The system prompt, without lines at its top that are never the same twice."""
    value = body.raw("system")
    if value is None:
        return ""
    if not isinstance(value, str | list):
        raise InvalidRequestError(body.path("system"), value, "a string, or a list of texts")
    texts = [value] if isinstance(value, str) else _texts(body)
    for at, text in enumerate(texts):
        rest = _VOLATILE.sub("", text, count=1)
        if rest != text:
            texts[at] = rest
            adjusted.append(f"{body.path('system')}: a billing line left out")
        if rest:
            break
    return "\n".join(text for text in texts if text)


def _texts(holder: Fields) -> list[str]:
    texts: list[str] = []
    for block in holder.objects("system") or ():
        kind = block.raw("type")
        text = block.text("text")
        if kind != "text":
            raise InvalidRequestError(block.path("type"), kind, "text")
        if text is None:
            raise InvalidRequestError(block.path("text"), None, "a string")
        texts.append(text)
    return texts


class _Blocks:
    """The blocks of one message. Results of tools become messages of their own, in their place."""

    def __init__(self, is_newest_user: bool, adjusted: list[str]) -> None:
        self._is_newest_user = is_newest_user
        self._adjusted = adjusted
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, object]] = []
        self._found: list[dict[str, object]] = []

    def messages(self, given: Fields) -> Sequence[dict[str, object]]:
        role = given.raw("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise InvalidRequestError(given.path("role"), role, f"one of {', '.join(_ROLES)}")
        content = given.raw("content")
        if isinstance(content, str):
            return [{"role": role, "content": content}]
        if not isinstance(content, list):
            raise InvalidRequestError(given.path("content"), content, "a string or a list")
        for block in given.objects("content") or ():
            self._take(block, role)
        self._flush(role)
        return self._found or [{"role": role, "content": ""}]

    def _take(self, block: Fields, role: str) -> None:
        kind = block.raw("type")
        if kind == "tool_result" and role == "user":
            self._flush(role)
            self._found.append(self._tool_result(block))
        elif kind == "tool_use" and role == "assistant":
            self._call(block)
        elif kind == "thinking" and role == "assistant":
            self._reasoning.append(block.text("thinking") or "")
        elif isinstance(kind, str) and kind in _LEFT_OUT:
            self._adjusted.append(f"{block.path('type')}: {kind} left out")
        else:
            self._texts.append(self._text(block, may_fail=self._is_newest_user))

    def _flush(self, role: str) -> None:
        """What was gathered since the last result of a tool, as a message."""
        message: dict[str, object] = {"role": role}
        if self._texts:
            message["content"] = "".join(self._texts)
        if any(self._reasoning):
            message["reasoning_content"] = "\n".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = self._calls
        if len(message) > 1:
            self._found.append(message)
        self._texts, self._reasoning, self._calls = [], [], []

    def _call(self, block: Fields) -> None:
        name = block.text("name")
        if not name:
            raise InvalidRequestError(block.path("name"), name, "a tool's name")
        function = {"name": name, "arguments": block.mapping("input") or {}}
        call: dict[str, object] = {"type": "function", "function": function}
        call_id = block.text("id")
        self._calls.append({"id": call_id, **call} if call_id else call)

    def _tool_result(self, block: Fields) -> dict[str, object]:
        content = block.raw("content")
        if isinstance(content, str):
            text = content
        else:
            parts = block.objects("content") or ()
            text = "".join(self._text(part, may_fail=False) for part in parts)
        if block.flag("is_error"):
            text = f"Error: {text}"
        message: dict[str, object] = {"role": "tool", "content": text}
        call_id = block.text("tool_use_id")
        return {**message, "tool_call_id": call_id} if call_id else message

    def _text(self, block: Fields, *, may_fail: bool) -> str:
        """A block as text. What is no text is an error in the newest message, else left out."""
        kind = block.raw("type")
        if kind == "text":
            text = block.text("text")
            if text is None:
                raise InvalidRequestError(block.path("text"), None, "a string")
            return text
        if kind == "tool_reference":
            return block.text("tool_name") or ""
        if kind == "search_result":
            title, source = block.text("title") or "", block.text("source") or ""
            parts = block.objects("content") or ()
            told = "".join(self._text(part, may_fail=may_fail) for part in parts)
            return f"{title} ({source})\n{told}\n"
        if kind == "document":
            return self._document(block, may_fail)
        if kind == "image":
            return self._omitted(block, IMAGE_OMITTED, may_fail)
        raise InvalidRequestError(block.path("type"), kind, "text")

    def _document(self, block: Fields, may_fail: bool) -> str:
        source = block.object("source") or fields_of({}, block.path("source"))
        title = block.text("title")
        head = f"{title}\n" if title else ""
        kind = source.raw("type")
        if kind == "text":
            return f"{head}{source.text('data') or ''}\n"
        if kind == "content":
            content = source.raw("content")
            if isinstance(content, str):
                return f"{head}{content}\n"
            parts = source.objects("content") or ()
            return head + "".join(self._text(part, may_fail=may_fail) for part in parts)
        return self._omitted(block, _OMITTED_FILE, may_fail)

    def _omitted(self, block: Fields, said: str, may_fail: bool) -> str:
        kind = block.raw("type")
        if may_fail:
            raise InvalidRequestError(
                block.path("type"), kind, f"text: this model reads no {kind}s"
            )
        self._adjusted.append(f"{block.path('type')}: {said}")
        return said
