"""The values that cross layers: what a caller asks for, what comes back, what a file holds.

Frozen dataclasses and nothing else: no I/O, no numpy, nothing of ours but errors.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from numbers import Integral, Real
from types import MappingProxyType
from typing import Literal, NotRequired, TypedDict, cast

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen

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

# What each number may be, both ends included; None is no bound.
_NUMBERS = (
    ("temperature", 0, 100),
    ("top_p", 0, 1),
    ("min_p", 0, 1),
    ("repetition_penalty", sys.float_info.min, sys.float_info.max),
    ("presence_penalty", -2, 2),
    ("frequency_penalty", -2, 2),
)
_INTEGERS = (
    ("top_k", None, None),
    ("seed", -(2**63), 2**64 - 1),
    ("n", 1, _MAX_CHOICES),
    ("max_tokens", 1, None),
    ("min_tokens", 0, None),
    ("logprobs", 0, _MAX_LOGPROBS),
    ("prompt_logprobs", 0, _MAX_LOGPROBS),
)
_NEVER_NONE = frozenset({"n", "min_tokens", "presence_penalty", "frequency_penalty"})


def _number(name: str, value: object, low: float, high: float) -> float:
    allowed = f"a number from {low:g} to {high:g}" if low <= 0 else "a positive number"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidRequestError(name, value, allowed)
    try:
        found = float(value)
    except OverflowError:
        found = math.nan
    if not low <= found <= high:
        raise InvalidRequestError(name, value, allowed)
    return found


def _integer(name: str, value: object, low: int | None, high: int | None) -> int:
    """Also of a float without a fraction: other languages write 5 as 5.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidRequestError(name, value, "an integer")
    found = int(value)
    if (low is not None and found < low) or (high is not None and found > high):
        raise InvalidRequestError(
            name, found, f"at least {low}" if high is None else f"an integer from {low} to {high}"
        )
    return found


def _items(name: str, values: object, allowed: str) -> Iterable[object]:
    if isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping)):
        return cast(Iterable[object], values)
    raise InvalidRequestError(name, cast(object, values), allowed)


def _stops(stop: object) -> str | tuple[str, ...] | None:
    if stop is None or isinstance(stop, str):
        return stop
    found: list[str] = []
    for text in _items("stop", stop, "a string or a list of strings"):
        if not isinstance(text, str):
            raise InvalidRequestError("stop", text, "a string or a list of strings")
        found.append(text)
    if len(found) > _MAX_STOPS:
        raise InvalidRequestError("stop", len(found), f"at most {_MAX_STOPS} strings")
    return tuple(found)


def _stop_token_ids(ids: object) -> tuple[int, ...]:
    if ids is None:
        return ()
    items = enumerate(_items("stop_token_ids", ids, "a list of token ids"))
    return tuple(_integer(f"stop_token_ids[{at}]", token_id, 0, None) for at, token_id in items)


def _logit_bias(biases: object) -> Mapping[int, float] | None:
    if biases is None:
        return None
    if not isinstance(biases, Mapping):
        raise InvalidRequestError("logit_bias", biases, "a mapping of token ids to numbers")
    found: dict[int, float] = {}
    for token_id, bias in cast(Mapping[object, object], biases).items():
        name = f"logit_bias[{token_id!r}]"
        found[_integer(name, token_id, 0, None)] = _number(name, bias, -math.inf, math.inf)
    return MappingProxyType(found)


@frozen(kw_only=True)
class SamplingParams:
    """How to choose tokens, and when to stop. None means the model's own default.

    temperature 0 is greedy. top_k <= 0 and top_p 1 are off. `seed` None or -1 draws one. `stop`
    strings are not returned; nothing stops before `min_tokens`. `max_tokens` None runs to the end
    of the turn or of the context. `logprobs` k returns the k likeliest tokens beside the chosen
    one. `logit_bias` is held to 100 either way, and -100 bans. Lists and mappings are copied, so
    that a value never changes. Raises InvalidRequestError naming field and range.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = field(default=None, hash=False)
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
        for name, low, high in _NUMBERS:
            value = getattr(self, name)
            if value is not None or name in _NEVER_NONE:
                self._set(name, _number(name, value, low, high))
        for name, low, high in _INTEGERS:
            value = getattr(self, name)
            if value is not None or name in _NEVER_NONE:
                self._set(name, _integer(name, value, low, high))
        for name in ("ignore_eos", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidRequestError(name, getattr(self, name), "True or False")
        self._set("stop", _stops(self.stop))
        self._set("stop_token_ids", _stop_token_ids(self.stop_token_ids))
        self._set("logit_bias", _logit_bias(self.logit_bias))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            allowed = f"at most max_tokens, which is {self.max_tokens}"
            raise InvalidRequestError("min_tokens", self.min_tokens, allowed)
        if self.seed == -1:
            self._set("seed", None)

    def _set(self, name: str, value: object) -> None:
        """Puts a field into its one form, while the value is made and nobody has it yet."""
        object.__setattr__(self, name, value)

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


@frozen
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
    """One choice of a request. `logprobs` has one entry per token, when they were asked for."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    stop_reason: str | int | None = None
    logprobs: tuple[LogprobsAt, ...] | None = None
    cumulative_logprob: float | None = None
    seed: int = 0


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
    keys and values are gone, or were never finished.
    """

    reason: Literal["diverged", "evicted"]
    position: int
    earlier_text: str = ""
    text: str = ""

    def __str__(self) -> str:
        if self.reason == "evicted":
            return f"from token {self.position:,} on it was no longer in the cache"
        return (
            f"token {self.position:,} differs: {self.text!r}, where the likest prompt before had "
            f"{self.earlier_text!r}"
        )


@frozen
class RequestOutput:
    """What a request produced. `.text` is the first choice's.

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
    def num_cached_tokens(self) -> int:
        """Tokens of the prompt whose keys and values were there already."""
        return self.usage.cached_tokens


@frozen
class TokenChunk:
    """A piece of a stream: new text (maybe empty) and tokens of one choice."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[LogprobsAt, ...] | None
    finish_reason: FinishReason | None
