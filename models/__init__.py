"""The model families: each file writes one architecture's plan, and knows nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from edgeserve.errors import UnsupportedModelError
from edgeserve.plan.builder import PlanBuilder
from edgeserve.plan.hyperparams import HyperParams
from edgeserve.plan.ops import Plan
from edgeserve.types import Metadata, TensorInfo

FAMILIES: Mapping[str, str] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3moe",
    "gemma3": "gemma3",
    "phi3": "phi3",
}
"""GGUF's `general.architecture` -> the module here whose `build` writes the plan."""

_WITH_EXPERTS = ("llama", "qwen3moe")


def build_plan(
    metadata: Metadata, tensors: Mapping[str, TensorInfo], *, max_model_len: int | None = None
) -> Plan:
    """The semantic plan of a model file. `max_model_len` None is the trained context.

    Raises UnsupportedModelError for an unknown architecture, ModelFileError for a file that
    contradicts itself.
    """
    architecture = metadata.values.get("general.architecture")
    # One that is absent or no string is HyperParams' to refuse.
    if isinstance(architecture, str) and architecture not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModelError(
            f"architecture {architecture[:64]!r} is not supported yet; this version runs {known}"
        )
    hp = HyperParams(metadata)
    if hp.expert_count and hp.architecture not in _WITH_EXPERTS:
        raise UnsupportedModelError(
            f"{hp.architecture} with {hp.expert_count} experts (a mixture of experts) is not "
            f"supported yet; use a dense model, or one of these: {', '.join(_WITH_EXPERTS)}"
        )
    length = hp.context_length if max_model_len is None else max_model_len
    builder = PlanBuilder(hp, tensors, max_model_len=length)
    build: Callable[[PlanBuilder], Plan] = import_module(
        f"{__name__}.{FAMILIES[hp.architecture]}"
    ).build
    return build(builder)
