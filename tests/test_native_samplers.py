"""A request's own samplers in C beside those in numpy: the same tokens, and the same mu."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.binding.executor import kernel_sets
from edgeserve.binding.samples import sample_logits
from edgeserve.errors import LibraryError
from edgeserve.runner.batch import ChooseToken, ScoreToken, TokenResult
from edgeserve.runner.native_sampling import sample_row, token_result
from edgeserve.runner.oracle_sampler import sample_row as oracle_sample
from edgeserve.runner.oracle_sampler import sample_rows as oracle_samples
from edgeserve.sampling_fields import SAMPLERS
from edgeserve.types import ResolvedSampling, SamplingDefaults, SamplingParams, SequenceBreakers

SETS = [name for name, runs in kernel_sets() if runs]
OFF = SamplingDefaults(temperature=1.0, top_p=1.0, top_k=0, min_p=0.0)
VOCAB = 60
BREAKERS = SequenceBreakers.of(VOCAB, [(7,), (50,), (3, 4), (3, 4, 5), (9, 9), (59,)])


def resolved(breakers: SequenceBreakers | None = None, **fields: object) -> ResolvedSampling:
    return SamplingParams(**fields).resolved(OFF, breakers)  # type: ignore[arg-type]


def rarely(*values: object) -> st.SearchStrategy[object]:
    """Half of the time None: left out."""
    return st.one_of(st.none(), st.sampled_from(values))


fields = st.fixed_dictionaries(
    {
        "temperature": rarely(0.0, 1e-300, 0.3, 0.8, 3.0),
        "top_p": rarely(0.95, 0.5, 0.0),
        "top_k": rarely(1, 5, 40),
        "min_p": rarely(0.05, 0.5, 1.0),
        "repetition_penalty": rarely(1.3, 0.7),
        "presence_penalty": st.sampled_from([0.0, 0.0, 0.6]),
        "frequency_penalty": st.sampled_from([0.0, 0.0, 0.4, -0.2]),
        "repeat_last_n": rarely(0, 1, 6, -1),
        "dynatemp_range": rarely(0.2, 1.0, 5.0),
        "dynatemp_exponent": rarely(0.0, 0.5, 2.0),
        "typical_p": rarely(0.95, 0.5, 0.1, 0.0),
        "top_n_sigma": rarely(0.5, 1.0, 3.0, -1),
        "xtc_probability": rarely(0.5, 1.0),
        "xtc_threshold": rarely(0.0, 0.05, 0.2),
        "dry_multiplier": rarely(0.8, 5.0),
        "dry_base": rarely(1.0, 3.0, 100.0),
        "dry_allowed_length": rarely(0, 1, 3),
        "dry_penalty_last_n": rarely(-1, 0, 8, 30),
        "mirostat": rarely(0, 2),
        "mirostat_tau": rarely(0.0, 2.0, 8.0),
        "mirostat_eta": rarely(0.0, 0.5),
        "min_keep": rarely(0, 1, 3, 1000),
        "logit_bias": rarely({3: 5.0}, {0: -100.0, 7: 100.0}),
        "samplers": st.one_of(
            st.none(),
            st.lists(st.sampled_from(SAMPLERS), unique=True, max_size=9).map(tuple),
            st.permutations(SAMPLERS),
        ),
    }
)


@st.composite
def masks(draw: st.DrawFn) -> np.ndarray | None:
    chosen = draw(st.sampled_from(["none", "none", "sparse", "dense", "one", "empty"]))
    if chosen == "none":
        return None
    share = {"sparse": 0.1, "dense": 0.9, "one": 0.0, "empty": 0.0}[chosen]
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    allowed = random.random(VOCAB) < share
    allowed[random.integers(VOCAB)] |= chosen == "one"
    return bitmap(allowed)


def bitmap(allowed: np.ndarray) -> np.ndarray:
    bits = np.zeros((len(allowed) + 31) // 32 * 32, bool)
    bits[: len(allowed)] = allowed
    return np.packbits(bits, bitorder="little").view("<u4")


@st.composite
def questions(draw: st.DrawFn) -> ChooseToken:
    sampling = resolved(draw(st.sampled_from([None, BREAKERS])), **draw(fields))
    # Few different tokens, so that repetitions are long.
    tokens = st.sampled_from([1, 2, 3, 4, 5, 7, 9, 58])
    history = draw(st.lists(tokens, max_size=12)) * draw(st.integers(1, 4))
    return ChooseToken(
        sampling=sampling,
        seed=draw(st.integers(0, 2**64 - 1)),
        position=draw(st.integers(1, 100_000)),
        history=history,
        num_prompt_tokens=draw(st.integers(0, len(history))),
        banned=draw(st.sampled_from([(), (2,), (4, 5), range(VOCAB)])),
        num_logprobs=draw(st.sampled_from([None, 0, 3])),
        mask=draw(masks()),
        mu=draw(st.sampled_from([-1.0, 0.5, 2.0, 10.0])),
    )


def random_logits(seed: int, spread: float, num_rows: int = 1) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((num_rows, VOCAB)) * spread
    return values.astype(np.float32)


def same(got: TokenResult, expected: TokenResult) -> None:
    assert (got.token_id, got.allowed, got.finite) == (
        expected.token_id,
        expected.allowed,
        expected.finite,
    )
    assert got.rank == expected.rank


@settings(max_examples=300, deadline=None, derandomize=True)
@given(questions(), st.integers(0, 10_000), st.sampled_from([1, 6]))
def test_chooses_what_the_oracle_chooses(question: ChooseToken, seed: int, spread: float) -> None:
    logits = random_logits(seed, spread)
    expected = oracle_sample(logits[0], question)
    results = [sample_logits(logits, [sample_row(question)], kernels=k)[0] for k in SETS]
    assert len(set(results)) == 1
    same(token_result(results[0]), expected)
    if "mirostat" in question.sampling.samplers:
        assert results[0].mu == pytest.approx(expected.mu, rel=1e-5, abs=1e-5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    questions(), st.lists(st.booleans(), min_size=1, max_size=5), st.integers(0, 99), st.booleans()
)
def test_chained_rows_take_mu_from_the_row_before(
    question: ChooseToken, chained: list[bool], seed: int, is_greedy: bool
) -> None:
    sampling = resolved(mirostat=2, mirostat_eta=0.5, dry_multiplier=1.0, temperature=2.0)
    rows = [
        replace(question, sampling=sampling, position=position, chained=flag)
        for position, flag in enumerate([False, *chained])
    ]
    rows.insert(2, replace(question, sampling=resolved(temperature=0.0 if is_greedy else 1.0)))
    if len(rows) > 3:
        rows[3] = replace(rows[3], chained=False)
    logits = random_logits(seed, 3.0, len(rows))
    found = sample_logits(logits, [sample_row(row) for row in rows])
    for got, expected, row in zip(found, oracle_samples(logits, rows), rows, strict=True):
        same(token_result(got), expected)
        assert row.sampling is not sampling or got.mu == pytest.approx(expected.mu, rel=1e-5)


def test_mu_moves_against_the_surprise() -> None:
    sampling = resolved(mirostat=2, mirostat_tau=3.0, mirostat_eta=0.5)
    logits = np.zeros((1, VOCAB), np.float32)
    logits[0, :16] = 50.0  # sixteen tokens, 4 bits each
    row = ChooseToken(sampling, 1, 1, mu=sampling.first_mu)
    assert sample_logits(logits, [sample_row(row)])[0].mu == pytest.approx(6.0 - 0.5 * 1.0)


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("vocab_size", [31, 32, 33, 60])
def test_a_mask_lets_through_its_bits_and_no_others(kernels: str, vocab_size: int) -> None:
    logits = np.random.default_rng(3).standard_normal((1, vocab_size)).astype(np.float32)
    allowed = np.arange(vocab_size) % 5 == 4
    allowed[-1] = True
    drawn = {
        sample_logits(logits, [sample_row(question)], kernels=kernels)[0].token
        for question in (
            ChooseToken(resolved(temperature=5.0), seed, 1, mask=bitmap(allowed))
            for seed in range(500)
        )
    }
    assert drawn == set(np.flatnonzero(allowed).tolist())


@pytest.mark.parametrize("fields", [{"temperature": 0.0}, {}, {"xtc_probability": 1.0}])
def test_a_mask_holds_where_bias_and_bans_leave_nothing(fields: dict[str, object]) -> None:
    logits = random_logits(3, 1.0)
    allowed = np.zeros(VOCAB, bool)
    allowed[11] = True
    sampling = resolved(**fields, logit_bias={11: -100.0})
    row = ChooseToken(sampling, 1, 1, banned=(11,), mask=bitmap(allowed), num_logprobs=0)
    found = sample_logits(logits, [sample_row(row)])[0]
    assert (found.token, found.allowed) == (11, True)


def test_a_mask_that_leaves_nothing_says_so() -> None:
    logits = random_logits(3, 1.0)
    logits[0, 11] = -np.inf
    allowed = np.zeros(VOCAB, bool)
    for token_id in ([], [11]):
        allowed[token_id] = True
        row = ChooseToken(resolved(), 1, 1, mask=bitmap(allowed), num_logprobs=3, mu=4.0)
        found = sample_logits(logits, [sample_row(row)])[0]
        assert (found.allowed, found.finite, found.top) == (False, True, ())
        same(token_result(found), oracle_sample(logits[0], row))


@pytest.mark.parametrize(
    "fields", [{}, {"typical_p": 0.9}, {"dry_multiplier": 1.0}, {"mirostat": 2}]
)
def test_asking_for_logprobs_changes_no_token_and_no_mu(fields: dict[str, object]) -> None:
    logits = random_logits(4, 2.0)
    for position in range(30):
        plain = ChooseToken(resolved(**fields), 1, position, history=[3, 4, 3], mu=5.0)
        asked = replace(plain, num_logprobs=5)
        one, other = (sample_logits(logits, [sample_row(row)])[0] for row in (plain, asked))
        assert (one.token, one.mu) == (other.token, other.mu)


def test_xtc_s_coin_is_not_the_token_s_noise() -> None:
    """Half of the positions drop the likeliest token, whichever would be drawn there."""
    logits = np.full((1, VOCAB), -20.0, np.float32)
    logits[0, :2] = [1.0, 0.5]
    dropped = 0
    for position in range(400):
        row = ChooseToken(resolved(xtc_probability=0.5, temperature=1e-6), 1, position)
        dropped += sample_logits(logits, [sample_row(row)])[0].token == 1
    assert 160 < dropped < 240


BAD = [np.nan, np.inf, -np.inf, 1e9]
KNOBS = (
    *("temperature", "dynatemp_range", "dynatemp_exponent", "top_n_sigma", "xtc_probability"),
    *("xtc_threshold", "dry_multiplier", "dry_base", "mirostat_tau", "mirostat_eta", "min_p"),
    *("presence_penalty", "frequency_penalty"),
)


@pytest.mark.parametrize(
    "fields",
    [
        *({knob: bad} for knob in KNOBS for bad in BAD),
        *({knob: -0.1} for knob in KNOBS if "penalty" not in knob),
        *({"repetition_penalty": bad} for bad in (0.0, -1.0, np.nan, np.inf)),
        *({"top_p": bad} for bad in (-0.1, np.nan)),
        *({"typical_p": bad} for bad in (-0.1, np.nan)),
        *({name: -1} for name in ("dry_allowed_length", "dry_last_n", "penalty_last_n", "top_k")),
        {"dry_base": 0.99},
    ],
    ids=str,
)
def test_knobs_out_of_range_are_refused_in_c(fields: dict[str, float]) -> None:
    row = sample_row(ChooseToken(resolved(typical_p=0.9), 1, 1))
    assert sample_logits(random_logits(1, 1.0), [row])
    with pytest.raises(LibraryError):
        sample_logits(random_logits(1, 1.0), [replace(row, fields={**row.fields, **fields})])


@pytest.mark.parametrize("own", [*({"mu": bad} for bad in BAD[:3]), {"chained": True}], ids=str)
def test_what_is_a_tokens_own_is_refused_out_of_range_in_c(own: dict[str, float]) -> None:
    row = sample_row(ChooseToken(resolved(typical_p=0.9), 1, 1))
    with pytest.raises(LibraryError):
        sample_logits(random_logits(1, 1.0), [replace(row, **own)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arrays",
    [
        {"samplers": [10]},
        {"samplers": [-1]},
        {"samplers": [9, 1]},
        {"mask": np.ones(1, np.uint32)},
        {"mask": np.ones(3, np.uint32)},
        {"bias": [(1, np.nan)]},
        {"breakers": SequenceBreakers.of(VOCAB + 32, [(1,)])},
        {"breakers": SequenceBreakers.of(VOCAB, [(VOCAB, 1)])},
        {"breakers": SequenceBreakers.of(VOCAB, [(1, VOCAB)])},
        {"breakers": SequenceBreakers(bytes(8), b"\1\0\0\0", b"\2\0\0\0", b"\1\0\0\0")},
        {"breakers": SequenceBreakers(bytes(8), b"\1\0\0\0", b"\xff" * 4, b"")},
    ],
    ids=str,
)
def test_arrays_that_do_not_fit_are_refused_in_c(arrays: dict[str, object]) -> None:
    row = sample_row(ChooseToken(resolved(dry_multiplier=1.0), 1, 1))
    with pytest.raises(LibraryError):
        sample_logits(random_logits(1, 1.0), [replace(row, **arrays)])  # type: ignore[arg-type]


def test_a_known_token_among_chosen_ones_is_scored() -> None:
    logits = random_logits(1, 1.0, 2)
    rows = [ScoreToken(3, 2), ChooseToken(resolved(mirostat=2), 1, 1, mu=5.0)]
    found = sample_logits(logits, [sample_row(row) for row in rows])
    for got, expected in zip(found, oracle_samples(logits, rows), strict=True):
        same(token_result(got), expected)
