"""The items of a response's output, each as it grows: what is told of it, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from edgeserve.server.custom_input import CustomInput
from edgeserve.server.responses_items import sealed
from edgeserve.server.responses_tools import ResponsesTools
from edgeserve.server.turn import ChoiceAnswer, ToolCallBegun
from edgeserve.types import LogprobsAt

Told = Sequence[tuple[str, Mapping[str, object]]]
"""Events: the type without "response.", and the fields that are not the same for all of an item."""
CalledTool = Mapping[str, str]
"""The name of a tool, and its namespace if it has one."""
ShownLogprobs = Callable[[Sequence[LogprobsAt]], Sequence[object]]


class OutputItem(Protocol):
    """One item. `begin`, then what it grows by, then `end`; `shape` at any time."""

    item_id: str

    def begin(self) -> Told: ...

    def end(self) -> Told: ...

    def shape(self, status: str) -> dict[str, object]: ...


class MessageItem:
    """Text of an answer."""

    def __init__(self, item_id: str, shown: ShownLogprobs) -> None:
        self.item_id = item_id
        self._shown = shown
        self._text: list[str] = []
        self._logprobs: list[object] = []
        self._has_begun = False

    def begin(self) -> Told:
        self._has_begun = True
        return [("content_part.added", {"content_index": 0, "part": self._part()})]

    def add(self, text: str, logprobs: Sequence[LogprobsAt]) -> Told:
        shown = self._shown(logprobs)
        self._text.append(text)
        self._logprobs += shown
        delta = {"content_index": 0, "delta": text, "logprobs": shown}
        return [("output_text.delta", delta)]

    def end(self) -> Told:
        done = {"content_index": 0, "text": "".join(self._text), "logprobs": self._logprobs}
        part = {"content_index": 0, "part": self._part()}
        return [("output_text.done", done), ("content_part.done", part)]

    def shape(self, status: str) -> dict[str, object]:
        head = {"id": self.item_id, "type": "message", "status": status, "role": "assistant"}
        return {**head, "content": [self._part()] if self._has_begun else []}

    def _part(self) -> dict[str, object]:
        text = "".join(self._text)
        part = {"type": "output_text", "text": text, "annotations": list[object]()}
        return {**part, "logprobs": list(self._logprobs)}


class ReasoningItem:
    """Thoughts before an answer."""

    def __init__(self, item_id: str, *, seals: bool) -> None:
        self.item_id = item_id
        self._seals = seals
        self._text: list[str] = []

    def begin(self) -> Told:
        return [("content_part.added", {"content_index": 0, "part": self._part()})]

    def add(self, text: str) -> Told:
        self._text.append(text)
        return [("reasoning_text.delta", {"content_index": 0, "delta": text})]

    def end(self) -> Told:
        done = {"content_index": 0, "text": "".join(self._text)}
        part = {"content_index": 0, "part": self._part()}
        return [("reasoning_text.done", done), ("content_part.done", part)]

    def shape(self, status: str) -> dict[str, object]:
        text = "".join(self._text)
        return {
            "id": self.item_id,
            "type": "reasoning",
            "status": status,
            "summary": list[object](),
            "content": [self._part()] if text else [],
            "encrypted_content": sealed(text) if self._seals and text else None,
        }

    def _part(self) -> dict[str, object]:
        return {"type": "reasoning_text", "text": "".join(self._text)}


class CallItem:
    """A call of a function."""

    def __init__(self, item_id: str, call_id: str, tool: CalledTool) -> None:
        self.item_id = item_id
        self._call_id = call_id
        self._tool = tool
        self._arguments: list[str] = []

    def begin(self) -> Told:
        return []

    def add(self, piece: str) -> Told:
        self._arguments.append(piece)
        return [("function_call_arguments.delta", {"delta": piece})]

    def end(self) -> Told:
        done = {"name": self._tool["name"], "arguments": "".join(self._arguments)}
        return [("function_call_arguments.done", done)]

    def shape(self, status: str) -> dict[str, object]:
        head = {"id": self.item_id, "type": "function_call", "status": status}
        call = {"call_id": self._call_id, **self._tool}
        return {**head, **call, "arguments": "".join(self._arguments)}


class CustomCallItem:
    """A call of a custom tool: its one argument is free text."""

    def __init__(self, item_id: str, call_id: str, tool: CalledTool) -> None:
        self.item_id = item_id
        self._call_id = call_id
        self._tool = tool
        self._input = CustomInput()

    def begin(self) -> Told:
        return []

    def add(self, piece: str) -> Told:
        return self._told(self._input.read(piece))

    def end(self) -> Told:
        rest = self._told(self._input.finish())
        return [*rest, ("custom_tool_call_input.done", {"input": self._input.text})]

    def shape(self, status: str) -> dict[str, object]:
        head = {"id": self.item_id, "type": "custom_tool_call", "status": status}
        call = {"call_id": self._call_id, **self._tool}
        return {**head, **call, "input": self._input.text}

    def _told(self, text: str) -> Told:
        return [("custom_tool_call_input.delta", {"delta": text})] if text else []


class OutputItems:
    """Makes the items of one response."""

    def __init__(
        self,
        new_id: Callable[[], str],
        tools: ResponsesTools,
        shown: ShownLogprobs,
        *,
        seals: bool,
    ) -> None:
        self._new_id = new_id
        self._tools = tools
        self._shown = shown
        self._seals = seals

    def message(self) -> MessageItem:
        return MessageItem(f"msg_{self._new_id()}", self._shown)

    def reasoning(self) -> ReasoningItem:
        return ReasoningItem(f"rs_{self._new_id()}", seals=self._seals)

    def call(self, begun: ToolCallBegun) -> CallItem | CustomCallItem:
        namespace, name = self._tools.spaces.get(begun.name, (None, begun.name))
        tool = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
        if begun.name in self._tools.custom:
            return CustomCallItem(f"ctc_{self._new_id()}", begun.call_id, tool)
        return CallItem(f"fc_{self._new_id()}", begun.call_id, tool)

    def of_answer(self, choice: ChoiceAnswer) -> list[dict[str, object]]:
        """All items of an answer that is whole. The last may be incomplete."""
        items: list[OutputItem] = []
        if choice.reasoning:
            reasoning = self.reasoning()
            reasoning.add(choice.reasoning)
            items.append(reasoning)
        if choice.text:
            message = self.message()
            message.begin()
            message.add(choice.text, choice.logprobs)
            items.append(message)
        for at, call in enumerate(choice.tool_calls):
            item = self.call(ToolCallBegun(choice.index, at, call.call_id, call.name))
            item.add(call.arguments)
            item.end()
            items.append(item)
        last = status_of(choice.finish_reason)
        statuses = ["completed"] * (len(items) - 1) + [last]
        return [item.shape(status) for item, status in zip(items, statuses, strict=False)]


def status_of(finish_reason: str) -> str:
    """Of a response, and of its last item."""
    return "incomplete" if finish_reason == "length" else "completed"
