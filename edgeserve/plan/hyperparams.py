"""A model's hyper-parameters, read from GGUF metadata and checked against each other.

Typed access with the key's byte offset in every error. Knows the common keys; a family's own
keys are read by that family through `integer`, `number`, `text` and `per_layer`.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgeserve.errors import HyperParameterError
from edgeserve.types import Metadata, MetadataValue

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20
TOKENS_KEY = "tokenizer.ggml.tokens"


def _shown(value: MetadataValue) -> str:
    """A value for an error message, however long it is."""
    if isinstance(value, (bool, int, float)):
        return repr(value)
    return repr(value[:64]) if isinstance(value, str) else f"an array of {len(value)}"


class HyperParams:
    """The numbers of one architecture. `architecture` prefixes its keys, as in `llama.block_count`.

    Raises HyperParameterError (field, byte offset) for a key that is absent, mistyped or
    contradicts another.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.architecture = self._text("general.architecture")
        self.block_count = self.integer("block_count", low=1, high=MAX_LAYERS)
        self.context_length = self.integer("context_length", low=1)
        self.embedding_length = self.integer("embedding_length", low=1, high=MAX_WIDTH)
        self.feed_forward_length = self.per_layer("feed_forward_length", low=1)
        self.head_count = self.per_layer("attention.head_count", low=1)
        self.head_count_kv = self.per_layer("attention.head_count_kv", default=self.head_count)
        self._check_heads()
        self.expert_count = self.integer("expert_count", default=0)
        self.expert_used_count = self.integer("expert_used_count", default=0)
        self.expert_feed_forward_length = self.per_layer(
            "expert_feed_forward_length", default=self.feed_forward_length, low=1
        )
        self._check_experts()
        self.vocab_size = self._vocab_size()
        head_size = self._default_head_size()
        self.key_length = self.integer("attention.key_length", default=head_size, low=1)
        self.value_length = self.integer("attention.value_length", default=head_size, low=1)
        self.rope_dimension_count = self.integer(
            "rope.dimension_count", default=self.key_length, low=2
        )
        self._check_rope()
        self.rope_freq_base = self.number("rope.freq_base", default=10000.0, above=1.0)
        self.norm_epsilon = self.number("attention.layer_norm_rms_epsilon", low=0.0)

    def key(self, name: str) -> str:
        """The full metadata key of an architecture's own `name`."""
        return f"{self.architecture}.{name}"

    def error(self, name: str, reason: str) -> HyperParameterError:
        """A HyperParameterError for the architecture's key `name`, at its offset."""
        full = self.key(name)
        return HyperParameterError(full, reason, offset=self._metadata.offsets.get(full))

    def has(self, name: str) -> bool:
        return self.key(name) in self._metadata.values

    def integer(
        self, name: str, *, default: int | None = None, low: int = 0, high: int = 2**31 - 1
    ) -> int:
        """An integer key. Raises HyperParameterError if out of range, or absent and no default."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"must be an integer, is {_shown(value)}")
        if not low <= value <= high:
            raise self.error(name, f"is {value}, must be from {low} to {high}")
        return value

    def number(
        self,
        name: str,
        *,
        default: float | None = None,
        low: float | None = None,
        above: float | None = None,
    ) -> float:
        """A finite number: at least `low`, more than `above`."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(name, f"must be a number, is {_shown(value)}")
        value = float(value)
        if not abs(value) < float("inf"):
            raise self.error(name, f"is {value}, must be finite")
        if low is not None and value < low:
            raise self.error(name, f"is {value:g}, must be at least {low:g}")
        if above is not None and value <= above:
            raise self.error(name, f"is {value:g}, must be more than {above:g}")
        return value

    def text(self, name: str, *, default: str) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.error(name, f"must be a string, is {_shown(value)}")
        return value

    def per_layer(
        self,
        name: str,
        *,
        default: Sequence[int] | None = None,
        low: int = 0,
        high: int = MAX_WIDTH,
    ) -> tuple[int, ...]:
        """One integer per layer: the file has either one number for all, or an array."""
        if not self.has(name) and default is not None:
            return tuple(default)
        value = self._value(name, None)
        single = isinstance(value, (bool, int, float, str))
        values: Sequence[MetadataValue] = [value] * self.block_count if single else value
        self._check_length(name, values)
        numbers: list[int] = []
        for item in values:
            if isinstance(item, bool) or not isinstance(item, int):
                raise self.error(name, f"must hold integers, holds {_shown(item)}")
            if not low <= item <= high:
                raise self.error(name, f"holds {item}, must be from {low} to {high}")
            numbers.append(item)
        return tuple(numbers)

    def integer_or_flags(self, name: str, *, default: int) -> int | tuple[bool, ...]:
        """A period, or one flag per layer: both are in use for window patterns."""
        value = self._value(name, default)
        if isinstance(value, (bool, int, float, str)):
            return self.integer(name, default=default)
        self._check_length(name, value)
        for flag in value:
            if not isinstance(flag, (bool, int)):
                raise self.error(name, f"must hold flags, holds {_shown(flag)}")
        return tuple(bool(flag) for flag in value)

    def _check_length(self, name: str, values: Sequence[MetadataValue]) -> None:
        if len(values) != self.block_count:
            raise self.error(name, f"has {len(values)} entries for {self.block_count} layers")

    def _check_heads(self) -> None:
        for layer, (heads, kv_heads) in enumerate(
            zip(self.head_count, self.head_count_kv, strict=True)
        ):
            if kv_heads == 0 or heads % kv_heads != 0:
                raise self.error(
                    "attention.head_count_kv",
                    f"is {kv_heads} in layer {layer}, must divide the head count {heads}",
                )

    def _check_experts(self) -> None:
        name, used = "expert_used_count", self.expert_used_count
        if used > self.expert_count or (used == 0) != (self.expert_count == 0):
            raise self.error(name, f"is {used}, must be from 1 to expert_count {self.expert_count}")

    def _vocab_size(self) -> int | None:
        """Tokens in the file's tokenizer, else what its own key says; None if it says nothing."""
        tokens = self._metadata.values.get(TOKENS_KEY)
        if tokens is not None and not isinstance(tokens, (bool, int, float, str)):
            return len(tokens)
        return self.integer("vocab_size", low=1) if self.has("vocab_size") else None

    def _default_head_size(self) -> int | None:
        """embedding / heads, where the file does not give key_length: None if it is no integer."""
        heads = self.head_count[0]
        return self.embedding_length // heads if self.embedding_length % heads == 0 else None

    def _check_rope(self) -> None:
        name, dims = "rope.dimension_count", self.rope_dimension_count
        if dims > self.key_length:
            raise self.error(name, f"is {dims}, more than the head size {self.key_length}")
        if dims % 2 != 0:
            raise self.error(name, f"is {dims}, must be even")

    def _value(self, name: str, default: MetadataValue | None) -> MetadataValue:
        value = self._metadata.values.get(self.key(name), default)
        if value is None:
            raise self.error(name, "is missing from the file")
        return value

    def _text(self, full_key: str) -> str:
        value = self._metadata.values.get(full_key)
        if not isinstance(value, str):
            offset = self._metadata.offsets.get(full_key)
            raise HyperParameterError(full_key, "must be a string", offset=offset)
        return value
