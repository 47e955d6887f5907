"""What C is asked of a row of logits, and its answer, in the runner's own words."""

from __future__ import annotations

from edgeserve.binding.samples import Sampled, SampleRow
from edgeserve.runner.batch import ChooseToken, ScoreToken, TokenResult
from edgeserve.types import ResolvedSampling

_MAX_INT32 = 2**31 - 1

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


def sample_row(row: ChooseToken | ScoreToken) -> SampleRow:
    """What C is asked of one row of logits."""
    if isinstance(row, ScoreToken):
        return SampleRow({"mode": 1, "token": row.token_id, "n_top": row.num_logprobs})
    sampling, history, num_prompt = row.sampling, row.history, 0
    if history:
        # Copied to C for every token, and so no longer than it is looked at.
        skipped = max(0, len(history) - _window(sampling))
        num_prompt = max(0, row.num_prompt_tokens - skipped)
        history = history[skipped:] if skipped else history
    fields: dict[str, int | float] = {
        "mode": 0,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": min(sampling.top_k, _MAX_INT32),
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": row.seed & 0xFFFFFFFFFFFFFFFF,
        "position": row.position,
        "n_prompt": num_prompt,
        "n_top": -1 if row.num_logprobs is None else row.num_logprobs,
    }
    if history:
        fields["penalty_last_n"] = sampling.penalty_window
    if not sampling.samplers:
        return SampleRow(fields, history, sampling.logit_bias, row.banned, (), row.mask)
    fields |= {
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
        "mu": row.mu,
        "chained": int(row.chained),
        "mirostat_tau": sampling.mirostat_tau,
        "mirostat_eta": sampling.mirostat_eta,
        "min_keep": sampling.min_keep,
    }
    numbers = [_NUMBERS[name] for name in sampling.samplers]
    bias, banned = sampling.logit_bias, row.banned
    return SampleRow(fields, history, bias, banned, numbers, row.mask, sampling.breakers)


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
