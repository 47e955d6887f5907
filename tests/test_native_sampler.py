"""The sampler in C beside the one in numpy: the same tokens, ranks and likeliest, near logprobs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.binding.executor import kernel_sets
from edgeserve.binding.samples import sample_logits
from edgeserve.errors import LibraryError
from edgeserve.runner.batch import ChooseToken, ScoreToken
from edgeserve.runner.native_sampling import sample_row
from edgeserve.runner.oracle_sampler import sample_row as oracle_sample
from edgeserve.types import ResolvedSampling

SETS = [name for name, runs in kernel_sets() if runs]

sampling = st.builds(
    ResolvedSampling,
    temperature=st.sampled_from([0.0, 0.3, 0.8, 1.0, 3.0]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.0]),
    top_k=st.sampled_from([0, 1, 5, 40]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3, 0.7]),
    presence_penalty=st.sampled_from([0.0, 0.0, 0.6, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.4, -0.2]),
    logit_bias=st.sampled_from([(), ((3, 5.0),), ((0, -100.0), (7, 100.0)), ((1, -250.0),)]),
)
questions = st.builds(
    ChooseToken,
    sampling=sampling,
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(1, 100_000),
    history=st.lists(st.integers(0, 29), max_size=12),
    num_prompt_tokens=st.just(0),
    banned=st.sampled_from([(), (2,), (4, 5)]),
    num_logprobs=st.sampled_from([None, 0, 5, 20]),
)


def random_logits(seed: int, vocab_size: int, spread: float) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(vocab_size) * spread).astype(np.float32)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(questions, st.integers(0, 10_000), st.sampled_from([30, 257, 4000]), st.sampled_from([1, 6]))
def test_chooses_what_the_oracle_chooses(
    question: ChooseToken, seed: int, vocab_size: int, spread: float
) -> None:
    logits = random_logits(seed, vocab_size, spread)
    expected = oracle_sample(logits, question)
    results = [sample_logits(logits[None], [sample_row(question)], kernels=k)[0] for k in SETS]
    assert len(set(results)) == 1
    got = results[0]
    assert got.token == expected.token_id
    assert got.rank == expected.rank
    assert [i for i, _ in got.top] == [i for i, _ in expected.top]
    assert got.logprob == pytest.approx(expected.logprob, abs=2e-6)
    for (_, a), (_, b) in zip(got.top, expected.top, strict=True):
        assert a == pytest.approx(b, abs=2e-6)


@pytest.mark.parametrize("kernels", SETS)
def test_scores_known_tokens(kernels: str) -> None:
    logits = random_logits(1, 500, 4.0)
    rows = [ScoreToken(token_id, 3) for token_id in range(0, 500, 50)]
    got = sample_logits(
        np.repeat(logits[None], 10, 0), [sample_row(r) for r in rows], kernels=kernels
    )
    for row, found in zip(rows, got, strict=True):
        expected = oracle_sample(logits, row)
        assert (found.token, found.rank) == (expected.token_id, expected.rank)
        assert found.logprob == pytest.approx(expected.logprob, abs=2e-6)


GREEDY = ResolvedSampling(0.0, 1.0, 0, 0.0, 1.0, 0.0, 0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 17, 499])
def test_a_row_that_is_not_finite_says_so(bad: float, at: int) -> None:
    logits = np.zeros((1, 500), np.float32)
    logits[0, at] = bad
    row = sample_row(ChooseToken(GREEDY, 0, 1))
    assert not sample_logits(logits, [row])[0].finite
    logits[:] = -np.inf
    assert not sample_logits(logits, [row])[0].finite
    logits[0, at] = 1.0
    found = sample_logits(logits, [row])[0]
    assert (found.finite, found.token) == (True, at)


def test_ties_go_to_the_lowest_id() -> None:
    logits = np.zeros((1, 100), np.float32)
    logits[0, [40, 60, 99]] = 2.0
    found = sample_logits(logits, [sample_row(ChooseToken(GREEDY, 0, 1, num_logprobs=4))])[0]
    assert found.token == 40
    assert [token_id for token_id, _ in found.top] == [40, 60, 99, 0]


def test_everything_banned_falls_back_to_the_models_own_choice() -> None:
    logits = random_logits(3, 50, 1.0)
    row = sample_row(ChooseToken(GREEDY, 0, 1, banned=range(50)))
    assert sample_logits(logits[None], [row])[0].token == int(np.argmax(logits))


@pytest.mark.parametrize(
    "question",
    [
        ChooseToken(GREEDY, 0, 1, banned=(50,)),
        ChooseToken(GREEDY, 0, 1, banned=(-1,)),
        ScoreToken(50, 0),
        ScoreToken(0, 21),
    ],
)
def test_ids_outside_the_vocabulary_are_refused(question: ChooseToken | ScoreToken) -> None:
    with pytest.raises(LibraryError):
        sample_logits(random_logits(3, 50, 1.0)[None], [sample_row(question)])
