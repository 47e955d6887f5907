"""The seam between chat surfaces and the engine: a task in, events out, in nobody's wire format.

Every surface (OpenAI chat, Responses, Anthropic) turns its body into a ChatTask, and a Turn's
events into its own frames. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, Protocol

from edgeserve.frozen import frozen
from edgeserve.text.thinking import Thinking as Thinking
from edgeserve.text.tool_descriptions import Tool as Tool
from edgeserve.text.tool_descriptions import ToolChoice as ToolChoice
from edgeserve.types import LogprobsAt, Message, RequestOutput, SamplingParams

FinishReason = Literal["stop", "length", "tool_calls"]


# --- what is asked -------------------------------------------------------------------------------


@frozen(kw_only=True)
class ChatTask:
    """One turn of a chat, as any surface asks for it.

    `messages` are in OpenAI's shape, each checked by itself, system messages where they stood.
    `params` holds n, stop strings, logprobs and the constraint, which `constraint_field` asked for:
    errors name it. `continues` the last message: None means where it is an assistant's with text.
    `adjusted` says what a surface changed already.
    """

    messages: Sequence[Message]
    params: SamplingParams
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    constraint_field: str | None = None
    thinking: Thinking = Thinking()
    template_variables: Mapping[str, object] | None = None
    continues: bool | None = None
    adds_generation_prompt: bool | None = None
    wants_prompt_progress: bool = False
    priority: int = 0
    adjusted: tuple[str, ...] = ()


# --- what comes ----------------------------------------------------------------------------------


@frozen
class PromptProgress:
    """How far a prompt is read, in tokens; `cached` of `total` need no reading."""

    total: int
    cached: int
    processed: int
    time_ms: float


@frozen
class TextDelta:
    """New text of a choice's answer, never empty. `logprobs` are of all tokens since the last."""

    index: int
    text: str
    logprobs: tuple[LogprobsAt, ...] = ()


@frozen
class ReasoningDelta:
    """New text of what a choice thinks before it answers."""

    index: int
    text: str
    logprobs: tuple[LogprobsAt, ...] = ()


@frozen
class ToolCallBegun:
    """A choice calls a tool: its `call`-th, from 0. The id stays the same ever after."""

    index: int
    call: int
    call_id: str
    name: str


@frozen
class ToolArguments:
    """A piece of a call's arguments, which together are the text of a JSON object."""

    index: int
    call: int
    text: str


@frozen
class ChoiceFinished:
    """A choice ended. `logprobs` are of tokens that came after its last delta."""

    index: int
    finish_reason: FinishReason
    logprobs: tuple[LogprobsAt, ...] = ()


@frozen
class TurnFinished:
    """All choices ended; the last event. `output` has usage, timings, and each choice's stop."""

    output: RequestOutput
    reasoning_tokens: int = 0


ChoiceDelta = TextDelta | ReasoningDelta | ToolCallBegun | ToolArguments
ChoiceEvent = ChoiceDelta | ChoiceFinished
TurnEvent = ChoiceEvent | PromptProgress | TurnFinished


class Turn(Protocol):
    """A task that the engine took. Its errors so far were raised before there was one."""

    @property
    def adjusted(self) -> tuple[str, ...]:
        """How messages were rendered differently from what was sent."""
        ...

    @property
    def relaxed(self) -> tuple[str, ...]:
        """Which constraints were loosened, by their path."""
        ...

    @property
    def num_prompt_tokens(self) -> int: ...

    def __aiter__(self) -> AsyncIterator[TurnEvent]:
        """The events, in order. Once only. Raises EdgeServeError where the request failed."""
        ...

    async def aclose(self) -> None:
        """Ends it; the engine drops a request that still runs within a step. Twice is fine."""
        ...


# --- the whole -----------------------------------------------------------------------------------


@frozen
class ToolCall:
    """A whole call. `arguments` is the text of a JSON object, or as far as it got."""

    call_id: str
    name: str
    arguments: str


@frozen
class ChoiceAnswer:
    """A whole choice. `logprobs` are of all its tokens, those of reasoning left out."""

    index: int
    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    logprobs: tuple[LogprobsAt, ...]


@frozen
class Answer:
    """What a turn came to, for surfaces that do not stream."""

    choices: tuple[ChoiceAnswer, ...]
    finished: TurnFinished


async def whole_answer(turn: Turn) -> Answer:
    """Reads a turn to its end."""
    parts: dict[int, _Parts] = {}
    async for event in turn:
        match event:
            case TurnFinished():
                choices = tuple(parts[index].answer(index) for index in sorted(parts))
                return Answer(choices, event)
            case PromptProgress():
                pass
            case _:
                parts.setdefault(event.index, _Parts()).take(event)
    raise AssertionError("a turn ends with TurnFinished, or with an error")


class _Parts:
    """A choice as it grows."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[ToolCallBegun, list[str]]] = []
        self._logprobs: list[LogprobsAt] = []
        self._finish_reason: FinishReason = "stop"

    def take(self, event: ChoiceEvent) -> None:
        match event:
            case TextDelta():
                self._text.append(event.text)
                self._logprobs += event.logprobs
            case ReasoningDelta():
                self._reasoning.append(event.text)
            case ToolCallBegun():
                self._calls.append((event, []))
            case ToolArguments():
                self._calls[event.call][1].append(event.text)
            case ChoiceFinished():
                self._finish_reason = event.finish_reason
                self._logprobs += event.logprobs

    def answer(self, index: int) -> ChoiceAnswer:
        calls = (ToolCall(b.call_id, b.name, "".join(pieces)) for b, pieces in self._calls)
        return ChoiceAnswer(
            index,
            "".join(self._text),
            "".join(self._reasoning),
            tuple(calls),
            self._finish_reason,
            tuple(self._logprobs),
        )
