"""What C is asked of a row of logits, and its answer, in the runner's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeserve.binding.samples import Sampled, SampleRow
from edgeserve.runner.batch import ChooseToken, ScoreToken, TokenResult
from edgeserve.types import ResolvedSampling

_Fields = Mapping[str, int | float]

_MAX_INT32 = 2**31 - 1
_MOST_UNUSED = 256
"""Samplings of requests that have ended, before all are forgotten."""
_SCORING: _Fields = {"mode": 1}

# es_sampler
_NUMBERS = {
    "penalties": 0,
    "dry": 1,
    "top_n_sigma": 2,
    "top_k": 3,
    "typical_p": 4,
    "top_p": 5,
    "min_p": 6,
    "xtc": 7,
    "temperature": 8,
    "mirostat": 9,
}


class SampleRows:
    """Makes C's rows of the runner's questions. What a sampling says is put together once."""

    def __init__(self) -> None:
        # By identity: to compare all that a sampling says would take as long as to write it.
        self._fields: dict[int, tuple[ResolvedSampling, _Fields]] = {}

    def of(self, questions: Sequence[ChooseToken | ScoreToken]) -> list[SampleRow]:
        if len(self._fields) > 2 * len(questions) + _MOST_UNUSED:
            self._fields.clear()
        return [
            _chosen(question, self._fields_of(question.sampling))
            if isinstance(question, ChooseToken)
            else _scored(question)
            for question in questions
        ]

    def _fields_of(self, sampling: ResolvedSampling) -> _Fields:
        known = self._fields.get(id(sampling))
        if known is None:
            known = self._fields[id(sampling)] = sampling, _sampling_fields(sampling)
        return known[1]


def sample_row(question: ChooseToken | ScoreToken) -> SampleRow:
    """What C is asked of one row of logits."""
    return SampleRows().of([question])[0]


def _scored(question: ScoreToken) -> SampleRow:
    return SampleRow(_SCORING, token=question.token_id, num_top=question.num_logprobs)


def _chosen(question: ChooseToken, fields: _Fields) -> SampleRow:
    sampling, history, num_prompt = question.sampling, question.history, 0
    if history:
        # Copied to C for every token, and so no longer than it is looked at.
        skipped = max(0, len(history) - _window(sampling))
        num_prompt = max(0, question.num_prompt_tokens - skipped)
        history = history[skipped:] if skipped else history
    return SampleRow(
        fields,
        0,
        question.seed & 0xFFFFFFFFFFFFFFFF,
        question.position,
        -1 if question.num_logprobs is None else question.num_logprobs,
        question.mu,
        question.chained,
        num_prompt,
        history,
        sampling.logit_bias,
        question.banned,
        [_NUMBERS[name] for name in sampling.samplers] if sampling.samplers else (),
        question.mask,
        sampling.breakers if sampling.samplers else None,
    )


def _sampling_fields(sampling: ResolvedSampling) -> _Fields:
    """Those that are the same for all tokens."""
    fields: dict[str, int | float] = {
        "mode": 0,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": min(sampling.top_k, _MAX_INT32),
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "penalty_last_n": sampling.penalty_window,
    }
    if not sampling.samplers:
        return fields
    return fields | {
        "dynatemp_range": sampling.dynatemp_range,
        "dynatemp_exponent": sampling.dynatemp_exponent,
        "typical_p": sampling.typical_p,
        "top_n_sigma": sampling.top_n_sigma,
        "xtc_probability": sampling.xtc_probability,
        "xtc_threshold": sampling.xtc_threshold,
        "dry_multiplier": sampling.dry_multiplier,
        "dry_base": sampling.dry_base,
        "dry_allowed_length": sampling.dry_allowed_length,
        "dry_last_n": sampling.dry_window,
        "mirostat_tau": sampling.mirostat_tau,
        "mirostat_eta": sampling.mirostat_eta,
        "min_keep": sampling.min_keep,
    }


def token_result(found: Sampled) -> TokenResult:
    return TokenResult(
        found.token,
        found.logprob,
        found.rank,
        found.top,
        found.finite,
        found.allowed,
        found.mu,
    )


def _window(sampling: ResolvedSampling) -> int:
    """How many of the last tokens somebody looks at."""
    penalties = sampling.penalty_window if sampling.has_penalties else 0
    return max(penalties, sampling.dry_window if "dry" in sampling.samplers else 0)
