"""What an architecture writes its plan with: values, layers, and weights found by GGUF's names.

Every tensor is checked against the shape its hyper-parameters call for, and at the end every
tensor of the file must have been used: a weight that nothing reads means another architecture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgeserve.errors import MissingTensorError, TensorShapeError, UnusedTensorError
from edgeserve.frozen import frozen
from edgeserve.plan.hyperparams import HyperParams
from edgeserve.plan.infer import infer
from edgeserve.plan.ops import (
    Add,
    Attention,
    CacheGroup,
    CacheKind,
    CacheSpec,
    Embed,
    Gate,
    GatedActivation,
    Linear,
    MoeLinear,
    MoeRoute,
    MoeSum,
    Operation,
    Plan,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
    Shape,
    Shard,
    SoftCap,
    ValueId,
)
from edgeserve.plan.rope import RopeSpec
from edgeserve.plan.weights import WeightView
from edgeserve.types import TensorInfo


@frozen
class Value:
    """A value of the plan being written; `+` and `*` write operations."""

    builder: PlanBuilder
    id: ValueId

    @property
    def width(self) -> int:
        return self.builder.shape(self).width

    def __add__(self, other: Value) -> Value:
        return self.builder.emit(Add(self.builder.next_id(), self.id, other.id))

    def __mul__(self, factor: float) -> Value:
        return self.builder.emit(Scale(self.builder.next_id(), self.id, factor))


class PlanBuilder:
    """Collects operations. `max_model_len` is the context asked for: longrope is chosen by it."""

    def __init__(
        self, hp: HyperParams, tensors: Mapping[str, TensorInfo], *, max_model_len: int
    ) -> None:
        self.hp = hp
        self.max_model_len = max_model_len
        self._tensors = tensors
        self._used: set[str] = set()
        self._operations: list[Operation] = []
        self._shapes: list[Shape] = []
        self._caches: dict[int | None, list[CacheSpec]] = {}

    def next_id(self) -> ValueId:
        return ValueId(len(self._operations))

    def shape(self, value: Value) -> Shape:
        return self._shapes[value.id]

    def emit(self, op: Operation) -> Value:
        """Appends an operation. Raises PlanError if its inputs do not fit."""
        self._shapes.append(infer(op, self._shapes))
        self._operations.append(op)
        return Value(self, op.out)

    def weight(self, name: str, shape: tuple[int, ...]) -> WeightView:
        """The tensor `name`. Raises MissingTensorError, TensorShapeError unless it is `shape`."""
        info = self._tensors.get(name)
        if info is None:
            raise MissingTensorError(name, f"is missing; {self.hp.architecture} needs it")
        self._used.add(name)
        if info.shape != shape:
            raise TensorShapeError(
                name, f"has shape {info.shape}, must be {shape}", offset=info.info_offset
            )
        return WeightView(name, shape, info.quant_type)

    def has_tensor(self, name: str) -> bool:
        return name in self._tensors

    def optional_weight(self, name: str, shape: tuple[int, ...]) -> WeightView | None:
        return self.weight(name, shape) if name in self._tensors else None

    def embed(self, name: str, *, scale: float = 1.0) -> Value:
        weight = self.weight(f"{name}.weight", self._embedding_shape(name))
        return self.emit(Embed(self.next_id(), weight, scale))

    def rms_norm(self, x: Value, name: str, *, group: int | None = None) -> Value:
        """Over the whole row, or over each head of `group` elements."""
        size = x.width if group is None else group
        weight = self.weight(f"{name}.weight", (size,))
        return self.emit(RmsNorm(self.next_id(), x.id, weight, self.hp.norm_epsilon, size))

    def linear(self, x: Value, name: str, out_width: int, *, shard: Shard = Shard.NONE) -> Value:
        """x times `name`.weight, plus `name`.bias where the file has one."""
        weight = self.weight(f"{name}.weight", (out_width, x.width))
        bias = self.optional_weight(f"{name}.bias", (out_width,))
        return self.emit(Linear(self.next_id(), x.id, name, weight, bias, shard=shard))

    def linear_rows(
        self, x: Value, name: str, widths: Mapping[str, int], *, shard: Shard = Shard.NONE
    ) -> tuple[Value, ...]:
        """One fused tensor `name` read as several linears: `widths` maps part to rows, in order."""
        total = sum(widths.values())
        weight = self.weight(f"{name}.weight", (total, x.width))
        bias = self.optional_weight(f"{name}.bias", (total,))
        values: list[Value] = []
        first = 0
        for part, width in widths.items():
            part_bias = bias.rows(first, width) if bias is not None else None
            op = Linear(
                self.next_id(),
                x.id,
                f"{name}.{part}",
                weight.rows(first, width),
                part_bias,
                shard=shard,
            )
            values.append(self.emit(op))
            first += width
        return tuple(values)

    def gated(self, gate: Value, up: Value, kind: Gate) -> Value:
        return self.emit(GatedActivation(self.next_id(), gate.id, up.id, kind))

    def soft_cap(self, x: Value, cap: float) -> Value:
        return self.emit(SoftCap(self.next_id(), x.id, cap))

    def rope(self, x: Value, head_size: int, spec: RopeSpec) -> Value:
        return self.emit(Rope(self.next_id(), x.id, head_size, spec))

    def logits(self, x: Value) -> Value:
        """The rows that need logits, times `output`, or the embedding where it is tied."""
        name = "output" if "output.weight" in self._tensors else "token_embd"
        rows = self.emit(SelectRows(self.next_id(), x.id))
        weight = self.weight(f"{name}.weight", self._embedding_shape(name))
        bias = self.optional_weight("output.bias", (weight.shape[0],))
        op = Linear(self.next_id(), rows.id, "output", weight, bias, shard=Shard.COLUMN)
        return self.emit(op)

    def layers(self) -> Iterator[Layer]:
        for index in range(self.hp.block_count):
            yield Layer(self, index)

    def attend(self, op: Attention) -> Value:
        """Appends an attention and gives its layer a cache in the group of its window."""
        cache = CacheSpec(op.cache_id, op.num_kv_heads, op.key_size, op.value_size)
        group = self._caches.setdefault(op.window, [])
        if cache not in group:
            group.append(cache)
        return self.emit(op)

    def finish(self, *, logits: Value, hidden: Value, max_position: int) -> Plan:
        """The plan. Raises UnusedTensorError if the file has tensors that nothing reads."""
        unused = sorted(set(self._tensors) - self._used)
        if unused:
            first = self._tensors[unused[0]]
            raise UnusedTensorError(
                first.name,
                f"is one of {len(unused)} tensors that architecture {self.hp.architecture} "
                "does not use; running without them would give wrong answers",
                offset=first.info_offset,
            )
        groups = tuple(
            CacheGroup(
                CacheKind.FULL if window is None else CacheKind.WINDOW, tuple(caches), window
            )
            for window, caches in self._caches.items()
        )
        return Plan(
            architecture=self.hp.architecture,
            operations=tuple(self._operations),
            shapes=tuple(self._shapes),
            cache_groups=groups,
            outputs={"logits": logits.id, "hidden": hidden.id},
            vocab_size=logits.width,
            max_position=max_position,
        )

    def ignore(self, *names: str) -> None:
        """Tensors that this choice of options rightly leaves unread (the other rope factors)."""
        self._used.update(names)

    def _embedding_shape(self, name: str) -> tuple[int, int]:
        """(vocabulary, width): a row for each token of the file's tokenizer, where it has one."""
        info = self._tensors.get(f"{name}.weight")
        rows = info.shape[0] if info is not None else 0
        num_tokens = self.hp.vocab_size
        if info is not None and num_tokens is not None and rows != num_tokens:
            raise TensorShapeError(
                info.name,
                f"has {rows} rows for the {num_tokens} tokens of the file's tokenizer",
                offset=info.info_offset,
            )
        return (rows, self.hp.embedding_length)


