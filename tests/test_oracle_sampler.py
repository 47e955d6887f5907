"""The sampler's definition, checked against plainer ones: sets by sorting, odds by counting."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeserve.runner.batch import ChooseToken, ScoreToken, TokenResult
from edgeserve.runner.oracle_sampler import sample_row
from edgeserve.types import ResolvedSampling

PLAIN = ResolvedSampling(
    temperature=1.0,
    top_p=1.0,
    top_k=0,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
)
GREEDY = replace(PLAIN, temperature=0.0)

# A few distinct values, so that ties are common; -inf is what constraints leave.
LOGITS = st.lists(
    st.one_of(st.integers(-6, 6).map(lambda n: n / 2), st.just(-math.inf)),
    min_size=1,
    max_size=24,
).filter(lambda values: max(values) > -math.inf)


def choose(
    logits: NDArray[np.floating] | list[float],
    sampling: ResolvedSampling = PLAIN,
    *,
    seed: int = 1,
    position: int = 0,
    **row: object,
) -> TokenResult:
    item = ChooseToken(sampling, seed, position, **row)  # type: ignore[arg-type]
    return sample_row(np.asarray(logits, np.float64), item)


def reachable(logits: list[float], sampling: ResolvedSampling, tries: int = 300) -> set[int]:
    return {choose(logits, sampling, seed=seed).token_id for seed in range(tries)}


def kept_by_definition(logits: list[float], top_k: int, top_p: float, min_p: float) -> set[int]:
    """top_k, then the smallest set of at least top_p, then min_p of the likeliest."""
    ids = [i for i in range(len(logits)) if logits[i] > -math.inf]
    ids.sort(key=lambda i: (-logits[i], i))
    ids = ids[:top_k] if top_k > 0 else ids
    total = math.fsum(math.exp(logits[i]) for i in ids)
    kept: list[int] = []
    for i in ids:
        if kept and math.fsum(math.exp(logits[j]) for j in kept) >= top_p * total:
            break
        kept.append(i)
    likeliest = math.exp(logits[ids[0]])
    return {i for i in kept if math.exp(logits[i]) >= min_p * likeliest}


# --- greedy ------------------------------------------------------------------------------------


@given(LOGITS, st.integers(0, 2**64 - 1))
def test_greedy_takes_the_lowest_id_among_the_largest(logits: list[float], seed: int) -> None:
    assert choose(logits, GREEDY, seed=seed).token_id == logits.index(max(logits))


def test_greedy_ignores_truncation() -> None:
    sampling = replace(GREEDY, top_k=1, top_p=0.1, min_p=1.0)
    assert choose([0.0, 2.0, 1.0], sampling).token_id == 1


# --- truncation --------------------------------------------------------------------------------


@given(
    LOGITS,
    st.integers(0, 6),
    st.sampled_from([0.0, 0.05, 0.31, 0.5, 0.77, 0.95, 1.0]),
    st.sampled_from([0.0, 0.03, 0.2, 0.55, 1.0]),
)
def test_only_what_the_definition_keeps_is_chosen(
    logits: list[float], top_k: int, top_p: float, min_p: float
) -> None:
    sampling = replace(PLAIN, top_k=top_k, top_p=top_p, min_p=min_p, temperature=3.0)
    kept = kept_by_definition(logits, top_k, top_p, min_p)
    assert reachable(logits, sampling, tries=25) <= kept


@pytest.mark.parametrize(
    ("knobs", "kept"),
    [
        ({"top_k": 1}, {2}),
        ({"top_k": 2}, {2, 0}),
        ({"top_k": 3}, {2, 0, 3}),  # 3 and 4 are equal: the lower id
        ({"top_k": 99}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.0}, {2}),
        ({"top_p": 0.4}, {2}),
        ({"top_p": 0.41}, {2, 0}),
        ({"top_p": 0.7}, {2, 0}),
        ({"top_p": 0.71}, {2, 0, 3}),
        ({"top_p": 1.0}, {0, 1, 2, 3, 4}),
        ({"min_p": 0.24}, {2, 0, 3, 4}),
        ({"min_p": 0.7}, {2, 0}),
        ({"min_p": 1.0}, {2}),
        ({"top_k": 2, "top_p": 0.6}, {2, 0}),  # of the two that are left, 2 has 4/7
        ({"top_k": 2, "top_p": 0.5}, {2}),
    ],
    ids=str,
)
def test_every_kept_token_is_reached(knobs: dict[str, float], kept: set[int]) -> None:
    # A hair above the share, so that top_p = 0.4 and 0.7 lie on this side of rounding.
    logits = np.log([0.3, 0.08, 0.4 + 1e-9, 0.11, 0.11]).tolist()
    assert reachable(logits, replace(PLAIN, temperature=2.0, **knobs)) == kept  # type: ignore[arg-type]


def test_truncation_comes_before_temperature() -> None:
    logits = np.log([0.6, 0.3, 0.1]).tolist()
    for temperature in (0.2, 1.0, 50.0):
        sampling = replace(PLAIN, top_p=0.8, temperature=temperature)
        assert reachable(logits, sampling, tries=100) <= {0, 1}


# --- temperature -------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-30, 1e-6])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    logits = [700.0, 705.0, -900.0, 704.0]
    assert reachable(logits, replace(PLAIN, temperature=temperature), tries=50) == {1}


def test_a_tiny_temperature_still_draws_among_equals() -> None:
    assert reachable([3.0, 3.0, 2.0], replace(PLAIN, temperature=1e-300)) == {0, 1}


def test_a_high_temperature_is_nearly_uniform() -> None:
    counts = _counts([0.0, 5.0, -5.0, 2.0], replace(PLAIN, temperature=100.0), 4000)
    assert counts.min() > 800


# --- odds --------------------------------------------------------------------------------------


def _counts(logits: list[float], sampling: ResolvedSampling, tries: int) -> NDArray[np.int64]:
    drawn = [choose(logits, sampling, seed=11, position=i).token_id for i in range(tries)]
    return np.bincount(drawn, minlength=len(logits))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_tokens_come_in_proportion(temperature: float) -> None:
    """Chi-square over 8 tokens and 8,000 draws; 29.9 is the 99.99 % point with 7 degrees."""
    logits = np.array([0.3, -1.0, 1.2, 0.0, 0.9, -0.4, 1.1, -2.0])
    shares = np.exp(logits / temperature)
    expected = 8000 * shares / shares.sum()
    counts = _counts(logits.tolist(), replace(PLAIN, temperature=temperature), 8000)
    assert float((np.square(counts - expected) / expected).sum()) < 29.9


def test_odds_among_the_kept_are_renormalised() -> None:
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    counts = _counts(logits.tolist(), replace(PLAIN, top_k=2), 8000)
    assert counts[2:].sum() == 0
    assert abs(counts[0] / 8000 - 0.625) < 4 * math.sqrt(0.625 * 0.375 / 8000)


def test_same_seed_and_position_same_token() -> None:
    logits = np.random.default_rng(0).standard_normal(500)
    first = choose(logits, seed=5, position=77)
    others = [choose(logits * 2, seed=5, position=i).token_id for i in range(20)]
    assert choose(logits, seed=5, position=77) == first
    assert len(set(others)) > 5


def test_asking_for_logprobs_history_or_bans_of_others_changes_no_token() -> None:
    logits = np.random.default_rng(0).standard_normal(500)
    for position in range(40):
        plain = choose(logits, position=position).token_id
        assert choose(logits, position=position, num_logprobs=20).token_id == plain
        assert choose(logits, position=position, history=[1, 2, 3]).token_id == plain
        unlucky = (plain + 1) % 500
        assert choose(logits, position=position, banned=[unlucky]).token_id == plain


# --- penalties, bias, bans ---------------------------------------------------------------------


def _argmax_after(sampling: ResolvedSampling, logits: list[float], **row: object) -> int:
    return choose(logits, replace(sampling, temperature=0.0), **row).token_id


def test_repetition_divides_positive_and_multiplies_negative_logits() -> None:
    penalty = replace(GREEDY, repetition_penalty=2.0)
    assert _argmax_after(penalty, [4.0, 2.1], history=[0, 0, 0]) == 1  # 4 / 2, once
    assert _argmax_after(penalty, [4.0, 1.9], history=[0]) == 0
    assert _argmax_after(penalty, [-1.0, -1.9], history=[0]) == 1  # -1 * 2
    assert _argmax_after(penalty, [-1.0, -2.1], history=[0]) == 0


def test_repetition_looks_at_the_prompt_too() -> None:
    penalty = replace(GREEDY, repetition_penalty=2.0)
    assert _argmax_after(penalty, [4.0, 3.0], history=[0], num_prompt_tokens=1) == 1


def test_presence_counts_once_and_frequency_every_time() -> None:
    said = {"history": [0, 0, 0]}
    assert _argmax_after(replace(GREEDY, presence_penalty=1.0), [2.0, 0.9], **said) == 0
    assert _argmax_after(replace(GREEDY, presence_penalty=1.0), [2.0, 1.1], **said) == 1
    assert _argmax_after(replace(GREEDY, frequency_penalty=1.0), [2.0, -0.9], **said) == 1
    assert _argmax_after(replace(GREEDY, frequency_penalty=1.0), [2.0, -1.1], **said) == 0


def test_presence_and_frequency_look_at_the_output_only() -> None:
    both = replace(GREEDY, presence_penalty=2.0, frequency_penalty=2.0)
    assert _argmax_after(both, [2.0, 1.9], history=[0, 0, 1], num_prompt_tokens=2) == 0


def test_negative_penalties_encourage() -> None:
    liked = replace(GREEDY, presence_penalty=-1.0)
    assert _argmax_after(liked, [1.0, 1.5], history=[0]) == 0


def test_bias_is_added_and_clamped() -> None:
    assert _argmax_after(replace(GREEDY, logit_bias=((1, 1.5),)), [1.0, 0.0]) == 1
    assert _argmax_after(replace(GREEDY, logit_bias=((1, 0.5),)), [1.0, 0.0]) == 0
    huge = replace(GREEDY, logit_bias=((0, math.inf), (1, 100.0)))
    assert _argmax_after(huge, [0.0, 0.5]) == 1


def test_bias_of_minus_100_bans() -> None:
    banned = replace(PLAIN, temperature=100.0, logit_bias=((0, -100.0), (2, -math.inf)))
    assert reachable([500.0, 0.0, 500.0, 1.0], banned) == {1, 3}


def test_banned_tokens_are_never_chosen() -> None:
    drawn = {choose([9.0, 0.0, 0.0], seed=s, banned=[0]).token_id for s in range(100)}
    assert drawn == {1, 2}


def test_everything_banned_leaves_the_model_s_own_distribution() -> None:
    result = choose([1.0, 3.0, 2.0], GREEDY, banned=[0, 1, 2])
    assert (result.token_id, result.finite) == (1, True)


# --- degenerate rows ---------------------------------------------------------------------------


def test_all_logits_equal_draws_everything() -> None:
    assert reachable([7.0] * 5, PLAIN) == set(range(5))
    assert choose([7.0] * 5, GREEDY, num_logprobs=1) == TokenResult(
        0, pytest.approx(-math.log(5)), 1, ((0, pytest.approx(-math.log(5))),)
    )


@pytest.mark.parametrize("sampling", [GREEDY, PLAIN, replace(PLAIN, top_p=0.5, min_p=0.1)])
def test_all_but_one_minus_infinity(sampling: ResolvedSampling) -> None:
    result = choose([-math.inf, -math.inf, -2.0, -math.inf], sampling, num_logprobs=3)
    assert (result.token_id, result.logprob, result.rank, result.finite) == (2, 0.0, 1, True)
    assert result.top[0] == (2, 0.0)
    assert not any(math.isnan(logprob) for _, logprob in result.top)


@pytest.mark.parametrize(
    "logits",
    [[0.0, math.nan, 1.0], [0.0, math.inf, 1.0], [-math.inf] * 3, [math.nan] * 3],
    ids=["nan", "inf", "all -inf", "all nan"],
)
@pytest.mark.parametrize("row", [ChooseToken(PLAIN, 1, 0), ScoreToken(0, 2)], ids=type)
def test_rows_that_mean_nothing_are_said_to(
    logits: list[float], row: ChooseToken | ScoreToken
) -> None:
    assert sample_row(np.array(logits), row).finite is False


# --- logprobs ----------------------------------------------------------------------------------


def _log_softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    total = math.fsum(math.exp(x - top) for x in logits)
    return [x - top - math.log(total) for x in logits]


@given(LOGITS, st.integers(0, 30), st.data())
def test_logprobs_are_log_softmax(logits: list[float], count: int, data: st.DataObject) -> None:
    token_id = data.draw(st.integers(0, len(logits) - 1))
    result = sample_row(np.array(logits), ScoreToken(token_id, count))
    expected = _log_softmax(logits)
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    assert result.logprob == pytest.approx(expected[token_id], abs=1e-12)
    assert result.rank == order.index(token_id) + 1
    assert [i for i, _ in result.top] == order[:count]
    assert [x for _, x in result.top] == pytest.approx([expected[i] for i in order[:count]])


def test_logprobs_are_those_of_the_unmodified_logits() -> None:
    sampling = replace(PLAIN, temperature=0.3, top_k=1, logit_bias=((0, 5.0),))
    result = choose([0.0, 1.0], sampling, num_logprobs=2)
    assert result.token_id == 0
    assert result.logprob == pytest.approx(_log_softmax([0.0, 1.0])[0])
    assert result.rank == 2


def test_float32_logits_are_taken_as_they_are() -> None:
    logits = np.random.default_rng(2).standard_normal(300).astype(np.float32)
    row = ChooseToken(PLAIN, 3, 4, num_logprobs=2)
    assert sample_row(logits, row) == sample_row(logits.astype(np.float64), row)
