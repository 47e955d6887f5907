"""A ChatTask at work on a model: rendered and checked off the event loop, then a Turn of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, cast

from edgeserve.async_token_stream import AsyncTokenStream
from edgeserve.engine.live_request import Request
from edgeserve.engine.output import PromptRead
from edgeserve.errors import NotYetError
from edgeserve.frozen import frozen
from edgeserve.server.choice_reader import ChoiceReader
from edgeserve.server.constraint_fields import naming_field
from edgeserve.server.context import ServerContext
from edgeserve.server.models import Served
from edgeserve.server.turn import ChatTask, PromptProgress, Tool, TurnEvent, TurnFinished
from edgeserve.text.answer_reader import AnswerShape
from edgeserve.text.chat_template import RenderedPrompt
from edgeserve.text.reasoning import opens_reasoning, reasoning_tags
from edgeserve.text.tool_formats import format_of_template
from edgeserve.types import Message, RequestOutput


@frozen
class PreparedChat:
    """A request that is ready for the engine, what was changed on the way, and what may be in its
    answer."""

    request: Request
    adjusted: tuple[str, ...]
    shape: AnswerShape


class ChatTurn:
    """A Turn (turn.py) over a stream of tokens."""

    def __init__(
        self, stream: AsyncTokenStream, prepared: PreparedChat, readers: Sequence[ChoiceReader]
    ) -> None:
        self._stream = stream
        self._readers = readers
        self.adjusted = prepared.adjusted
        compiled = prepared.request.constraint
        self.relaxed = () if compiled is None else tuple(map(str, compiled.relaxed))
        self.num_prompt_tokens = len(prepared.request.prompt_token_ids)

    async def __aiter__(self) -> AsyncIterator[TurnEvent]:
        async for piece in self._stream.pieces():
            if isinstance(piece, PromptRead):
                times = (piece.total, piece.cached, piece.processed, piece.time_ms)
                yield PromptProgress(*times)
                continue
            for event in self._readers[piece.index].read(piece):
                yield event
        output = self._stream.output
        assert output is not None  # the stream has ended without an error
        yield TurnFinished(output, sum(reader.reasoning_tokens for reader in self._readers))

    @property
    def output(self) -> RequestOutput | None:
        """The whole, once it has ended by itself."""
        return self._stream.output

    async def aclose(self) -> None:
        await self._stream.aclose()


async def open_turn(server: ServerContext, served: Served, task: ChatTask) -> ChatTurn:
    """Renders, tokenises and checks, and queues the request.

    Raises InvalidRequestError, ContextLengthError, TemplateError, QueueFullError, NotYetError.
    """
    prepared = await asyncio.to_thread(prepare_chat, served, task, server.strict_templates)
    choices = range(task.params.n)
    readers = [ChoiceReader(index, prepared.shape, server.new_id) for index in choices]
    return ChatTurn(served.llm.open(prepared.request), prepared, readers)


def prepare_chat(served: Served, task: ChatTask, strict_templates: bool) -> PreparedChat:
    """The part of a turn that computes: for a thread, not for the event loop."""
    if task.tool_choice.mode == "required":
        raise NotYetError("a tool choice that forces a call")
    messages, adjusted = _ordered(served, task, strict_templates)
    fields = _template_fields(task, messages)
    builder = served.llm.requests
    with naming_field(task.constraint_field):
        request = builder.chat(messages, task.params, priority=task.priority, **fields)
    if task.wants_prompt_progress:
        request = replace(request, wants_prompt_progress=True)
    source = builder.template.source
    tags = reasoning_tags(source)
    shape = AnswerShape(
        tags=tags,
        opened=opens_reasoning(request.prompt or "", tags),
        form=format_of_template(source),
        tools=offered(task),
    )
    return PreparedChat(request, adjusted, shape)


def render_chat(served: Served, task: ChatTask, strict_templates: bool) -> RenderedPrompt:
    """The prompt that a task would be read as. It computes, too."""
    messages, _ = _ordered(served, task, strict_templates)
    return served.llm.requests.render(messages, **_template_fields(task, messages))


def count_prompt_tokens(served: Served, task: ChatTask, strict_templates: bool) -> int:
    """Of the prompt that a task would be read as, fitting or not. It computes, too."""
    rendered = render_chat(served, task, strict_templates)
    return len(served.llm.requests.tokens_of(rendered))


def offered(task: ChatTask) -> tuple[Tool, ...]:
    """The tools that the model is told of."""
    return () if task.tool_choice.mode == "none" else task.tools


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
    tools: Sequence[Mapping[str, object]] | None
    variables: Mapping[str, object] | None


def _template_fields(task: ChatTask, messages: Sequence[Message]) -> _TemplateFields:
    last = messages[-1]
    continues = task.continues
    if continues is None and task.adds_generation_prompt is not True:
        is_text = last["role"] == "assistant" and bool(last.get("content"))
        continues = is_text and not last.get("tool_calls")
    return {
        "add_generation_prompt": task.adds_generation_prompt,
        "continue_final_message": bool(continues),
        "tools": [tool.as_openai() for tool in offered(task)] or None,
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
