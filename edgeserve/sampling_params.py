"""How tokens are to be chosen: what a caller asks for, and what a sampler then reads.

Values and nothing else; `types` gives them to everybody.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from edgeserve import sampling_fields as fields
from edgeserve.constraints import Constraint
from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.sampling_fields import SAMPLERS

_MAX_LOGPROBS = 20
_MAX_CHOICES = 128
_MAX_INT32 = 2**31 - 1

MAX_REPEAT_WINDOW = 2**20
"""Tokens that DRY looks back at, at most."""


@frozen
class SamplingDefaults:
    """What stands in for sampling fields that a request leaves out, and where it came from. Each
    field is as in SamplingParams; `samplers` None is their usual order."""

    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 0
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    origin: str = "edgeserve"
    repeat_last_n: int = -1
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    samplers: tuple[str, ...] | None = None


# What each number may be, both ends included; None is no bound.
NUMBER_RANGES = (
    ("temperature", 0, 100),
    ("top_p", 0, 1),
    ("min_p", 0, 1),
    ("repetition_penalty", sys.float_info.min, sys.float_info.max),
    ("presence_penalty", -2, 2),
    ("frequency_penalty", -2, 2),
    ("dynatemp_range", 0, 100),
    ("dynatemp_exponent", 0, 100),
    ("typical_p", 0, 1),
    ("top_n_sigma", -1, 1000),
    ("xtc_probability", 0, 1),
    ("xtc_threshold", 0, 1),
    ("dry_multiplier", 0, 100),
    ("dry_base", 1, 100),
    ("mirostat_tau", 0, 100),
    ("mirostat_eta", 0, 100),
)
INTEGER_RANGES = (
    ("top_k", None, None),
    ("seed", -(2**63), 2**64 - 1),
    ("n", 1, _MAX_CHOICES),
    ("max_tokens", 1, None),
    ("min_tokens", 0, None),
    ("logprobs", 0, _MAX_LOGPROBS),
    ("prompt_logprobs", 0, _MAX_LOGPROBS),
    ("repeat_last_n", -1, _MAX_INT32),
    ("dry_allowed_length", 0, _MAX_INT32),
    ("dry_penalty_last_n", -1, _MAX_INT32),
    ("min_keep", 0, _MAX_INT32),
)
_NEVER_NONE = frozenset({"n", "min_tokens", "presence_penalty", "frequency_penalty"})


@frozen(kw_only=True)
class SamplingParams:
    """How to choose tokens, and when to stop. None means the model's own default.

    temperature 0 is greedy. top_k <= 0 and top_p 1 are off. `seed` None or -1 draws one. `stop`
    strings are not returned; nothing stops before `min_tokens`. `max_tokens` None runs to the end
    of the turn or of the context. `logprobs` k returns the k likeliest tokens beside the chosen
    one. `logit_bias` is held to 100 either way, and -100 bans. Lists and mappings are copied, so
    that a value never changes. Raises InvalidRequestError naming field and range.

    Other samplers are off unless asked for, and named as llama.cpp's server names them:

    - `typical_p` below 1: the tokens whose surprise is nearest the entropy (arXiv 2202.00666).
    - `top_n_sigma` above 0: logits within so many standard deviations of the largest (arXiv
      2411.07641).
    - `xtc_probability`: how often to drop all but the least likely of the tokens that have at
      least `xtc_threshold` (0.1; above 0.5 there cannot be two).
    - `dynatemp_range`: a temperature from temperature - range to temperature + range, by the share
      of their largest entropy that the tokens still there have, to the `dynatemp_exponent` (1).
    - `dry_multiplier` above 0: a token that would go on with a repetition of n tokens loses
      multiplier * `dry_base` (1.75) ^ (n - `dry_allowed_length` (2)), at most 1e30, for n at least
      the allowed length. Repetitions are looked for in the last `dry_penalty_last_n` tokens of
      prompt and output (-1, the default, is all, 0 none, and a million the most), and none reaches
      across one of `dry_sequence_breakers` (newline, colon, quote, asterisk).
    - `repeat_last_n`: the tokens that the three penalties look at; -1, the default, is all of them.
      Presence and frequency count output only.
    - `mirostat` 2: surprise held near `mirostat_tau` (5) bits, at a rate of `mirostat_eta` (0.1)
      (arXiv 2007.14966). It takes the place of all filters and of dynamic temperature: only
      penalties, DRY and temperature go before it.
    - `min_keep`: tokens that top_p, typical_p, min_p and XTC leave at least.
    - `constraint`: what the answer is held to (Constraint); it ends where that ends.
    - `samplers`: their order, of penalties, dry, top_n_sigma, top_k, typical_p, top_p, min_p, xtc,
      temperature; this one is the default. What it leaves out is off, temperature too (it is 1
      then). Bias and bans follow the penalties and DRY that lead, and come before all else.

    On purpose unlike llama.cpp: temperature 0 takes the likeliest token after penalties, DRY, bias
    and bans, whatever else is set; tokens that a filter drops count no longer, for dynamic
    temperature and typical_p; equally likely tokens rank by id; penalties and DRY hold with
    mirostat; and mirostat 1 is not there.
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
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: Sequence[str] | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    repeat_last_n: int | None = None
    min_keep: int | None = None
    samplers: Sequence[str] | None = None
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        for name, low, high in NUMBER_RANGES:
            value = getattr(self, name)
            if value is not None or name in _NEVER_NONE:
                self._set(name, fields.number(name, value, low, high))
        for name, low, high in INTEGER_RANGES:
            value = getattr(self, name)
            if value is not None or name in _NEVER_NONE:
                self._set(name, fields.integer(name, value, low, high))
        for name in ("ignore_eos", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidRequestError(name, getattr(self, name), "True or False")
        self._set("stop", fields.stops(self.stop))
        self._set("stop_token_ids", fields.stop_token_ids(self.stop_token_ids))
        self._set("logit_bias", fields.logit_bias(self.logit_bias))
        if self.samplers is not None:
            self._set("samplers", fields.samplers(self.samplers))
        if self.dry_sequence_breakers is not None:
            breakers = fields.sequence_breakers(self.dry_sequence_breakers)
            self._set("dry_sequence_breakers", breakers)
        if self.mirostat is not None:
            self._set("mirostat", fields.integer("mirostat", self.mirostat, None, None))
            if self.mirostat not in (0, 2):
                raise InvalidRequestError("mirostat", self.mirostat, "0 or 2")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            allowed = f"at most max_tokens, which is {self.max_tokens}"
            raise InvalidRequestError("min_tokens", self.min_tokens, allowed)
        if self.seed == -1:
            self._set("seed", None)
        fields.constrained(self.constraint, self.ignore_eos, self.min_tokens)

    def _set(self, name: str, value: object) -> None:
        """Puts a field into its one form, while the value is made and nobody has it yet."""
        object.__setattr__(self, name, value)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings as a tuple; empty ones, which would stop everything, are dropped."""
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return tuple(stop for stop in stops if stop != "")

    @property
    def breaker_texts(self) -> tuple[str, ...]:
        """What ends a repetition for DRY; nothing where DRY is off."""
        if not self.dry_multiplier:
            return ()
        own = self.dry_sequence_breakers
        return ("\n", ":", '"', "*") if own is None else tuple(own)

    def resolved(
        self, defaults: SamplingDefaults, breakers: SequenceBreakers | None = None
    ) -> ResolvedSampling:
        """All knobs with a value: the request's own, else the model's.

        `breakers` are the tokens of `breaker_texts`.
        """

        def pick(own: float | None, default: float) -> float:
            return default if own is None else own

        knobs = ResolvedSampling(
            temperature=pick(self.temperature, defaults.temperature),
            top_p=pick(self.top_p, defaults.top_p),
            top_k=max(0, defaults.top_k if self.top_k is None else self.top_k),
            min_p=pick(self.min_p, defaults.min_p),
            repetition_penalty=pick(self.repetition_penalty, defaults.repetition_penalty),
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=tuple(sorted((self.logit_bias or {}).items())),
            dynatemp_range=pick(self.dynatemp_range, 0.0),
            dynatemp_exponent=pick(self.dynatemp_exponent, 1.0),
            typical_p=pick(self.typical_p, 1.0),
            top_n_sigma=max(0.0, pick(self.top_n_sigma, 0.0)),
            xtc_probability=pick(self.xtc_probability, defaults.xtc_probability),
            xtc_threshold=pick(self.xtc_threshold, defaults.xtc_threshold),
            dry_multiplier=pick(self.dry_multiplier, 0.0),
            dry_base=pick(self.dry_base, 1.75),
            dry_allowed_length=2 if self.dry_allowed_length is None else self.dry_allowed_length,
            dry_window=_window(self.dry_penalty_last_n, MAX_REPEAT_WINDOW),
            breakers=breakers,
            penalty_window=_window(
                defaults.repeat_last_n if self.repeat_last_n is None else self.repeat_last_n,
                _MAX_INT32,
            ),
            mirostat=pick(self.mirostat, defaults.mirostat) == 2,
            mirostat_tau=pick(self.mirostat_tau, defaults.mirostat_tau),
            mirostat_eta=pick(self.mirostat_eta, defaults.mirostat_eta),
            min_keep=self.min_keep or 0,
        )
        order = defaults.samplers if self.samplers is None else self.samplers
        return knobs.in_order(SAMPLERS if order is None else order)


def _window(last_n: int | None, most: int) -> int:
    return most if last_n is None or last_n < 0 else min(last_n, most)


# A filter's field, and its value that changes nothing.
_OFF: Mapping[str, tuple[str, float]] = {
    "top_n_sigma": ("top_n_sigma", 0.0),
    "top_k": ("top_k", 0),
    "typical_p": ("typical_p", 1.0),
    "top_p": ("top_p", 1.0),
    "min_p": ("min_p", 0.0),
    "xtc": ("xtc_probability", 0.0),
}
_NO_PENALTIES = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
_COMMON = ("penalties", "top_k", "top_p", "min_p", "temperature")


@frozen
class ResolvedSampling:
    """SamplingParams after the model's defaults went in: what a sampler reads. top_k 0 is off.

    `samplers` are those that have an effect, in their order, and "mirostat" the last of them.
    Without any, what is asked for is at most penalties, top_k, top_p, min_p and temperature, in
    this order. `in_order` sees to that. Windows count tokens.
    """

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: tuple[tuple[int, float], ...] = ()
    samplers: tuple[str, ...] = ()
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_window: int = MAX_REPEAT_WINDOW
    breakers: SequenceBreakers | None = None
    penalty_window: int = _MAX_INT32
    mirostat: bool = False
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    min_keep: int = 0

    @property
    def has_penalties(self) -> bool:
        return self.penalty_window > 0 and (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def needs_history(self) -> bool:
        """Whether the tokens so far change the logits."""
        return self.has_penalties or "dry" in self.samplers

    @property
    def first_mu(self) -> float:
        """Mirostat's mu before the first token."""
        return 2.0 * self.mirostat_tau

    def in_order(self, order: Sequence[str]) -> ResolvedSampling:
        """With these samplers, of which those that have no effect are left out."""
        temperature = self.temperature if "temperature" in order else 1.0
        is_greedy = temperature == 0.0
        by_mirostat = self.mirostat and not is_greedy
        filtered = not (is_greedy or by_mirostat)
        is_dynamic = filtered and "temperature" in order and self.dynatemp_range > 0.0
        allowed = SAMPLERS if filtered else ("penalties", "dry", "temperature")
        on = {
            "penalties": self.has_penalties,
            "dry": self.dry_multiplier > 0.0 and self.dry_window > 0,
            "temperature": is_dynamic or temperature not in (0.0, 1.0),
            **{name: getattr(self, key) != off for name, (key, off) in _OFF.items()},
        }
        active = tuple(name for name in order if on[name] and name in allowed)
        neutral: dict[str, float] = {key: off for n, (key, off) in _OFF.items() if n not in order}
        if "penalties" not in active:
            neutral |= _NO_PENALTIES
        plain = active == tuple(name for name in _COMMON if name in active)
        if plain and not (is_dynamic or by_mirostat or self.min_keep > 1):
            active = ()
        return replace(
            self,
            samplers=(*active, "mirostat") if by_mirostat else active,
            temperature=temperature,
            dynatemp_range=self.dynatemp_range if is_dynamic else 0.0,
            **neutral,
        )


@frozen
class SequenceBreakers:
    """Token sequences that end a repetition, as es_breakers has them: native/include/edgeserve.h.

    `alone` is a bitmap of tokens, the lowest bit first, in whole words of 32; the others are int32.
    """

    alone: bytes
    heads: bytes
    ends: bytes
    tails: bytes

    @classmethod
    def of(cls, vocab_size: int, sequences: Iterable[Sequence[int]]) -> SequenceBreakers:
        """Of any sequences of one token or more."""
        bitmap = bytearray((vocab_size + 31) // 32 * 4)
        heads, ends, tails = array("i"), array("i"), array("i")
        for first, *rest in sorted(set(map(tuple, sequences)), key=lambda ids: (ids[0], -len(ids))):
            if rest:
                heads.append(first)
                tails.extend(rest)
                ends.append(len(tails))
            else:
                bitmap[first // 8] |= 1 << first % 8
        return cls(bytes(bitmap), heads.tobytes(), ends.tobytes(), tails.tobytes())

    @property
    def sequences(self) -> tuple[tuple[int, ...], ...]:
        """All of them, the single tokens first."""
        heads, ends, tails = (
            memoryview(part).cast("i").tolist() for part in (self.heads, self.ends, self.tails)
        )
        starts = [0, *ends][: len(heads)]
        alone = (
            (at * 8 + bit,)
            for at, byte in enumerate(self.alone)
            if byte
            for bit in range(8)
            if byte >> bit & 1
        )
        longer = (
            (head, *tails[start:end]) for head, start, end in zip(heads, starts, ends, strict=True)
        )
        return (*alone, *longer)
