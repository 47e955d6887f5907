"""Random numbers keyed by position: known answers for every implementation, and no patterns.

tests/data/noise.json holds the known answers; whatever else draws noise is held to them too.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.runner import noise

KNOWN = json.loads((Path(__file__).parent / "data" / "noise.json").read_text())
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
UINT64 = st.integers(0, MASK)


def test_mixer_gives_the_published_stream_of_splitmix64_with_seed_zero() -> None:
    outputs = [noise.mix64(GOLDEN * n) for n in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("case", KNOWN["hash64"], ids=lambda case: str(case["parts"]))
def test_hash_known_answers(case: dict[str, object]) -> None:
    assert f"{noise.hash64(*case['parts']):016x}" == case["hash"]  # type: ignore[misc]


@pytest.mark.parametrize("case", KNOWN["uniform"], ids=lambda case: str(case["seed"]))
def test_uniform_known_answers(case: dict[str, object]) -> None:
    drawn = noise.uniform(case["seed"], case["position"], case["stream"], case["draws"])  # type: ignore[arg-type]
    assert [float(x).hex() for x in drawn] == case["uniform"]


@given(UINT64, UINT64)
def test_mixer_is_a_bijection(a: int, b: int) -> None:
    assert (noise.mix64(a) == noise.mix64(b)) == (a == b)


@given(st.integers(-(2**63), -1))
def test_negative_seeds_are_their_unsigned_bits(seed: int) -> None:
    assert noise.hash64(seed, 3) == noise.hash64(seed + 2**64, 3)


@given(UINT64, st.integers(0, 2**20), st.lists(st.integers(0, 2**18), min_size=1, max_size=40))
def test_a_draw_depends_on_its_keys_alone(seed: int, position: int, draws: list[int]) -> None:
    together = noise.uniform(seed, position, 0, draws)
    alone = [float(noise.uniform(seed, position, 0, [draw])[0]) for draw in draws]
    strided = noise.uniform(seed, position, 0, np.repeat(np.array(draws, np.int32), 2)[::2])
    backwards = noise.uniform(seed, position, 0, np.array(draws, np.int64)[::-1])[::-1]
    assert together.tolist() == alone == strided.tolist() == backwards.tolist()


def _unmix(value: int) -> int:
    """The inverse of mix64."""
    value ^= value >> 31 ^ value >> 62
    value = value * pow(0x94D049BB133111EB, -1, 2**64) & MASK
    value ^= value >> 27 ^ value >> 54
    value = value * pow(0xBF58476D1CE4E5B9, -1, 2**64) & MASK
    return value ^ value >> 30 ^ value >> 60


@pytest.mark.parametrize("bits", [0, MASK])
def test_extreme_hashes_stay_strictly_inside_the_unit_interval(bits: int) -> None:
    """The draw is chosen so that the mixer puts out all zeros, and all ones."""
    key = noise.hash64(5, 6, 7)
    draw = (_unmix(bits) - key) * pow(GOLDEN, -1, 2**64) & MASK
    draws = np.array([draw], np.uint64)
    value = float(noise.uniform(5, 6, 7, draws)[0])
    assert 0.0 < value < 1.0
    assert np.isfinite(noise.gumbel(5, 6, 7, draws)).all()
    assert value == (2.0**-53 if bits == 0 else 1.0 - 2.0**-53)


def _chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / len(counts)
    return float((np.square(counts - expected) / expected).sum())


@pytest.mark.parametrize("over", ["seed", "position", "stream", "draw"])
def test_uniform_along_every_key(over: str) -> None:
    """64 bins, 20,000 numbers; 115 is the 99.99 % point of chi-square with 63 degrees."""
    n = 20_000
    if over == "draw":
        values = noise.uniform(1, 2, 0, np.arange(n))
    else:
        keys = {
            "seed": lambda i: (i, 2, 0),
            "position": lambda i: (1, i, 0),
            "stream": lambda i: (1, 2, i),
        }[over]
        values = np.array([noise.uniform(*keys(i), [9])[0] for i in range(n)])
    assert _chi_square(np.bincount((values * 64).astype(int), minlength=64)) < 115
    # Neighbours are independent: the correlation of n pairs is within 4 / sqrt(n).
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 4 * n**-0.5


def test_gumbel_has_its_mean_and_variance() -> None:
    n = 200_000
    values = noise.gumbel(3, 4, 0, np.arange(n))
    deviation = np.pi / np.sqrt(6)
    assert abs(values.mean() - np.euler_gamma) < 4 * deviation * n**-0.5
    assert abs(values.std() - deviation) < 0.02


def test_choices_have_seeds_of_their_own() -> None:
    assert noise.choice_seed(7, 0) == 7
    assert noise.choice_seed(-1, 0) == MASK
    seeds = {noise.choice_seed(7, choice) for choice in range(128)}
    assert len(seeds) == 128
    assert noise.choice_seed(7, 1) != noise.choice_seed(8, 1)
