"""The values that cross layers: what a caller asks for, what comes back, what a file holds.

Frozen dataclasses and nothing else: no I/O, no numpy, nothing of ours but errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, Literal, NotRequired, TypedDict

from edgeserve.answer_parts import AnswerPart as AnswerPart
from edgeserve.answer_parts import ContentDelta as ContentDelta
from edgeserve.answer_parts import ReasoningDelta as ReasoningDelta
from edgeserve.answer_parts import ToolArguments as ToolArguments
from edgeserve.answer_parts import ToolCall as ToolCall
from edgeserve.answer_parts import ToolCallBegun as ToolCallBegun
from edgeserve.answer_parts import ToolCallEnded as ToolCallEnded
from edgeserve.answer_parts import calls_in as calls_in
from edgeserve.constraints import Constraint as Constraint
from edgeserve.constraints import Relaxed as Relaxed
from edgeserve.frozen import frozen
from edgeserve.pooling_params import Pooling as Pooling
from edgeserve.pooling_params import PoolingParams as PoolingParams
from edgeserve.sampling_params import ResolvedSampling as ResolvedSampling
from edgeserve.sampling_params import SamplingDefaults as SamplingDefaults
from edgeserve.sampling_params import SamplingParams as SamplingParams
from edgeserve.sampling_params import SequenceBreakers as SequenceBreakers

MetadataValue = bool | int | float | str | Sequence["MetadataValue"]


@frozen
class Metadata:
    """The key-value section of a model file. `offsets` gives each key's byte, for errors."""

    values: Mapping[str, MetadataValue]
    offsets: Mapping[str, int] = field(default_factory=dict[str, int])


@frozen
class TensorInfo:
    """A tensor as a model file describes it.

    `shape` is row-major, outermost first: a matrix of n_out rows of n_in is (n_out, n_in),
    GGUF's dims reversed. `quant_type` is GGML's name ("F32", "Q4_K"). `offset` is the byte of
    its data in file number `part`; `info_offset` the byte of its description.
    """

    name: str
    shape: tuple[int, ...]
    quant_type: str
    offset: int
    num_bytes: int
    part: int = 0
    info_offset: int = 0


class Role(str, Enum):
    """Who says a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Message(TypedDict):
    """A chat message, in OpenAI's shape."""

    role: str
    content: NotRequired[str | list[dict[str, object]] | None]
    name: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, object]]]
    tool_call_id: NotRequired[str]
    reasoning_content: NotRequired[str]


FinishReason = Literal["stop", "length", "abort"]


@frozen
class Logprob:
    """One token's natural-log probability under the unmodified logits. rank 1 is the likeliest."""

    logprob: float
    rank: int
    decoded_token: str


LogprobsAt = Mapping[int, Logprob]
"""For one position: token id -> Logprob, the chosen token first, then the likeliest."""


@frozen
class CompletionOutput:
    """One choice of a request. `logprobs` has one entry per token, when they were asked for.

    `parse` makes a value of the text, where a schema was asked for. Of a chat, `text` is the answer
    without what the model thought before it, which is `reasoning`, and without `tool_calls`;
    `num_reasoning_tokens` were spent on the former.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    stop_reason: str | int | None = None
    logprobs: tuple[LogprobsAt, ...] | None = None
    cumulative_logprob: float | None = None
    seed: int = 0
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    num_reasoning_tokens: int = 0
    parse: Callable[[str], object] | None = field(default=None, repr=False, compare=False)

    @property
    def parsed(self) -> Any:
        """The value that the text stands for: what a `schema` asked for, made of a class where one
        was given. None without a schema, and where the answer was cut short.

        Raises OutputParseError where the class does not accept what its own schema allows.
        """
        if self.parse is None or self.finish_reason != "stop":
            return None
        return self.parse(self.text)


@frozen
class Usage:
    """Token counts of a request. `cached_tokens` of the prompt were not computed again.

    Of `num_draft_tokens` that speculation proposed, `num_accepted_tokens` are in the answer.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@frozen
class Timings:
    """Milliseconds from submission. `first_token_ms` is TTFT; rates are derived, per second; the
    ITL are what a choice's reader waited from one token to the next, 0 where there were not two."""

    queue_ms: float
    first_token_ms: float
    total_ms: float
    prompt_tokens_per_s: float
    decode_tokens_per_s: float
    itl_p50_ms: float = 0.0
    itl_p99_ms: float = 0.0
    itl_max_ms: float = 0.0


@frozen
class PrefixMiss:
    """Why no more of a prompt was found in the cache.

    "diverged": from token `position` on it differs from the likest prompt before it, which went on
    with `earlier_text` where this one says `text`. "evicted": from there on it was alike, but the
    keys and values are gone, or were never finished. `num_lost` tokens would have been found
    otherwise.
    """

    reason: Literal["diverged", "evicted"]
    position: int
    earlier_text: str = ""
    text: str = ""
    num_lost: int = 0

    def __str__(self) -> str:
        if self.reason == "evicted":
            return f"from token {self.position:,} on it was no longer in the cache"
        return (
            f"token {self.position:,} differs: {self.text!r}, where the likest prompt before had "
            f"{self.earlier_text!r}"
        )


@frozen
class RequestOutput:
    """What a request produced. `.text`, `.reasoning` and `.tool_calls` are the first choice's.

    `prompt_logprobs` (when asked for) has one entry per prompt token; the first is None.
    `prefix_miss` says why no more of the prompt was found in the cache, if more could have been.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    usage: Usage
    timings: Timings
    prompt_logprobs: tuple[LogprobsAt | None, ...] | None = None
    prefix_miss: PrefixMiss | None = None

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def parsed(self) -> Any:
        """The value of the first choice: see CompletionOutput.parsed."""
        return self.outputs[0].parsed

    @property
    def reasoning(self) -> str:
        return self.outputs[0].reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.outputs[0].tool_calls

    @property
    def num_cached_tokens(self) -> int:
        """Tokens of the prompt whose keys and values were there already."""
        return self.usage.cached_tokens


@frozen
class EmbeddingOutput:
    """A text's vector: float32 values, as many as were asked for."""

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    embedding: tuple[float, ...]
    usage: Usage
    timings: Timings

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)


@frozen
class TokenChunk:
    """A piece of a stream: new text (maybe empty) and tokens of one choice. Where an answer may
    hold more than text, `parts` are all that is new, in order. `drafted` says that speculation had
    guessed the token."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[LogprobsAt, ...] | None
    finish_reason: FinishReason | None
    parts: tuple[AnswerPart, ...] = ()
    drafted: bool = False

    @property
    def reasoning(self) -> str:
        """New text of what the model thinks before it answers."""
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningDelta))
