"""What a model file says about making one vector of a text."""

from __future__ import annotations

from edgeserve.plan.hyperparams import HyperParams
from edgeserve.types import Metadata

_NAMES = (None, "mean", "cls", "last", "rank")
"""By GGUF's `pooling_type`."""


def file_pooling(metadata: Metadata) -> str | None:
    """The name of the file's pooling, None where it has none. Raises HyperParameterError."""
    kind = HyperParams(metadata).integer("pooling_type", default=0, high=len(_NAMES) - 1)
    return _NAMES[kind]
