"""Takes down the calls that a reader finds, as parts of an answer; knows which tools there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from edgeserve.answer_parts import AnswerPart, ToolArguments, ToolCallBegun, ToolCallEnded
from edgeserve.text.tool_descriptions import Tool

Emit = Callable[[AnswerPart], None]


class CallWriter:
    """Numbers calls, and says what is in them as soon as it is known."""

    def __init__(self, tools: Mapping[str, Tool], emit: Emit) -> None:
        self._tools = tools
        self._emit = emit
        self._count = 0
        self._has_arguments = False

    def knows(self, name: str) -> bool:
        return name in self._tools

    def begin(self, name: str) -> None:
        """A call of a tool begins; what follows is in it until the next `begin`."""
        self._count += 1
        self._has_arguments = False
        self._emit(ToolCallBegun(self._count - 1, name))
        self._name = name

    def arguments(self, text: str) -> None:
        """More of the arguments' JSON text."""
        if text:
            self._has_arguments = True
            self._emit(ToolArguments(self._count - 1, text))

    def end(self) -> None:
        """The call is whole. One without arguments has none: an empty object."""
        if not self._has_arguments:
            self.arguments("{}")
        self._emit(ToolCallEnded(self._count - 1))

    def wants_text(self, key: str) -> bool | None:
        """Whether the running call's argument `key` is a text and nothing else; None if its schema
        does not say."""
        tool = self._tools.get(self._name)
        properties = tool.parameters.get("properties") if tool else None
        if not isinstance(properties, dict):
            return None
        schema = cast("dict[str, object]", properties).get(key)
        if not isinstance(schema, dict):
            return None
        return _is_text(cast("dict[str, object]", schema))


def _is_text(schema: Mapping[str, object]) -> bool | None:
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return kinds == "string"
    if isinstance(kinds, list):
        return kinds == ["string"]
    options = schema.get("enum")
    if isinstance(options, list):
        return all(isinstance(option, str) for option in cast("list[object]", options))
    return None
