"""What a model file's header says of the model, for people: no weight is read, nothing is judged.

A hyper-parameter that is missing or odd is None here; refusing it is the plan's affair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from edgeserve.frozen import frozen
from edgeserve.loader.gguf import ModelFile
from edgeserve.types import Metadata, MetadataValue

KV_DTYPES: Mapping[str, tuple[int, int]] = {"f16": (2, 1), "q8_0": (34, 32), "q4_0": (18, 32)}
"""Bytes per so many elements."""


@frozen
class TypeCount:
    """How many tensors have a type, and their bytes."""

    tensors: int
    num_bytes: int


@frozen
class ModelSummary:
    """The header of a model. `kv_elements` is of K and V of all layers, per token."""

    name: str
    architecture: str
    license: str | None
    parameters: int
    size_bytes: int
    tensor_types: Mapping[str, TypeCount]
    context_length: int | None
    block_count: int | None
    kv_elements: int | None
    window: int | None
    tokenizer: str | None
    vocabulary: int | None
    has_template: bool

    def kv_bytes_per_token(self, dtype: str = "f16") -> int | None:
        """Of the cache, all layers together, while no window limits it."""
        if self.kv_elements is None:
            return None
        num_bytes, elements = KV_DTYPES[dtype]
        return -(-self.kv_elements * num_bytes // elements)


def summarize(model: ModelFile) -> ModelSummary:
    """The facts of one model file."""
    values = _Values(model.metadata)
    architecture = values.text("general.architecture") or "unknown"
    return ModelSummary(
        name=values.text("general.name") or model.paths[0].stem,
        architecture=architecture,
        license=values.text("general.license"),
        parameters=sum(_elements(tensor.shape) for tensor in model.tensors.values()),
        size_bytes=model.total_bytes,
        tensor_types=_count_types(model),
        context_length=values.integer(f"{architecture}.context_length"),
        block_count=values.integer(f"{architecture}.block_count"),
        kv_elements=_kv_elements(values, architecture),
        window=values.integer(f"{architecture}.attention.sliding_window") or None,
        tokenizer=_tokenizer(values),
        vocabulary=values.length("tokenizer.ggml.tokens"),
        has_template=values.text("tokenizer.chat_template") is not None,
    )


class _Values:
    """Metadata by key, None for what is absent or of another type."""

    def __init__(self, metadata: Metadata) -> None:
        self._values = metadata.values

    def text(self, key: str) -> str | None:
        value = self._values.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        value = self._values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def per_layer(self, key: str, num_layers: int) -> Sequence[int] | None:
        """A number for every layer: the file has one for all, or an array."""
        value = self._values.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return [value] * num_layers
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) < num_layers:
            return None
        numbers = [each for each in value[:num_layers] if isinstance(each, int)]
        return numbers if len(numbers) == num_layers else None

    def length(self, key: str) -> int | None:
        value: MetadataValue | None = self._values.get(key)
        return len(value) if isinstance(value, Sequence) and not isinstance(value, str) else None


def _kv_elements(values: _Values, architecture: str) -> int | None:
    prefix = f"{architecture}.attention"
    num_layers = values.integer(f"{architecture}.block_count")
    if num_layers is None or not 0 < num_layers <= 100_000:
        return None
    heads = values.per_layer(f"{prefix}.head_count", num_layers)
    kv_heads = values.per_layer(f"{prefix}.head_count_kv", num_layers) or heads
    width = values.integer(f"{architecture}.embedding_length")
    if heads is None or kv_heads is None or width is None:
        return None
    most_heads = max(heads)
    usual = width // most_heads if most_heads > 0 else None
    key = values.integer(f"{prefix}.key_length") or usual
    value = values.integer(f"{prefix}.value_length") or usual
    return None if key is None or value is None else sum(kv_heads) * (key + value)


def _count_types(model: ModelFile) -> Mapping[str, TypeCount]:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for tensor in model.tensors.values():
        counts[tensor.quant_type] += 1
        sizes[tensor.quant_type] += tensor.num_bytes
    return {name: TypeCount(counts[name], size) for name, size in sizes.most_common()}


def _tokenizer(values: _Values) -> str | None:
    model, pre = values.text("tokenizer.ggml.model"), values.text("tokenizer.ggml.pre")
    return f"{model} ({pre})" if model and pre and pre != "default" else model


def _elements(shape: Sequence[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product
