"""A turn as OpenAI's Responses stream it: numbered events of items, each added, told and done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from edgeserve.frozen import frozen
from edgeserve.server.errors import Problem
from edgeserve.server.responses_output import (
    CallItem,
    CustomCallItem,
    MessageItem,
    OutputItem,
    OutputItems,
    ReasoningItem,
    Told,
    status_of,
)
from edgeserve.server.sse import named_frame
from edgeserve.server.turn import (
    ChoiceFinished,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolArguments,
    ToolCallBegun,
    TurnEvent,
    TurnFinished,
)


@frozen
class ResponseHead:
    """What is the same in a response whatever became of it."""

    fields: Mapping[str, object]

    def at(self, status: str, output: list[dict[str, object]], **more: object) -> dict[str, object]:
        """The response now."""
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        state = {"status": status, "output": output, "incomplete_details": reason, "error": None}
        return {**self.fields, **state, "usage": None, **more}


class ResponseFrames:
    """The frames of one response. `kept` is told of it once it has ended well."""

    def __init__(
        self,
        head: ResponseHead,
        items: OutputItems,
        kept: Callable[[dict[str, object]], object],
    ) -> None:
        self._head = head
        self._items = items
        self._kept = kept
        self._number = 0
        self._output: list[dict[str, object]] = []
        self._open: OutputItem | None = None
        self._status = "completed"

    def begin(self) -> Iterator[bytes]:
        for event in ("created", "in_progress"):
            yield self._frame(event, response=self._head.at("in_progress", []))

    def of(self, event: TurnEvent) -> Iterator[bytes]:
        match event:
            case PromptProgress():
                pass
            case TextDelta():
                if not isinstance(self._open, MessageItem):
                    yield from self._begin(self._items.message())
                assert isinstance(self._open, MessageItem)
                yield from self._tell(self._open.add(event.text, event.logprobs))
            case ReasoningDelta():
                if not isinstance(self._open, ReasoningItem):
                    yield from self._begin(self._items.reasoning())
                assert isinstance(self._open, ReasoningItem)
                yield from self._tell(self._open.add(event.text))
            case ToolCallBegun():
                yield from self._begin(self._items.call(event))
            case ToolArguments():
                assert isinstance(self._open, CallItem | CustomCallItem)
                yield from self._tell(self._open.add(event.text))
            case ChoiceFinished():
                self._status = status_of(event.finish_reason)
                yield from self._end(self._status)
            case TurnFinished():
                yield self._finished(event)

    def failed(self, problem: Problem) -> bytes:
        """The last frame of a response that came to nothing."""
        error = {"code": problem.code or "server_error", "message": problem.message}
        response = self._head.at("failed", self._output, error=error)
        return self._frame("failed", response=response)

    def _finished(self, finished: TurnFinished) -> bytes:
        usage = usage_of(finished)
        response = self._head.at(self._status, self._output, usage=usage)
        self._kept(response)
        return self._frame(self._status, response=response)

    def _begin(self, item: OutputItem) -> Iterator[bytes]:
        yield from self._end("completed")
        self._open = item
        added = item.shape("in_progress")
        yield self._frame("output_item.added", output_index=len(self._output), item=added)
        yield from self._tell(item.begin())

    def _end(self, status: str) -> Iterator[bytes]:
        item = self._open
        if item is None:
            return
        yield from self._tell(item.end())
        done = item.shape(status)
        yield self._frame("output_item.done", output_index=len(self._output), item=done)
        self._output.append(done)
        self._open = None

    def _tell(self, told: Told) -> Iterator[bytes]:
        assert self._open is not None
        place = {"item_id": self._open.item_id, "output_index": len(self._output)}
        for event, fields in told:
            yield self._frame(event, **place, **fields)

    def _frame(self, event: str, **fields: object) -> bytes:
        name = f"response.{event}"
        number, self._number = self._number, self._number + 1
        return named_frame(name, {"type": name, "sequence_number": number, **fields})


def usage_of(finished: TurnFinished) -> dict[str, object]:
    usage = finished.output.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": finished.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
