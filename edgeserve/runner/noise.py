"""Random numbers without state: a hash of (seed, position, stream, draw).

Batches, chunks, preemption and speculation cannot change them, because nothing is drawn "next".
The mixer is SplitMix64's finaliser (Steele, Lea, Flood 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOKEN_STREAM = 0
"""The stream that chooses tokens; its draws are token ids."""

XTC_STREAM = 1
"""The stream of XTC's coin, which is draw 0."""

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 0xFFFFFFFFFFFFFFFF


def mix64(value: int) -> int:
    """A bijection of 64 bits whose every output bit depends on every input bit."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def hash64(*parts: int) -> int:
    """One 64-bit number from several; their order matters."""
    state = _GOLDEN
    for part in parts:
        state = mix64(state + mix64((part & _MASK) + _GOLDEN))
    return state


def choice_seed(seed: int, choice: int) -> int:
    """The seed of a request's n-th choice: its own for the first, a hash for the others."""
    return seed & _MASK if choice == 0 else hash64(seed, choice)


def uniform(
    seed: int, position: int, stream: int, draws: NDArray[np.integer] | Sequence[int]
) -> NDArray[np.float64]:
    """Numbers strictly between 0 and 1, one per draw, each a function of the four keys alone."""
    import numpy as np

    key = np.uint64(hash64(seed, position, stream))
    x = key + np.asarray(draws).astype(np.uint64) * np.uint64(_GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    # 52 bits, not 53: with the half they are exact, where 53 would round the largest up to 1.
    return ((x >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def gumbel(
    seed: int, position: int, stream: int, draws: NDArray[np.integer] | Sequence[int]
) -> NDArray[np.float64]:
    """Gumbel noise: the argmax of logits plus it is a sample of their softmax."""
    import numpy as np

    return -np.log(-np.log(uniform(seed, position, stream, draws)))
