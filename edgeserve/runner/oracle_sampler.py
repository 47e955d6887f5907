"""Sampling in numpy, one row at a time: what every other sampler is checked against.

Order: penalties, bias, mask and banned tokens on the logits; greedy at temperature 0; else top_k,
top_p, min_p on the modified distribution, then temperature, then Gumbel-max. Or the request's own
samplers in their order. Ties go to the lowest id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from edgeserve.runner.batch import ChooseToken, ScoreToken, TokenResult
from edgeserve.runner.noise import TOKEN_STREAM, gumbel
from edgeserve.runner.oracle_filters import Running, run_samplers, surprise
from edgeserve.runner.oracle_penalties import penalise, penalise_repeats
from edgeserve.types import ResolvedSampling

Floats = NDArray[np.float64]


def sample_rows(
    logits: Iterable[NDArray[np.floating]], rows: Sequence[ChooseToken | ScoreToken]
) -> list[TokenResult]:
    """One result a row; chained ones take mirostat's mu from the row before."""
    results: list[TokenResult] = []
    for values, row in zip(logits, rows, strict=True):
        if isinstance(row, ChooseToken) and row.chained:
            results.append(sample_row(values, replace(row, mu=results[-1].mu)))
        else:
            results.append(sample_row(values, row))
    return results


def sample_row(logits: NDArray[np.floating], row: ChooseToken | ScoreToken) -> TokenResult:
    """The token for one row of logits (vocab,), and how likely it was."""
    raw = logits.astype(np.float64)
    if isinstance(row, ScoreToken):
        usable = _usable(raw)
        return _report(raw, row.token_id, row.num_logprobs) if usable else _nothing(finite=False)
    if not _usable(raw):
        return _nothing(finite=False, mu=row.mu)
    modified, late = _modify(raw, row)
    if modified is None:
        return _nothing(allowed=False, mu=row.mu)
    token_id, mu = _choose(modified, row, late)
    if row.num_logprobs is None:
        return TokenResult(token_id, mu=mu)
    return replace(_report(raw, token_id, row.num_logprobs), mu=mu)


def _nothing(*, finite: bool = True, allowed: bool = True, mu: float = 0.0) -> TokenResult:
    return TokenResult(token_id=0, finite=finite, allowed=allowed, mu=mu)


def _usable(logits: Floats) -> bool:
    """No NaN, no +infinity, and something other than -infinity to choose."""
    return not np.isnan(logits).any() and bool(np.isfinite(logits.max()))


def _modify(raw: Floats, row: ChooseToken) -> tuple[Floats | None, Sequence[str]]:
    """The logits to choose from, None where the mask leaves none; and the samplers still to run."""
    logits = raw.copy()
    sampling = row.sampling
    leading = tuple(takewhile(("penalties", "dry").__contains__, sampling.samplers))
    late = sampling.samplers[len(leading) :]
    if not sampling.samplers and sampling.has_penalties:
        leading = ("penalties",)
    for name in leading:
        (penalise if name == "penalties" else penalise_repeats)(logits, row)
    for token_id, bias in sampling.logit_bias:
        logits[token_id] = -np.inf if bias <= -100.0 else logits[token_id] + min(bias, 100.0)
    logits = _masked(logits, row)
    logits[list(row.banned)] = -np.inf
    if np.isfinite(logits.max()):
        return logits, late
    # Everything banned: what the mask allows of the raw distribution, or without one all of it, is
    # the lesser lie than a token from nowhere.
    logits = _masked(raw, row)
    return (logits if np.isfinite(logits.max()) else None), late


def _masked(logits: Floats, row: ChooseToken) -> Floats:
    if row.mask is None:
        return logits
    bits = np.unpackbits(row.mask.astype("<u4").view(np.uint8), bitorder="little")
    return np.where(bits[: len(logits)] == 1, logits, -np.inf)


def _choose(logits: Floats, row: ChooseToken, late: Sequence[str]) -> tuple[int, float]:
    """A token, and mirostat's mu after it."""
    sampling = row.sampling
    if sampling.temperature == 0.0:
        return int(np.argmax(logits)), row.mu
    if sampling.samplers:
        running = run_samplers(logits, row, late)
    else:
        kept = _candidates(logits, sampling)
        running = Running(kept, logits[kept], sampling.temperature)
    noise = gumbel(row.seed, row.position, TOKEN_STREAM, running.ids)
    scores = running.scaled + noise
    chosen = int(np.lexsort((running.ids, -scores))[0])
    mu = row.mu
    if "mirostat" in late:
        mu -= sampling.mirostat_eta * (surprise(running, chosen) - sampling.mirostat_tau)
    return int(running.ids[chosen]), mu


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
