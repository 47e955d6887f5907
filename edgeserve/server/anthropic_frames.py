"""A turn as Anthropic streams it: a message of blocks, each begun, continued and ended by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from edgeserve.server.anthropic_shapes import SIGNATURE, stop_of, tool_use, usage_of
from edgeserve.server.sse import named_frame
from edgeserve.server.turn import (
    ChoiceFinished,
    FinishReason,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolArguments,
    ToolCallBegun,
    TurnEvent,
    TurnFinished,
)

_BlockKind = Literal["text", "thinking", "tool_use"]


class MessageFrames:
    """The frames of one message. `head` is the message without content.

    It is begun by the first event, which knows what of the prompt was cached.
    """

    def __init__(self, head: Mapping[str, object], num_prompt_tokens: int) -> None:
        self._head = head
        self._num_prompt_tokens = num_prompt_tokens
        self._has_begun = False
        self._block: _BlockKind | None = None
        self._index = -1
        self._finish_reason: FinishReason = "stop"

    def of(self, event: TurnEvent) -> Iterator[bytes]:
        if not self._has_begun:
            self._has_begun = True
            yield self._message_start(event)
        match event:
            case PromptProgress():
                pass
            case TextDelta():
                yield from self._within("text", {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": event.text})
            case ReasoningDelta():
                opening = {"type": "thinking", "thinking": "", "signature": ""}
                yield from self._within("thinking", opening)
                yield self._delta({"type": "thinking_delta", "thinking": event.text})
            case ToolCallBegun():
                yield from self._end_block()
                call = tool_use(event.call_id, event.name, {})
                yield from self._within("tool_use", call)
            case ToolArguments():
                yield self._delta({"type": "input_json_delta", "partial_json": event.text})
            case ChoiceFinished():
                self._finish_reason = event.finish_reason
                yield from self._end_block()
            case TurnFinished():
                yield from self._message_end(event)

    def _message_start(self, event: TurnEvent) -> bytes:
        cached = event.cached if isinstance(event, PromptProgress) else 0
        usage = usage_of(self._num_prompt_tokens, cached, 0)
        message = {**self._head, "stop_reason": None, "stop_sequence": None, "usage": usage}
        return _frame("message_start", message=message)

    def _message_end(self, finished: TurnFinished) -> Iterator[bytes]:
        output = finished.output
        usage = output.usage
        counts = usage_of(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        yield _frame("message_delta", delta=stop_of(self._finish_reason, output), usage=counts)
        yield _frame("message_stop")

    def _within(self, kind: _BlockKind, opening: Mapping[str, object]) -> Iterator[bytes]:
        """Begins a block of a kind, where the last is of another."""
        if self._block == kind:
            return
        yield from self._end_block()
        self._block = kind
        self._index += 1
        yield _frame("content_block_start", index=self._index, content_block=opening)

    def _end_block(self) -> Iterator[bytes]:
        if self._block == "thinking":
            yield self._delta({"type": "signature_delta", "signature": SIGNATURE})
        if self._block is not None:
            yield _frame("content_block_stop", index=self._index)
        self._block = None

    def _delta(self, delta: Mapping[str, object]) -> bytes:
        return _frame("content_block_delta", index=self._index, delta=delta)


def _frame(event: str, **fields: object) -> bytes:
    return named_frame(event, {"type": event, **fields})
