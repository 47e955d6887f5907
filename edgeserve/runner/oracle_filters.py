"""Samplers in the order of a request, in numpy. `types.SamplingParams` says what each does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeserve.frozen import frozen
from edgeserve.runner.batch import ChooseToken
from edgeserve.runner.noise import XTC_STREAM, uniform
from edgeserve.runner.oracle_penalties import LARGEST, penalise, penalise_repeats
from edgeserve.types import ResolvedSampling

Floats = NDArray[np.float64]


@frozen
class Running:
    """The tokens that are left, the likeliest first, and what their logits are to be divided by."""

    ids: NDArray[np.int64]
    logits: Floats
    temperature: float = 1.0

    @property
    def scaled(self) -> Floats:
        """0 for the likeliest. Over a tiny temperature they fall to -infinity, and none rises."""
        with np.errstate(over="ignore"):
            return (self.logits - self.logits.max()) / self.temperature

    @property
    def shares(self) -> Floats:
        weights = np.exp(self.scaled)
        return weights / weights.sum()

    @property
    def entropy(self) -> float:
        shares = self.shares[self.shares > 0.0]
        return float(-(shares * np.log(shares)).sum())

    def only(self, kept: NDArray[np.bool_]) -> Running:
        return Running(self.ids[kept], self.logits[kept], self.temperature)

    def first(self, count: int) -> Running:
        return self.only(np.arange(len(self.ids)) < count)


def run_samplers(logits: Floats, row: ChooseToken, samplers: Sequence[str]) -> Running:
    """What these leave of all tokens that are not banned."""
    ids = np.flatnonzero(logits > -np.inf)
    running = _sorted(ids, logits[ids], 1.0)
    for name in samplers:
        running = _run(running, row, name)
    return running


def surprise(running: Running, index: int) -> float:
    """Of one of the tokens, in bits."""
    return float((np.log(np.exp(running.scaled).sum()) - running.scaled[index]) / np.log(2.0))


def _sorted(ids: NDArray[np.int64], logits: Floats, temperature: float) -> Running:
    order = np.lexsort((ids, -logits))
    return Running(ids[order], logits[order], temperature)


def _run(running: Running, row: ChooseToken, name: str) -> Running:
    sampling = row.sampling
    match name:
        case "top_n_sigma":
            least = running.logits.max() - sampling.top_n_sigma * running.logits.std()
            return running.only(running.logits >= least)
        case "top_k":
            return running.first(sampling.top_k)
        case "typical_p":
            return _typical(running, sampling)
        case "top_p":
            before = np.cumsum(running.shares) - running.shares
            return running.first(_at_least(before < sampling.top_p, max(1, sampling.min_keep)))
        case "min_p":
            kept = running.scaled >= np.log(sampling.min_p)
            return running.first(_at_least(kept, sampling.min_keep))
        case "xtc":
            return _without_top_choices(running, row)
        case "temperature":
            return _heated(running, sampling)
        case "mirostat":
            bits = [surprise(running, index) for index in range(len(running.ids))]
            return running.first(_at_least(np.array(bits) <= row.mu, 1))
        case _:
            return _penalised(running, row, name)


def _at_least(kept: NDArray[np.bool_], count: int) -> int:
    return max(int(np.count_nonzero(kept)), count)


def _typical(running: Running, sampling: ResolvedSampling) -> Running:
    """By the distance of logits from the one whose surprise is the entropy; float32, as in C."""
    mean = float((running.shares * running.logits).sum())
    distances = np.abs(running.logits - mean).astype(np.float32)
    order = np.lexsort((running.ids, distances))
    before = np.cumsum(running.shares[order]) - running.shares[order]
    count = _at_least(before <= sampling.typical_p, sampling.min_keep)
    kept = order[:count]
    return _sorted(running.ids[kept], running.logits[kept], running.temperature)


def _without_top_choices(running: Running, row: ChooseToken) -> Running:
    sampling = row.sampling
    coin = uniform(row.seed, row.position, XTC_STREAM, [0])[0]
    num_top = int(np.count_nonzero(running.shares >= sampling.xtc_threshold))
    too_few = len(running.ids) - (num_top - 1) < sampling.min_keep
    if coin > sampling.xtc_probability or num_top < 2 or too_few:
        return running
    return running.only(np.arange(len(running.ids)) >= num_top - 1)


def _heated(running: Running, sampling: ResolvedSampling) -> Running:
    temperature = sampling.temperature
    if sampling.dynatemp_range > 0.0:
        if len(running.ids) == 1:
            return running
        low = max(0.0, temperature - sampling.dynatemp_range)
        high = temperature + sampling.dynatemp_range
        share = max(0.0, running.entropy / np.log(len(running.ids)))
        temperature = low + (high - low) * share**sampling.dynatemp_exponent
    temperature *= running.temperature
    if temperature == 0.0:
        return replace(running.first(1), temperature=1.0)
    return replace(running, temperature=temperature)


def _penalised(running: Running, row: ChooseToken, name: str) -> Running:
    """Penalties, or DRY, on logits that the temperature so far has divided."""
    logits = np.zeros(max(int(running.ids.max()), *row.history, 0) + 1)
    with np.errstate(over="ignore"):
        divided = running.logits / running.temperature
    logits[running.ids] = np.clip(divided, -LARGEST, LARGEST)
    (penalise if name == "penalties" else penalise_repeats)(logits, row)
    return _sorted(running.ids, np.clip(logits[running.ids], -LARGEST, LARGEST), 1.0)
