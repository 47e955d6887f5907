"""What a loaded model is, in the words of llama-server's `meta`."""

from __future__ import annotations

import math
from collections import Counter

from edgeserve.build import LoadedModel
from edgeserve.plan.ops import weights


def model_facts(model: LoadedModel) -> dict[str, object]:
    """`quant` is the type of most weights; `size` the bytes of the (first) file."""
    elements: Counter[str] = Counter()
    views = dict.fromkeys(view for op in model.plan.operations for view in weights(op))
    for weight in views:  # each once: a tied one serves two operations
        elements[weight.quant_type] += math.prod(weight.shape)
    return {
        "architecture": model.plan.architecture,
        "quant": elements.most_common(1)[0][0] if elements else None,
        "size": model.path.stat().st_size if model.path.is_file() else None,
        "n_params": sum(elements.values()),
        "n_ctx_train": model.plan.max_position,
        "n_vocab": model.tokenizer.vocab_size,
    }
