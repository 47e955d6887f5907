"""A ChatTask at work on a model: rendered and checked off the event loop, then a Turn of events.

Text that is generated passes a parser per choice, which finds reasoning and tool calls in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Protocol, TypedDict, cast

from edgeserve.async_token_stream import AsyncTokenStream
from edgeserve.engine.live_request import Request
from edgeserve.errors import NotYetError
from edgeserve.frozen import frozen
from edgeserve.server.models import Served
from edgeserve.server.turn import (
    ChatTask,
    ChoiceEvent,
    ChoiceFinished,
    TextDelta,
    TurnEvent,
    TurnFinished,
)
from edgeserve.text.chat_template import RenderedPrompt
from edgeserve.types import LogprobsAt, TokenChunk


class ChoiceReader(Protocol):
    """Finds events in a choice's chunks."""

    def read(self, chunk: TokenChunk) -> Iterable[ChoiceEvent]: ...


class PlainReader:
    """All text is the answer. Logprobs of tokens without text go with the next that has some."""

    def __init__(self) -> None:
        self._logprobs: list[LogprobsAt] = []

    def read(self, chunk: TokenChunk) -> Iterable[ChoiceEvent]:
        if chunk.logprobs is not None:
            self._logprobs += chunk.logprobs
        if chunk.text:
            yield TextDelta(chunk.index, chunk.text, self._take_logprobs())
        if chunk.finish_reason is not None:
            reason = "length" if chunk.finish_reason == "length" else "stop"
            yield ChoiceFinished(chunk.index, reason, self._take_logprobs())

    def _take_logprobs(self) -> tuple[LogprobsAt, ...]:
        taken, self._logprobs = tuple(self._logprobs), []
        return taken


@frozen
class PreparedChat:
    """A request that is ready for the engine, and what was changed on the way."""

    request: Request
    adjusted: tuple[str, ...]


class ChatTurn:
    """A Turn (turn.py) over a stream of tokens."""

    def __init__(self, stream: AsyncTokenStream, prepared: PreparedChat, task: ChatTask) -> None:
        self._stream = stream
        self._task = task
        self.adjusted = prepared.adjusted
        self.relaxed: tuple[str, ...] = ()
        self.num_prompt_tokens = len(prepared.request.prompt_token_ids)

    async def __aiter__(self) -> AsyncIterator[TurnEvent]:
        readers: Mapping[int, ChoiceReader] = {n: PlainReader() for n in range(self._task.params.n)}
        async for chunk in self._stream:
            for event in readers[chunk.index].read(chunk):
                yield event
        output = self._stream.output
        assert output is not None  # the stream has ended without an error
        yield TurnFinished(output)

    async def aclose(self) -> None:
        await self._stream.aclose()


async def open_turn(served: Served, task: ChatTask) -> ChatTurn:
    """Renders, tokenises and checks, and queues the request.

    Raises InvalidRequestError, ContextLengthError, TemplateError, QueueFullError, NotYetError.
    """
    prepared = await asyncio.to_thread(prepare_chat, served, task)
    return ChatTurn(served.llm.open(prepared.request), prepared, task)


def prepare_chat(served: Served, task: ChatTask) -> PreparedChat:
    """The part of a turn that computes: for a thread, not for the event loop."""
    if task.constraint is not None:
        raise NotYetError(task.constraint.where)
    if task.tool_choice.mode == "required":
        raise NotYetError("a tool choice that forces a call")
    request = served.llm.requests.chat(
        task.messages, task.params, priority=task.priority, **_template_fields(task)
    )
    return PreparedChat(request, task.adjusted)


def render_chat(served: Served, task: ChatTask) -> RenderedPrompt:
    """The prompt that a task would be read as. It computes, too."""
    return served.llm.requests.render(task.messages, **_template_fields(task))


class _TemplateFields(TypedDict):
    add_generation_prompt: bool | None
    continue_final_message: bool
    tools: Sequence[Mapping[str, object]] | None
    variables: Mapping[str, object] | None


def _template_fields(task: ChatTask) -> _TemplateFields:
    last = task.messages[-1]
    continues = task.continues
    if continues is None and task.adds_generation_prompt is not True:
        is_text = last["role"] == "assistant" and bool(last.get("content"))
        continues = is_text and not last.get("tool_calls")
    offered = () if task.tool_choice.mode == "none" else task.tools
    return {
        "add_generation_prompt": task.adds_generation_prompt,
        "continue_final_message": bool(continues),
        "tools": [tool.for_template() for tool in offered] or None,
        "variables": _variables(task),
    }


def _variables(task: ChatTask) -> Mapping[str, object] | None:
    """What the template reads of how to think: the names that published templates use."""
    known = {
        "enable_thinking": task.thinking.enabled,
        "thinking": task.thinking.enabled,
        "reasoning_effort": task.thinking.effort,
    }
    given = {name: cast(object, value) for name, value in known.items() if value is not None}
    return {**given, **(task.template_variables or {})} or None