class Layer:
    """One block: its weights are `blk.N.…`, its numbers the layer's own."""

    def __init__(self, builder: PlanBuilder, index: int) -> None:
        hp = builder.hp
        self.builder = builder
        self.index = index
        self.num_heads = hp.head_count[index]
        self.num_kv_heads = hp.head_count_kv[index]
        self.key_size = hp.key_length
        self.value_size = hp.value_length
        self.feed_forward_length = hp.feed_forward_length[index]
        self.expert_length = hp.expert_feed_forward_length[index]
        self._out_widths = {
            "attn_q": self.num_heads * hp.key_length,
            "attn_k": self.num_kv_heads * hp.key_length,
            "attn_v": self.num_kv_heads * hp.value_length,
            "attn_output": hp.embedding_length,
            "ffn_gate": self.feed_forward_length,
            "ffn_up": self.feed_forward_length,
            "ffn_down": hp.embedding_length,
        }

    def name(self, part: str) -> str:
        return f"blk.{self.index}.{part}"

    def rms_norm(self, x: Value, part: str) -> Value:
        return self.builder.rms_norm(x, self.name(part))

    def head_norm(self, x: Value, part: str) -> Value:
        """RMS norm of each head on its own."""
        return self.builder.rms_norm(x, self.name(part), group=self.key_size)

    def linear(self, x: Value, part: str) -> Value:
        """A projection whose width GGUF's name for it implies."""
        shard = Shard.ROW if part in ("attn_output", "ffn_down") else Shard.COLUMN
        return self.builder.linear(x, self.name(part), self._out_widths[part], shard=shard)

    def linears(self, x: Value, *parts: str) -> tuple[Value, ...]:
        return tuple(self.linear(x, part) for part in parts)

    def qkv(self, x: Value) -> tuple[Value, Value, Value]:
        """Queries, keys and values, from three tensors or one fused `attn_qkv`."""
        parts = ("attn_q", "attn_k", "attn_v")
        if self.has("attn_qkv"):
            widths = {part: self._out_widths[part] for part in parts}
            q, k, v = self.builder.linear_rows(x, self.name("attn_qkv"), widths, shard=Shard.COLUMN)
        else:
            q, k, v = self.linears(x, *parts)
        return q, k, v

    def has(self, part: str) -> bool:
        return self.builder.has_tensor(self.name(f"{part}.weight"))

    def rope(self, q: Value, k: Value, spec: RopeSpec) -> tuple[Value, Value]:
        return (
            self.builder.rope(q, self.key_size, spec),
            self.builder.rope(k, self.key_size, spec),
        )

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        *,
        scale: float | None = None,
        window: int | None = None,
        soft_cap: float | None = None,
    ) -> Value:
        """Causal attention over the layer's own cache; `scale` None is 1/sqrt(key size)."""
        op = Attention(
            out=self.builder.next_id(),
            q=q.id,
            k=k.id,
            v=v.id,
            layer=self.index,
            cache_id=self.index,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            key_size=self.key_size,
            value_size=self.value_size,
            scale=self.key_size**-0.5 if scale is None else scale,
            window=window,
            soft_cap=soft_cap,
        )
        return self.builder.attend(op)

    def swiglu(self, x: Value) -> Value:
        gate, up = self.linears(x, "ffn_gate", "ffn_up")
        return self.builder.gated(gate, up, Gate.SILU)

    def geglu(self, x: Value) -> Value:
        gate, up = self.linears(x, "ffn_gate", "ffn_up")
        return self.builder.gated(gate, up, Gate.GELU_TANH)

    def experts(self, x: Value) -> Value:
        """A mixture of SwiGLU experts, chosen by `ffn_gate_inp`; their weights sum to 1."""
        m, hp = self.builder, self.builder.hp
        logits = m.linear(x, self.name("ffn_gate_inp"), hp.expert_count)
        route = m.emit(MoeRoute(m.next_id(), logits.id, hp.expert_used_count, normalised=True))
        gate = self._expert_linear(x, route, "ffn_gate_exps", (self.expert_length, x.width))
        up = self._expert_linear(x, route, "ffn_up_exps", (self.expert_length, x.width))
        h = m.gated(gate, up, Gate.SILU)
        h = self._expert_linear(h, route, "ffn_down_exps", (x.width, self.expert_length))
        return m.emit(MoeSum(m.next_id(), h.id, route.id))

    def _expert_linear(self, x: Value, route: Value, part: str, shape: tuple[int, int]) -> Value:
        """`shape` is one expert's."""
        m = self.builder
        weight = m.weight(f"{self.name(part)}.weight", (m.hp.expert_count, *shape))
        return m.emit(MoeLinear(m.next_id(), x.id, route.id, self.name(part), weight))
