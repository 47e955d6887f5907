"""The values that cross layers: what a caller asks for, what comes back, what a file holds.

Frozen dataclasses and nothing else: no I/O, no numpy, nothing of ours but errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, NotRequired, TypedDict

from edgeserve.errors import InvalidRequestError

MetadataValue = bool | int | float | str | Sequence["MetadataValue"]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The key-value section of a model file. `offsets` gives each key's byte, for errors."""

    values: Mapping[str, MetadataValue]
    offsets: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What stands in for sampling fields that a request leaves out, and where it came from."""

    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 0
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    origin: str = "edgeserve"


_MAX_LOGPROBS = 20
_MAX_STOPS = 64
_MAX_CHOICES = 128


def _check_range(name: str, value: object, low: float, high: float) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise InvalidRequestError(name, value, f"a number from {low:g} to {high:g}")


def _check_int(name: str, value: object, low: int, high: int | None = None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError(name, value, "an integer")
    if value < low or (high is not None and value > high):
        raise InvalidRequestError(
            name, value, f"at least {low}" if high is None else f"an integer from {low} to {high}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose tokens, and when to stop. None means the model's own default.

    temperature 0 is greedy. top_k <= 0 and top_p 1 are off. `stop` strings are not returned.
    `max_tokens` None runs to the end of the turn or of the context. `logprobs` k returns the k
    likeliest tokens beside the chosen one. Raises InvalidRequestError naming field and range.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        _check_range("temperature", self.temperature, 0, 100)
        _check_range("top_p", self.top_p, 0, 1)
        _check_range("min_p", self.min_p, 0, 1)
        _check_range("presence_penalty", self.presence_penalty, -2, 2)
        _check_range("frequency_penalty", self.frequency_penalty, -2, 2)
        _check_range("repetition_penalty", self.repetition_penalty, math.ulp(0.0), math.inf)
        if self.repetition_penalty == math.inf:
            raise InvalidRequestError("repetition_penalty", math.inf, "finite")
        _check_int("top_k", self.top_k, -(2**63))
        _check_int("seed", self.seed, -(2**63), 2**64 - 1)
        _check_int("n", self.n, 1, _MAX_CHOICES)
        _check_int("max_tokens", self.max_tokens, 1)
        _check_int("min_tokens", self.min_tokens, 0)
        _check_int("logprobs", self.logprobs, 0, _MAX_LOGPROBS)
        _check_int("prompt_logprobs", self.prompt_logprobs, 0, _MAX_LOGPROBS)
        if len(self.stop_strings) > _MAX_STOPS:
            allowed = f"at most {_MAX_STOPS} strings"
            raise InvalidRequestError("stop", len(self.stop_strings), allowed)
        for text in self.stop_strings:
            if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidRequestError("stop", text, "a string or a list of strings")
        for token_id in self.stop_token_ids:
            _check_int("stop_token_ids", token_id, 0)
        for token_id, bias in (self.logit_bias or {}).items():
            _check_int(f"logit_bias[{token_id!r}]", token_id, 0)
            if math.isnan(bias):
                raise InvalidRequestError(f"logit_bias[{token_id!r}]", bias, "a number")

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings as a tuple; empty ones, which would stop everything, are dropped."""
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return tuple(stop for stop in stops if stop != "")

    def resolved(self, defaults: SamplingDefaults) -> ResolvedSampling:
        """All knobs with a value: the request's own, else the model's."""

        def pick(own: float | None, default: float) -> float:
            return default if own is None else float(own)

        return ResolvedSampling(
            temperature=pick(self.temperature, defaults.temperature),
            top_p=pick(self.top_p, defaults.top_p),
            top_k=max(0, defaults.top_k if self.top_k is None else self.top_k),
            min_p=pick(self.min_p, defaults.min_p),
            repetition_penalty=pick(self.repetition_penalty, defaults.repetition_penalty),
            presence_penalty=float(self.presence_penalty),
            frequency_penalty=float(self.frequency_penalty),
            logit_bias=tuple(sorted((self.logit_bias or {}).items())),
        )

    def with_seed(self, seed: int) -> SamplingParams:
        return replace(self, seed=seed)


@dataclass(frozen=True, slots=True)
class ResolvedSampling:
    """SamplingParams after the model's defaults went in: what a sampler reads. top_k 0 is off."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def needs_history(self) -> bool:
        """Whether the tokens so far change the logits."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


@dataclass(frozen=True, slots=True)
class Logprob:
    """One token's natural-log probability under the unmodified logits. rank 1 is the likeliest."""

    logprob: float
    rank: int
    decoded_token: str


LogprobsAt = Mapping[int, Logprob]
"""For one position: token id -> Logprob, the chosen token first, then the likeliest."""


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One choice of a request. `logprobs` has one entry per token, when they were asked for."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    stop_reason: str | int | None = None
    logprobs: tuple[LogprobsAt, ...] | None = None
    cumulative_logprob: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a request. `cached_tokens` of the prompt were not computed again."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds from submission. `first_token_ms` is TTFT; rates are derived, per second."""

    queue_ms: float
    first_token_ms: float
    total_ms: float
    prompt_tokens_per_s: float
    decode_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """What a request produced. `.text` is the first choice's.

    `prompt_logprobs` (when asked for) has one entry per prompt token; the first is None.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    usage: Usage
    timings: Timings
    prompt_logprobs: tuple[LogprobsAt | None, ...] | None = None

    @property
    def text(self) -> str:
        return self.outputs[0].text


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """A piece of a stream: new text (maybe empty) and tokens of one choice."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[LogprobsAt, ...] | None
    finish_reason: FinishReason | None
