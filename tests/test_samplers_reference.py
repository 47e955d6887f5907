"""Samplers beside llama.cpp's: the same tokens are left, with the same odds; for DRY, the same
tokens end a repetition."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeserve.loader.gguf import read_gguf
from edgeserve.runner.batch import ChooseToken
from edgeserve.runner.oracle_filters import Running, run_samplers, surprise
from edgeserve.runner.oracle_penalties import penalise_repeats
from edgeserve.sampling_fields import SAMPLERS
from edgeserve.text.sequence_breakers import sequence_breakers
from edgeserve.text.tokenizer import build_tokenizer
from edgeserve.types import ResolvedSampling, SamplingDefaults, SamplingParams

from .reference_samplers import ReferenceSamplers
from .reference_vocabulary import ReferenceVocabulary

OFF = SamplingDefaults(temperature=1.0, top_p=1.0, top_k=0, min_p=0.0)
VOCAB = 300


def resolved(**fields: object) -> ResolvedSampling:
    return SamplingParams(**fields).resolved(OFF)  # type: ignore[arg-type]


def random_logits(seed: int, spread: float, vocab_size: int = VOCAB) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    return (random.standard_normal(vocab_size) * spread).astype(np.float32)


def same(running: Running, ids: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
    order = np.lexsort((ids, -logits))
    assert running.ids.tolist() == ids[order].tolist()
    reference = logits[order] - logits.max()
    assert running.scaled.tolist() == pytest.approx(reference.tolist(), abs=1e-3, rel=1e-4)


def off(*values: object) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), st.sampled_from(values))


FILTERS = st.fixed_dictionaries(
    {
        "top_k": off(3, 40, 299),
        "top_p": off(0.3, 0.9),
        "min_p": off(0.02, 0.3),
        "typical_p": off(0.2, 0.9),
        "xtc_threshold": off(0.03, 0.2),
        "xtc_probability": off(1.0),
        "temperature": off(0.5, 1.7),
        "dynatemp_range": off(0.3, 2.0),
        "dynatemp_exponent": off(0.5, 2.0),
        "min_keep": off(1, 5),
        "repetition_penalty": off(1.3),
        "presence_penalty": st.sampled_from([0.0, 0.5]),
        "frequency_penalty": st.sampled_from([0.0, 0.3]),
        "repeat_last_n": st.sampled_from([5, 1000]),
        "dry_multiplier": off(0.8),
        "dry_base": off(1.2, 1.75),
        "dry_allowed_length": off(1, 3),
        "dry_penalty_last_n": st.sampled_from([10, 1000]),
        "samplers": st.permutations([name for name in SAMPLERS if name != "top_n_sigma"]),
    }
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    FILTERS,
    st.lists(st.integers(0, 4), max_size=30),
    st.integers(0, 10_000),
    st.sampled_from([1.0, 5.0]),
)
def test_filters_in_any_order_leave_what_the_reference_s_leave(
    llama_cpp: ModuleType,
    fields: dict[str, object],
    history: list[int],
    seed: int,
    spread: float,
) -> None:
    logits = random_logits(seed, spread)
    sampling = resolved(**fields)
    assume(sampling.samplers)
    question = ChooseToken(sampling, 0, 1, history=history)
    own = run_samplers(logits.astype(np.float64), question, sampling.samplers)
    with closing(ReferenceSamplers(llama_cpp, sampling)) as reference:
        reference.accept(history)
        ids, left, _ = reference.apply(logits)
    same(own, ids, left)


# The reference keeps what top-n-sigma drops in the running, at -infinity: alone it is the same.
@pytest.mark.parametrize("n_sigma", [0.3, 1.0, 2.5])
def test_top_n_sigma_is_the_reference_s(llama_cpp: ModuleType, n_sigma: float) -> None:
    sampling = resolved(top_n_sigma=n_sigma, temperature=0.7)
    assert sampling.samplers == ("top_n_sigma", "temperature")
    for seed in range(20):
        logits = random_logits(seed, 3.0)
        own = run_samplers(
            logits.astype(np.float64), ChooseToken(sampling, 0, 1), sampling.samplers
        )
        with closing(ReferenceSamplers(llama_cpp, sampling)) as reference:
            same(own, *reference.apply(logits)[:2])


@pytest.mark.parametrize(("tau", "eta"), [(2.0, 0.1), (5.0, 0.5), (0.5, 1.0)])
def test_mirostat_leaves_what_the_reference_leaves_step_after_step(
    llama_cpp: ModuleType, tau: float, eta: float
) -> None:
    sampling = resolved(mirostat=2, mirostat_tau=tau, mirostat_eta=eta, temperature=0.9)
    mu = sampling.first_mu
    sizes = set[int]()
    with closing(ReferenceSamplers(llama_cpp, sampling)) as reference:
        for step in range(30):
            logits = random_logits(step, 2.0)
            ids, left, chosen = reference.apply(logits)
            question = ChooseToken(sampling, 0, 1, mu=mu)
            own = run_samplers(logits.astype(np.float64), question, sampling.samplers)
            same(own, ids, left)
            mu -= eta * (surprise(own, own.ids.tolist().index(chosen)) - tau)
            sizes.add(len(left))
    assert len(sizes) > 3


@pytest.mark.parametrize(
    ("model", "breakers"),
    [
        ("smollm2_path", ("\n", ":", '"', "*")),
        ("smollm2_path", ("ab", "\n\n", "é!", "the end")),
        ("gemma3_path", ("*", "clé", "the\n")),
    ],
    ids=["defaults", "byte pairs", "sentence pieces"],
)
def test_repetitions_end_where_the_reference_s_end(
    llama_cpp: ModuleType, model: str, breakers: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(model)
    tokenizer = build_tokenizer(read_gguf(path).metadata)
    found = sequence_breakers(tokenizer, breakers)
    knobs = SamplingParams(dry_multiplier=0.1, dry_base=1.1, dry_allowed_length=1)
    sampling = knobs.resolved(OFF, found)
    text = (
        'a cab: one "two" the end* the\n\nend. clé! one "two" the end clé a cab the\nend one "two'
    )
    ids = tokenizer.encode(text * 2, add_special=False)
    logits = np.zeros(tokenizer.vocab_size, np.float32)
    penalised = set[int]()
    with (
        closing(ReferenceVocabulary(llama_cpp, path)) as vocabulary,
        closing(ReferenceSamplers(llama_cpp, sampling, vocabulary.handle, breakers)) as reference,
    ):
        for end in range(1, len(ids)):
            reference.accept(ids[end - 1 : end])
            if end % 3:
                continue
            ids_left, left, _ = reference.apply(logits)
            own = logits.astype(np.float64)
            penalise_repeats(own, ChooseToken(sampling, 0, 1, history=ids[:end]))
            assert np.abs(own[ids_left] - left).max() < 1e-5
            penalised |= set(np.flatnonzero(own).tolist())
    assert penalised
