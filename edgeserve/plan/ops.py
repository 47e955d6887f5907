"""The operations of a plan, as data. What they compute is said here; how, only executors know.

Values are numbers in single assignment. A value's rows are symbolic: T tokens of the batch, R
rows that need logits, S sequences. Attributes carry everything a backend needs, so that no
executor ever asks which family a model belongs to.
"""

from __future__ import annotations

from dataclasses import field, fields
from enum import Enum
from typing import NewType

from edgeserve.frozen import frozen
from edgeserve.plan.rope import RopeSpec
from edgeserve.plan.weights import WeightView

ValueId = NewType("ValueId", int)


class Rows(str, Enum):
    """What one row of a value stands for."""

    TOKENS = "T"
    LOGITS = "R"
    SEQUENCES = "S"


@frozen
class Shape:
    rows: Rows
    width: int

    def __str__(self) -> str:
        return f"({self.rows.value}, {self.width})"


class Shard(str, Enum):
    """How a linear's weight is cut when several devices share a model."""

    NONE = "none"
    COLUMN = "column"
    ROW = "row"
    EXPERT = "expert"


class Gate(str, Enum):
    """The activation of a gated feed-forward layer: out = f(gate) * up."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"
    RELU_SQUARED = "relu_squared"


class Mask(str, Enum):
    """Which keys a query may see before the window is applied."""

    CAUSAL = "causal"
    NONE = "none"


@frozen
class Embed:
    """out[t] = scale * weight[ids[t]]; rows given as embeddings are taken as they are."""

    out: ValueId
    weight: WeightView
    scale: float = 1.0


@frozen
class RmsNorm:
    """x / sqrt(mean(x^2) + epsilon) * weight, over each run of `group` elements of a row."""

    out: ValueId
    x: ValueId
    weight: WeightView
    epsilon: float
    group: int


@frozen
class Linear:
    """out = scale * (x weight^T) + bias. `name` is stable: adapters and shards are found by it."""

    out: ValueId
    x: ValueId
    name: str
    weight: WeightView
    bias: WeightView | None = None
    scale: float = 1.0
    adaptable: bool = True
    shard: Shard = Shard.NONE


@frozen
class MoeRoute:
    """Which experts a row goes to, and how much each counts.

    x is (rows, experts): logits. out is (rows, 2 * num_used): ids of the num_used largest, in
    falling order (of equals the lowest id first), then their weights. A weight is a softmax's: over
    the chosen where `normalised`, so that they sum to 1; over all experts where not.
    """

    out: ValueId
    x: ValueId
    num_used: int
    normalised: bool
    scale: float = 1.0


@frozen
class MoeLinear:
    """Each row's product with each of its experts: out's run r is x times weight[expert r].

    `weight` is (experts, n_out, n_in). x is (rows, n_in), the same for all of a row's experts, or
    (rows, num_used * n_in), a run for each; out is (rows, num_used * n_out).
    """

    out: ValueId
    x: ValueId
    route: ValueId
    name: str
    weight: WeightView
    adaptable: bool = True
    shard: Shard = Shard.EXPERT


@frozen
class MoeSum:
    """out = the sum of x's runs, one for each expert of the row, by the route's weights, in order.

    x is (rows, num_used * width), out (rows, width).
    """

    out: ValueId
    x: ValueId
    route: ValueId


@frozen
class Rope:
    """Rotates each head of x (heads of `head_size`) by its row's position."""

    out: ValueId
    x: ValueId
    head_size: int
    spec: RopeSpec


