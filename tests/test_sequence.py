"""Sequence: what is left to compute, and why it ends."""

from __future__ import annotations

import pytest

from edgeserve.cache.block_tables import BlockTables
from edgeserve.engine.sequence import Sequence
from edgeserve.types import SamplingDefaults, SamplingParams


def sequence(num_prompt: int = 3, *, index: int = 0, **fields: object) -> Sequence:
    params = SamplingParams(**fields)  # type: ignore[arg-type]
    return Sequence(
        request_id="r",
        index=index,
        token_ids=list(range(num_prompt)),
        params=params,
        sampling=params.resolved(SamplingDefaults()),
        seed=0,
        max_tokens=5,
        stop_ids=frozenset({9, 7}),
        block_tables=BlockTables.empty(1),
    )


def test_counts_follow_the_tokens() -> None:
    seq = sequence(3)
    assert (seq.num_prompt_tokens, seq.num_uncomputed_tokens, seq.num_output_tokens) == (3, 3, 0)
    seq.num_computed_tokens = 3
    seq.token_ids.append(50)
    assert (seq.num_prompt_tokens, seq.num_uncomputed_tokens, seq.num_output_tokens) == (3, 1, 1)
    assert seq.output_token_ids == [50]


def test_stop_token_ends_it() -> None:
    seq = sequence()
    seq.token_ids.append(9)
    assert seq.finish_after(9) == "stop"


def test_last_token_that_fits_ends_it() -> None:
    seq = sequence()
    for n in range(1, 6):
        seq.token_ids.append(50)
        assert seq.finish_after(50) == ("length" if n == 5 else None)


def test_stop_token_that_is_also_the_last_ends_it_by_stop() -> None:
    seq = sequence()
    seq.token_ids += [50, 50, 50, 50, 7]
    assert seq.finish_after(7) == "stop"


def test_before_min_tokens_stop_tokens_are_banned_and_do_not_stop() -> None:
    seq = sequence(min_tokens=2)
    assert seq.banned_ids() == [7, 9]
    seq.token_ids.append(9)  # as when every token was banned
    assert seq.finish_after(9) is None
    assert seq.banned_ids() == [7, 9]
    seq.token_ids.append(50)
    assert seq.banned_ids() == []
    seq.token_ids.append(9)
    assert seq.finish_after(9) == "stop"


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({}, False),
        ({"repetition_penalty": 1.1}, True),
        ({"presence_penalty": 0.1}, True),
        ({"frequency_penalty": -0.1}, True),
    ],
)
def test_history_is_given_to_samplers_that_need_it(fields: dict[str, float], needed: bool) -> None:
    seq = sequence(**fields)
    assert list(seq.history()) == ([0, 1, 2] if needed else [])


def test_prompt_scores_are_wanted_once_and_by_the_first_choice() -> None:
    seq = sequence(3, prompt_logprobs=0)
    assert seq.wants_prompt_scores
    seq.num_scored_tokens = 2
    assert not seq.wants_prompt_scores
    assert not sequence(3, prompt_logprobs=0, index=1).wants_prompt_scores
    assert not sequence(1, prompt_logprobs=0).wants_prompt_scores
    assert not sequence(3).wants_prompt_scores
