"""Sampling in numpy, one row at a time: what every other sampler is checked against.

Order: banned tokens, bias and penalties on the logits; greedy at temperature 0; else top_k, top_p,
min_p on the modified distribution, then temperature, then Gumbel-max. Ties go to the lowest id.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeserve.runner.batch import ChooseToken, ScoreToken, TokenResult
from edgeserve.runner.noise import TOKEN_STREAM, gumbel
from edgeserve.types import ResolvedSampling

Floats = NDArray[np.float64]


def sample_row(logits: NDArray[np.floating], row: ChooseToken | ScoreToken) -> TokenResult:
    """The token for one row of logits (vocab,), and how likely it was."""
    raw = logits.astype(np.float64)
    if not _usable(raw):
        return TokenResult(token_id=0, finite=False)
    if isinstance(row, ScoreToken):
        return _report(raw, row.token_id, row.num_logprobs)
    token_id = _choose(_modify(raw, row), row)
    if row.num_logprobs is None:
        return TokenResult(token_id)
    return _report(raw, token_id, row.num_logprobs)


def _usable(logits: Floats) -> bool:
    """No NaN, no +infinity, and something other than -infinity to choose."""
    return not np.isnan(logits).any() and np.isfinite(logits.max())


def _modify(raw: Floats, row: ChooseToken) -> Floats:
    logits = raw.copy()
    sampling = row.sampling
    if sampling.needs_history:
        _penalise(logits, row)
    for token_id, bias in sampling.logit_bias:
        logits[token_id] = -np.inf if bias <= -100.0 else logits[token_id] + min(bias, 100.0)
    logits[list(row.banned)] = -np.inf
    # Everything banned: the raw distribution is the lesser lie than a token from nowhere.
    return logits if np.isfinite(logits.max()) else raw


def _penalise(logits: Floats, row: ChooseToken) -> None:
    """Repetition over prompt and output (CTRL, arXiv 1909.05858); presence and frequency over the
    output only, as OpenAI's API has them."""
    sampling = row.sampling
    seen = np.unique(np.asarray(row.history, np.int64))
    values = logits[seen]
    penalty = sampling.repetition_penalty
    logits[seen] = np.where(values > 0, values / penalty, values * penalty)
    output = np.asarray(row.history[row.num_prompt_tokens :], np.int64)
    said, counts = np.unique(output, return_counts=True)
    logits[said] -= sampling.presence_penalty + sampling.frequency_penalty * counts


def _choose(logits: Floats, row: ChooseToken) -> int:
    sampling = row.sampling
    if sampling.temperature == 0.0:
        return int(np.argmax(logits))
    kept = _candidates(logits, sampling)
    noise = gumbel(row.seed, row.position, TOKEN_STREAM, kept)
    # Below their maximum, logits over a tiny temperature fall to -inf instead of rising to +inf.
    with np.errstate(over="ignore"):
        scores = (logits[kept] - logits[kept].max()) / sampling.temperature + noise
    best = scores.max()
    return int(kept[scores == best].min())


def _candidates(logits: Floats, sampling: ResolvedSampling) -> NDArray[np.int64]:
    """Token ids that top_k, top_p and min_p leave, likeliest first."""
    finite = np.flatnonzero(logits > -np.inf)
    order = finite[np.lexsort((finite, -logits[finite]))]
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    weights = np.exp(logits[order] - logits[order[0]])
    if sampling.top_p < 1.0:
        before = np.cumsum(weights) - weights
        keep = max(1, int(np.count_nonzero(before < sampling.top_p * weights.sum())))
        order, weights = order[:keep], weights[:keep]
    if sampling.min_p > 0.0:
        order = order[weights >= sampling.min_p]
    return order


def _report(raw: Floats, token_id: int, num_logprobs: int) -> TokenResult:
    top = raw.max()
    log_sum = top + np.log(np.exp(raw - top).sum())
    value = raw[token_id]
    ahead = np.count_nonzero(raw > value) + np.count_nonzero(raw[:token_id] == value)
    likeliest = np.lexsort((np.arange(len(raw)), -raw))[:num_logprobs]
    return TokenResult(
        token_id=token_id,
        logprob=float(value - log_sum),
        rank=int(ahead) + 1,
        top=tuple((int(i), float(raw[i] - log_sum)) for i in likeliest),
    )