@frozen
class Attention:
    """softmax(scale * q k^T + mask) v per head, keys and values through cache `cache_id`.

    q is (T, num_heads * key_size); k (T, num_kv_heads * key_size) and v (T, num_kv_heads *
    value_size) are stored at their rows' positions first, then everything is read back. k and v
    are None in a layer that shares another's cache. A key at p0 is outside a window of a query
    at p1 when p1 - p0 >= window. `soft_cap` c maps scores s to c tanh(s / c). `sinks` (num_heads,)
    join the softmax's sum without a value.
    """

    out: ValueId
    q: ValueId
    k: ValueId | None
    v: ValueId | None
    layer: int
    cache_id: int
    num_heads: int
    num_kv_heads: int
    key_size: int
    value_size: int
    scale: float
    mask: Mask = Mask.CAUSAL
    window: int | None = None
    soft_cap: float | None = None
    sinks: WeightView | None = None


@frozen
class GatedActivation:
    """out = f(gate) * up, element by element."""

    out: ValueId
    gate: ValueId
    up: ValueId
    kind: Gate


@frozen
class Add:
    out: ValueId
    a: ValueId
    b: ValueId


@frozen
class Scale:
    out: ValueId
    x: ValueId
    factor: float


@frozen
class SoftCap:
    """out = cap * tanh(x / cap)."""

    out: ValueId
    x: ValueId
    cap: float


@frozen
class SelectRows:
    """The rows of x that need logits, in batch order: (T, width) to (R, width)."""

    out: ValueId
    x: ValueId


Operation = (
    Embed
    | RmsNorm
    | Linear
    | MoeRoute
    | MoeLinear
    | MoeSum
    | Rope
    | Attention
    | GatedActivation
    | Add
    | Scale
    | SoftCap
    | SelectRows
)

_VALUE_FIELDS = ("x", "route", "q", "k", "v", "gate", "up", "a", "b")


def inputs(op: Operation) -> tuple[ValueId, ...]:
    """The values an operation reads, in the order of its fields."""
    names = [f.name for f in fields(op) if f.name in _VALUE_FIELDS]
    return tuple(value for name in names if (value := getattr(op, name)) is not None)


def weights(op: Operation) -> tuple[WeightView, ...]:
    """The weight views an operation reads, rope factors among them."""
    found = [getattr(op, f.name) for f in fields(op)]
    views = [item.factors if isinstance(item, RopeSpec) else item for item in found]
    return tuple(view for view in views if isinstance(view, WeightView))


class CacheKind(str, Enum):
    """Full: every position is kept. Window: those behind it may go. Recurrent: fixed slots."""

    FULL = "full"
    WINDOW = "window"
    RECURRENT = "recurrent"


@frozen
class CacheSpec:
    """One layer's K and V storage; layers that share a cache name the same `cache_id`."""

    cache_id: int
    num_kv_heads: int
    key_size: int
    value_size: int

    @property
    def elements_per_token(self) -> int:
        return self.num_kv_heads * (self.key_size + self.value_size)


@frozen
class CacheGroup:
    """Caches with one lifetime, so one block table: all full layers, or all of one window."""

    kind: CacheKind
    caches: tuple[CacheSpec, ...]
    window: int | None = None

    def bytes_per_token(self, element_bytes: float) -> float:
        return element_bytes * sum(cache.elements_per_token for cache in self.caches)


@frozen
class PlanInputs:
    """What a batch must bring: ids and/or embeddings, positions, maybe token types."""

    ids: bool = True
    embeddings: bool = True
    position_components: int = 1
    token_types: bool = False


@frozen
class Plan:
    """A model as a flat list of operations. `shapes[i]` is value i's; outputs are by name.

    `chunkable`: a prompt may be computed in pieces. `causal`: no row sees a later one.
    `max_position` is one past the last position the rope choice covers.
    """

    architecture: str
    operations: tuple[Operation, ...]
    shapes: tuple[Shape, ...]
    cache_groups: tuple[CacheGroup, ...]
    outputs: dict[str, ValueId]
    vocab_size: int
    max_position: int
    inputs: PlanInputs = field(default_factory=PlanInputs)
    chunkable: bool = True
    causal: bool = True

    def kv_bytes_per_token(self, element_bytes: float) -> float:
        """Bytes of K and V that one token adds, over all groups."""
        return sum(group.bytes_per_token(element_bytes) for group in self.cache_groups)
