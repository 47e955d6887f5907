"""`/v1/chat/completions`: OpenAI's chat as a surface of the exchange."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast

from edgeserve.frozen import frozen
from edgeserve.server.chat_body import ChatBody, chat_body
from edgeserve.server.context import ServerContext
from edgeserve.server.errors import Problem, openai_body
from edgeserve.server.exchange import Asked
from edgeserve.server.fields import Fields
from edgeserve.server.models import Served
from edgeserve.server.shapes import chat_logprobs, progress_shape, timings_shape, usage_shape
from edgeserve.server.sse import DONE, PING, data_frame
from edgeserve.server.turn import (
    Answer,
    ChoiceAnswer,
    ChoiceDelta,
    ChoiceFinished,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolArguments,
    ToolCallBegun,
    Turn,
    TurnFinished,
)
from edgeserve.types import LogprobsAt

_NOTHING: Mapping[str, object] = {}


class OpenAIChat:
    """The surface."""

    ping = PING

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    def read(self, body: Fields, served: Served) -> Asked:
        return chat_body(body, vocab_size=served.vocab_size)

    async def frames(self, asked: Asked, served: Served, turn: Turn) -> AsyncIterator[bytes]:
        body = cast(ChatBody, asked)
        chunks = _Chunks(self._head("chat.completion.chunk", served), body, served)
        for index in range(body.task.params.n):
            yield chunks.opening(index)
        num_live = body.task.params.n
        last: ChoiceFinished | None = None
        async for event in turn:
            match event:
                case TurnFinished():
                    for frame in chunks.closing(last, event):
                        yield frame
                case PromptProgress():
                    yield chunks.progress(event)
                case ChoiceFinished() if num_live == 1:
                    last = event  # waits for the timings
                case ChoiceFinished():
                    num_live -= 1
                    yield chunks.end(event)
                case _:
                    yield chunks.of(event)
        yield DONE

    def whole(self, asked: Asked, served: Served, answer: Answer) -> object:
        body = cast(ChatBody, asked)
        output = answer.finished.output
        return {
            **self._head("chat.completion", served),
            "choices": [_choice(choice, body, served) for choice in answer.choices],
            "usage": usage_shape([output], answer.finished.reasoning_tokens),
            "timings": timings_shape(output),
        }

    def error_body(self, problem: Problem) -> bytes:
        return openai_body(problem)

    def error_frames(self, problem: Problem) -> bytes:
        return b"data: " + openai_body(problem) + b"\n\n"

    def _head(self, kind: str, served: Served) -> dict[str, object]:
        return {
            "id": f"chatcmpl-{self._server.new_id()}",
            "object": kind,
            "created": int(self._server.now()),
            "model": served.name,
            "system_fingerprint": served.fingerprint,
        }


def _choice(choice: ChoiceAnswer, body: ChatBody, served: Served) -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": choice.text}
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.tool_calls:
        message["content"] = choice.text or None
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in choice.tool_calls
        ]
    return {
        "index": choice.index,
        "message": message,
        "logprobs": _logprobs(choice.logprobs, body, served),
        "finish_reason": choice.finish_reason,
    }


def _logprobs(
    entries: Sequence[LogprobsAt], body: ChatBody, served: Served
) -> dict[str, object] | None:
    if body.num_top_logprobs is None:
        return None
    return chat_logprobs(entries, body.num_top_logprobs, served.token_bytes)


@frozen
class _Chunks:
    """Chunks of one stream. `head` is the same in all of them."""

    head: dict[str, object]
    body: ChatBody
    served: Served

    def opening(self, index: int) -> bytes:
        return self._chunk(index, {"role": "assistant", "content": ""})

    def of(self, event: ChoiceDelta) -> bytes:
        match event:
            case TextDelta():
                return self._chunk(event.index, {"content": event.text}, event.logprobs)
            case ReasoningDelta():
                return self._chunk(event.index, {"reasoning_content": event.text})
            case ToolCallBegun():
                call = {
                    "index": event.call,
                    "id": event.call_id,
                    "type": "function",
                    "function": {"name": event.name, "arguments": ""},
                }
                return self._chunk(event.index, {"tool_calls": [call]})
            case ToolArguments():
                call = {"index": event.call, "function": {"arguments": event.text}}
                return self._chunk(event.index, {"tool_calls": [call]})

    def end(self, event: ChoiceFinished, **extra: object) -> bytes:
        return self._chunk(event.index, {}, event.logprobs, event.finish_reason, extra)

    def progress(self, progress: PromptProgress) -> bytes:
        extra = {"prompt_progress": progress_shape(progress)}
        return data_frame({**self.head, "choices": [], **extra})

    def closing(self, last: ChoiceFinished | None, finished: TurnFinished) -> Sequence[bytes]:
        """The end of the last choice, which carries the timings, and usage where it is wanted."""
        timings = timings_shape(finished.output)
        frames = [] if last is None else [self.end(last, timings=timings)]
        if self.body.includes_usage:
            usage = usage_shape([finished.output], finished.reasoning_tokens)
            frames.append(
                data_frame({**self.head, "choices": [], "usage": usage, "timings": timings})
            )
        return frames

    def _chunk(
        self,
        index: int,
        delta: dict[str, object],
        logprobs: Sequence[LogprobsAt] = (),
        finish_reason: str | None = None,
        extra: Mapping[str, object] = _NOTHING,
    ) -> bytes:
        shown = _logprobs(logprobs, self.body, self.served) if logprobs else None
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": shown,
            "finish_reason": finish_reason,
        }
        return data_frame({**self.head, "choices": [choice], **extra})
