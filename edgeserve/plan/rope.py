"""Rotary position embedding: what a file says of it, and the frequencies that follow.

Pure mathematics, in double precision; every backend turns these into its own tables.
Sources: RoFormer (arXiv 2104.09864), YaRN (2309.00071), LongRoPE (2402.13753).
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING

from edgeserve.frozen import frozen
from edgeserve.plan.weights import WeightView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class RopeStyle(str, Enum):
    """Which two elements of a head turn together: (2i, 2i+1), or (i, i + dims/2)."""

    INTERLEAVED = "interleaved"
    HALVES = "halves"


@frozen
class Yarn:
    """YaRN's interpolation between original and stretched frequencies.

    Dimensions that turn more than `beta_fast` times within `original_context` keep their
    frequency, those below `beta_slow` are stretched, and a ramp lies between.
    """

    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0


@frozen
class RopeSpec:
    """How one layer's queries and keys are rotated.

    The first `dims` elements of a head turn, the others pass. `frequency_scale` 1/s is linear
    position interpolation by s. `factors` (dims/2,) divide the angles. `attention_factor`
    multiplies the rotated elements. `sections` splits the pairs among the components of a
    position with several (empty: one component).
    """

    style: RopeStyle
    dims: int
    base: float
    frequency_scale: float = 1.0
    factors: WeightView | None = None
    attention_factor: float = 1.0
    yarn: Yarn | None = None
    sections: tuple[int, ...] = ()


def rope_frequencies(
    spec: RopeSpec, factors: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], float]:
    """Radians per position of each pair, (dims/2,), and the factor on the rotated elements."""
    import numpy as np

    pairs = np.arange(spec.dims // 2, dtype=np.float64)
    original = spec.base ** (-2.0 * pairs / spec.dims)
    if factors is not None:
        original = original / factors
    stretched = original * spec.frequency_scale
    if spec.yarn is None:
        return stretched, spec.attention_factor
    keep = _yarn_ramp(spec, spec.yarn, pairs)
    stretch = max(1.0, 1.0 / spec.frequency_scale)
    magnitude = spec.attention_factor * (1.0 + 0.1 * math.log(stretch))
    return stretched * (1.0 - keep) + original * keep, magnitude


def _yarn_ramp(spec: RopeSpec, yarn: Yarn, pairs: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where a pair keeps its original frequency, 0 where it is stretched. Shape (dims/2,)."""
    import numpy as np

    def pair_that_turns(times: float) -> float:
        wavelengths = yarn.original_context / (times * 2.0 * math.pi)
        return spec.dims * math.log(wavelengths) / (2.0 * math.log(spec.base))

    low = max(0.0, math.floor(pair_that_turns(yarn.beta_fast)))
    high = min(spec.dims - 1.0, math.ceil(pair_that_turns(yarn.beta_slow)))
    return 1.0 - np.clip((pairs - low) / max(0.001, high - low), 0.0, 1.0)
