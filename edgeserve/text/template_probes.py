"""Small conversations that show what a template can read, by whether it repeats them rightly.

Asking the template is surer than reading it: the ways to loop over parts or to print arguments
are many. Knows messages only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from edgeserve.frozen import frozen
from edgeserve.text.template_messages import Chat

_NEEDLE = "edgeserve_needle"
_CALL_ID = "abcdefghi"  # nine letters and digits, which some templates insist on


@frozen
class Probe:
    """A conversation for a role, whether its rendering is right, and what a refusal means."""

    chat: Callable[[str], Chat]
    succeeded: Callable[[str], bool]
    when_refused: bool
    tools: tuple[dict[str, object], ...] = ()


def _saying(content: object) -> Callable[[str], Chat]:
    """A conversation in which one role says `content`."""

    def chat(role: str) -> Chat:
        says: dict[str, object] = {"role": role, "content": content}
        if role == "user":
            return [says]
        if role == "system":
            return [says, {"role": "user", "content": "x"}]
        if role == "assistant":
            return [{"role": "user", "content": "x"}, says, {"role": "user", "content": "y"}]
        return [*_calling("{}")(""), {**says, "tool_call_id": _CALL_ID, "name": "probe"}]

    return chat


def _calling(arguments: object) -> Callable[[str], Chat]:
    """A conversation in which the assistant calls a tool with `arguments`."""

    def chat(_: str) -> Chat:
        function = {"name": "probe", "arguments": arguments}
        call = {"id": _CALL_ID, "type": "function", "function": function}
        return [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]

    return chat


def _answering(arguments: object) -> Callable[[str], Chat]:
    """A conversation in which a tool that was called with `arguments` answers."""

    def chat(_: str) -> Chat:
        result: dict[str, object] = {"role": "tool", "content": _NEEDLE, "name": "probe"}
        return [*_calling(arguments)(""), {**result, "tool_call_id": _CALL_ID}]

    return chat


def _reads_parts(text: str) -> bool:
    return _NEEDLE in text and "'type'" not in text and '"type"' not in text


def _reads_object(text: str) -> bool:
    return _NEEDLE in text and "{'" not in text  # a dict's repr is no JSON


def _silent_call(_: str) -> Chat:
    """A tool call without content, in the midst of a conversation."""
    question, call = _calling({})("")
    del call["content"]
    result: dict[str, object] = {"role": "tool", "tool_call_id": _CALL_ID, "content": "x"}
    answer: dict[str, object] = {"role": "assistant", "content": "x"}
    return [question, call, {**result, "name": "probe"}, answer, question]


_TOOL: dict[str, object] = {
    "type": "function",
    "function": {
        "name": _NEEDLE,
        "description": "x",
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "string", "description": "x"}},
            "required": ["x"],
        },
    },
}
_TOOL_OTHER: dict[str, object] = {
    "type": "function",
    "function": {**cast("dict[str, object]", _TOOL["function"]), "name": "probe"},
}


def _reads(text: str) -> bool:
    return _NEEDLE in text


PROBES = {
    "text": Probe(_saying(_NEEDLE), _reads, True),
    "parts": Probe(_saying([{"type": "text", "text": _NEEDLE}]), _reads_parts, False),
    "absent content": Probe(_silent_call, lambda _: True, False),
    "objects": Probe(_calling({_NEEDLE: "x"}), _reads_object, False),
    "argument text": Probe(
        _calling(f'{{"{_NEEDLE}": "x"}}'), lambda text: f'{{"{_NEEDLE}"' in text, False
    ),
    "tools": Probe(_saying("x"), _reads, False, (_TOOL,)),
    "calls": Probe(_calling({_NEEDLE: "x"}), _reads, False, (_TOOL_OTHER,)),
    "results": Probe(_answering({}), _reads, False, (_TOOL_OTHER,)),
    "results of text": Probe(_answering("{}"), _reads, False, (_TOOL_OTHER,)),
}
