"""A ChatTask at work on a model: rendered and checked off the event loop, then a Turn of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TypedDict

from edgeserve.async_token_stream import AsyncTokenStream
from edgeserve.engine.live_request import Request
from edgeserve.engine.output import PromptRead
from edgeserve.frozen import frozen
from edgeserve.requests import ChatFields
from edgeserve.server.choice_reader import ChoiceReader
from edgeserve.server.constraint_fields import naming_field
from edgeserve.server.context import ServerContext
from edgeserve.server.errors import cut_is_error
from edgeserve.server.models import Served
from edgeserve.server.turn import ChatTask, PromptProgress, TurnEvent, TurnFinished
from edgeserve.text.chat_template import RenderedPrompt
from edgeserve.types import Message, RequestOutput


@frozen
class PreparedChat:
    """A request that is ready for the engine, and what was changed on the way."""

    request: Request
    adjusted: tuple[str, ...]


class ChatTurn:
    """A Turn (turn.py) over a stream of tokens."""

    def __init__(
        self, stream: AsyncTokenStream, prepared: PreparedChat, readers: Sequence[ChoiceReader]
    ) -> None:
        self._stream = stream
        self._readers = readers
        self.adjusted = prepared.adjusted
        self.relaxed = prepared.request.relaxed
        self.num_prompt_tokens = len(prepared.request.prompt_token_ids)

    async def __aiter__(self) -> AsyncIterator[TurnEvent]:
        with cut_is_error():
            async for piece in self._stream.pieces():
                if isinstance(piece, PromptRead):
                    times = (piece.total, piece.cached, piece.processed, piece.time_ms)
                    yield PromptProgress(*times)
                    continue
                for event in self._readers[piece.index].read(piece):
                    yield event
        output = self._stream.output
        assert output is not None  # the stream has ended without an error
        yield TurnFinished(output, sum(choice.num_reasoning_tokens for choice in output.outputs))

    @property
    def output(self) -> RequestOutput | None:
        """The whole, once it has ended by itself."""
        return self._stream.output

    async def aclose(self) -> None:
        await self._stream.aclose()


async def open_turn(server: ServerContext, served: Served, task: ChatTask) -> ChatTurn:
    """Renders, tokenises and checks, and queues the request.

    Raises InvalidRequestError, ContextLengthError, TemplateError, QueueFullError.
    """
    prepared = await asyncio.to_thread(prepare_chat, served, task, server.strict_templates)
    choices = range(task.params.n)
    readers = [ChoiceReader(index, server.new_id) for index in choices]
    return ChatTurn(served.llm.open(prepared.request), prepared, readers)


def prepare_chat(served: Served, task: ChatTask, strict_templates: bool) -> PreparedChat:
    """The part of a turn that computes: for a thread, not for the event loop."""
    messages, adjusted = _ordered(served, task, strict_templates)
    fields = _template_fields(task, messages)
    with naming_field(task.constraint_field):
        request = served.llm.requests.chat(messages, task.params, priority=task.priority, **fields)
    if task.wants_prompt_progress:
        request = replace(request, wants_prompt_progress=True)
    return PreparedChat(request, adjusted)


def render_chat(served: Served, task: ChatTask, strict_templates: bool) -> RenderedPrompt:
    """The prompt that a task would be read as. It computes, too."""
    messages, _ = _ordered(served, task, strict_templates)
    return served.llm.requests.render(messages, **_template_fields(task, messages))


def count_prompt_tokens(served: Served, task: ChatTask, strict_templates: bool) -> int:
    """Of the prompt that a task would be read as, fitting or not. It computes, too."""
    rendered = render_chat(served, task, strict_templates)
    return len(served.llm.requests.tokens_of(rendered))


def _ordered(
    served: Served, task: ChatTask, strict_templates: bool
) -> tuple[Sequence[Message], tuple[str, ...]]:
    """Messages as the template takes them, and how they differ from what was sent."""
    if strict_templates:
        return task.messages, task.adjusted
    fitted = served.llm.requests.fitted(task.messages)
    return fitted.messages, task.adjusted + fitted.adjusted


class _TemplateFields(TypedDict):
    add_generation_prompt: bool | None
    continue_final_message: bool
    asked: ChatFields


def _template_fields(task: ChatTask, messages: Sequence[Message]) -> _TemplateFields:
    last = messages[-1]
    continues = task.continues
    if continues is None and task.adds_generation_prompt is not True:
        is_text = last["role"] == "assistant" and bool(last.get("content"))
        continues = is_text and not last.get("tool_calls")
    return {
        "add_generation_prompt": task.adds_generation_prompt,
        "continue_final_message": bool(continues),
        "asked": ChatFields(
            task.tools,
            task.tool_choice,
            task.parallel_tool_calls,
            task.thinking,
            task.template_variables,
        ),
    }
