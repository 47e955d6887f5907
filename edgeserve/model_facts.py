"""What a loaded model is, in the words of llama-server's `meta`."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from edgeserve.build import LoadedModel
from edgeserve.plan.ops import Plan, weights


def model_facts(model: LoadedModel) -> dict[str, object]:
    """`quant` is the type of most weights; `size` the bytes of the (first) file."""
    return plan_facts(model.plan, model.path, model.tokenizer.vocab_size)


def plan_facts(plan: Plan, path: Path, vocab_size: int | None) -> dict[str, object]:
    """The same of a model that is not loaded."""
    elements: Counter[str] = Counter()
    views = dict.fromkeys(view for op in plan.operations for view in weights(op))
    for weight in views:  # each once: a tied one serves two operations
        elements[weight.quant_type] += math.prod(weight.shape)
    return {
        "architecture": plan.architecture,
        "quant": elements.most_common(1)[0][0] if elements else None,
        "size": path.stat().st_size if path.is_file() else None,
        "n_params": sum(elements.values()),
        "n_ctx_train": plan.max_position,
        "n_vocab": vocab_size,
    }
