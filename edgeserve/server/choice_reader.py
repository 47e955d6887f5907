"""One choice of a turn as it is generated: chunks in, neutral events out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from edgeserve import answer_parts as parts
from edgeserve.answer_parts import AnswerPart
from edgeserve.server.turn import (
    ChoiceDelta,
    ChoiceEvent,
    ChoiceFinished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolArguments,
    ToolCallBegun,
)
from edgeserve.types import LogprobsAt, TokenChunk


class ChoiceReader:
    """Gives what the engine found in an answer its event.

    Logprobs of tokens whose text is held back, or that have none, go with the next event.
    """

    def __init__(self, index: int, new_id: Callable[[], str]) -> None:
        self._index = index
        self._new_id = new_id
        self._logprobs: list[LogprobsAt] = []
        self._has_calls = False

    def read(self, chunk: TokenChunk) -> Iterator[ChoiceEvent]:
        if chunk.logprobs is not None:
            self._logprobs += chunk.logprobs
        for part in _parts_of(chunk):
            event = self._event(part)
            if event is not None:
                yield event
        if chunk.finish_reason is not None:
            yield ChoiceFinished(self._index, self._finish_reason(chunk), self._take_logprobs())

    def _event(self, part: AnswerPart) -> ChoiceDelta | None:
        match part:
            case parts.ContentDelta():
                return TextDelta(self._index, part.text, self._take_logprobs())
            case parts.ReasoningDelta():
                return ReasoningDelta(self._index, part.text, self._take_logprobs())
            case parts.ToolCallBegun():
                self._has_calls = True
                call_id = f"call_{self._new_id()[:24]}"
                return ToolCallBegun(self._index, part.index, call_id, part.name)
            case parts.ToolArguments():
                return ToolArguments(self._index, part.index, part.text)
            case parts.ToolCallEnded():
                return None

    def _finish_reason(self, chunk: TokenChunk) -> FinishReason:
        if chunk.finish_reason == "length":
            return "length"
        return "tool_calls" if self._has_calls else "stop"

    def _take_logprobs(self) -> tuple[LogprobsAt, ...]:
        taken, self._logprobs = tuple(self._logprobs), []
        return taken


def _parts_of(chunk: TokenChunk) -> Sequence[AnswerPart]:
    if chunk.parts or not chunk.text:
        return chunk.parts
    return (parts.ContentDelta(chunk.text),)
