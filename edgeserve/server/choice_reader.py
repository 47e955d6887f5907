"""One choice of a turn as it is generated: chunks in, neutral events out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
from edgeserve.text.answer_reader import AnswerReader, AnswerShape
from edgeserve.types import LogprobsAt, TokenChunk


class ChoiceReader:
    """Tells text, reasoning and tool calls apart; a plain answer passes as it is.

    Logprobs of tokens whose text is held back, or that have none, go with the next event.
    """

    def __init__(self, index: int, shape: AnswerShape, new_id: Callable[[], str]) -> None:
        self._index = index
        self._parser = None if shape.is_plain else AnswerReader(shape)
        self._new_id = new_id
        self._logprobs: list[LogprobsAt] = []
        self._has_calls = False
        self.reasoning_tokens = 0

    def read(self, chunk: TokenChunk) -> Iterator[ChoiceEvent]:
        if chunk.logprobs is not None:
            self._logprobs += chunk.logprobs
        for part in self._parts(chunk):
            event = self._event(part)
            if event is not None:
                yield event
        if chunk.finish_reason is not None:
            yield ChoiceFinished(self._index, self._finish_reason(chunk), self._take_logprobs())

    def _parts(self, chunk: TokenChunk) -> list[AnswerPart]:
        if self._parser is None:
            return [parts.ContentDelta(chunk.text)] if chunk.text else []
        was_thinking = self._parser.in_reasoning
        found = self._parser.feed(chunk.text)
        if was_thinking or self._parser.in_reasoning:
            self.reasoning_tokens += len(chunk.token_ids)
        return found if chunk.finish_reason is None else found + self._parser.finish()

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
