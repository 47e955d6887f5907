"""Penalties for what has been said already, in numpy: plain, where the sampler in C is quick."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeserve.runner.batch import ChooseToken

Floats = NDArray[np.float64]

LARGEST = 1e30
"""A penalty, and a logit that was penalised late, are finite and at most this."""


def penalise(logits: Floats, row: ChooseToken) -> None:
    """Repetition over prompt and output (CTRL, arXiv 1909.05858); presence and frequency over the
    output only, as OpenAI's API has them."""
    sampling = row.sampling
    first = max(0, len(row.history) - sampling.penalty_window)
    seen = np.unique(np.asarray(row.history[first:], np.int64))
    values = logits[seen]
    penalty = sampling.repetition_penalty
    logits[seen] = np.where(values > 0, values / penalty, values * penalty)
    output = np.asarray(row.history[max(first, row.num_prompt_tokens) :], np.int64)
    said, counts = np.unique(output, return_counts=True)
    logits[said] -= sampling.presence_penalty + sampling.frequency_penalty * counts


def penalise_repeats(logits: Floats, row: ChooseToken) -> None:
    """DRY, by trying every earlier place at which the last tokens may have stood."""
    sampling = row.sampling
    tokens = list(row.history[max(0, len(row.history) - sampling.dry_window) :])
    sequences = () if sampling.breakers is None else sampling.breakers.sequences
    limit = _unbroken(tokens, sequences)
    longest: dict[int, int] = {}
    for end in range(1, len(tokens)):
        length = min(limit, _common_end(tokens[:end], tokens))
        if length >= sampling.dry_allowed_length:
            longest[tokens[end]] = max(length, longest.get(tokens[end], 0))
    if len(tokens) <= sampling.dry_allowed_length or limit < sampling.dry_allowed_length:
        return
    for token_id, length in longest.items():
        if (token_id,) not in sequences:
            growth = np.exp((length - sampling.dry_allowed_length) * np.log(sampling.dry_base))
            logits[token_id] -= min(sampling.dry_multiplier * growth, LARGEST)


def _common_end(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    while length < len(left) and left[-1 - length] == right[-1 - length]:
        length += 1
    return length


def _unbroken(tokens: Sequence[int], sequences: Sequence[tuple[int, ...]]) -> int:
    """Tokens behind the breaker that begins last; of several there, behind the longest."""
    for back in range(len(tokens)):
        start = len(tokens) - 1 - back
        found = [len(s) for s in sequences if tuple(tokens[start : start + len(s)]) == s]
        if found:
            return back - (max(found) - 1)
    return len(tokens)
