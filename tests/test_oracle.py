"""The numpy executor's laws, by `==`, and its mathematics against a second, dense computation.

A row's bits depend on its own sequence only: not on what else is in the batch, how the prompt was
cut, which blocks hold its keys, or what lies in blocks that are not its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeserve.errors import LibraryError
from edgeserve.models import build_plan
from edgeserve.plan.ops import Attention, CacheSpec, Mask, MoeRoute, Plan, ValueId
from edgeserve.plan.weights import WeightView
from edgeserve.runner.batch import BLOCK_SIZE, Batch, ChooseToken, RowGroup, ScoreToken
from edgeserve.runner.oracle_runner import OracleRunner

from .test_oracle_sampler import GREEDY
from .tiny_models import DEFAULTS, MemorySource, TinyModel, describe, tiny_weights

NUM_BLOCKS = 24
Floats = NDArray[np.floating]

# Cheap, and between them every operation, both cache kinds, and layers that differ.
MODELS = {
    "llama": replace(DEFAULTS["llama"], kv_heads=(4, 1), feed_forward=(96, 64)),
    "gemma3": replace(DEFAULTS["gemma3"], layers=3, window=9, window_pattern=2, softcap=20.0),
    "phi3": replace(DEFAULTS["phi3"], layers=2, window=20, rope_dims=12),
    "qwen3moe": DEFAULTS["qwen3moe"],
}


def plan_of(model: TinyModel) -> Plan:
    return build_plan(*describe(model))


def runner_of(
    model: TinyModel,
    dtype: type[np.floating] = np.float32,
    *,
    plan: Plan | None = None,
    num_blocks: int = NUM_BLOCKS,
) -> OracleRunner:
    source = MemorySource(tiny_weights(model, seed=0))
    return OracleRunner(plan or plan_of(model), source, num_blocks=num_blocks, dtype=dtype)


def tokens(n: int, seed: int = 0) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(3, 300, n)]


@dataclass
class Timeline:
    """A sequence being computed piece by piece over blocks of its own."""

    token_ids: Sequence[int]
    tables: list[list[int]]
    done: int = 0

    def take(self, count: int) -> RowGroup:
        first = self.done
        self.done = min(len(self.token_ids), first + count)
        ids = self.token_ids[first : self.done]
        used = (self.done - 1) // BLOCK_SIZE + 1
        return RowGroup(ids, first, [table[:used] for table in self.tables], len(ids))


def timeline(runner: OracleRunner, ids: Sequence[int], blocks: Sequence[int]) -> Timeline:
    """Other groups' tables are rotated, so that no two groups use the same ids."""
    count = len(runner.cache_groups)
    return Timeline(ids, [[*blocks[g:], *blocks[:g]] for g in range(count)])


def step(runner: OracleRunner, groups: list[RowGroup]) -> list[Floats]:
    """Runs one batch; the logits of each group."""
    runner.execute(Batch.from_groups(groups, len(runner.cache_groups)))
    ends = np.cumsum([group.num_logits_rows for group in groups])[:-1]
    return np.split(runner.logits().copy(), ends)


def whole(runner: OracleRunner, ids: Sequence[int], blocks: Sequence[int] = range(8)) -> Floats:
    return step(runner, [timeline(runner, ids, list(blocks)).take(len(ids))])[0]


def in_chunks(runner: OracleRunner, line: Timeline, size: int) -> Floats:
    pieces: list[Floats] = []
    while line.done < len(line.token_ids):
        pieces += step(runner, [line.take(size)])
    return np.concatenate(pieces)


def poison(runner: OracleRunner, *, but: Sequence[Sequence[int]] = ()) -> None:
    """NaN into every block, but for those of each cache group that are named."""
    for g in range(len(runner.cache_groups)):
        kept = set(but[g]) if but else set()
        free = [block for block in range(runner.num_blocks) if block not in kept]
        nan = np.full(runner.block_bytes(g) // 4 * len(free), np.nan, np.float32)
        runner.write_blocks(g, free, nan.tobytes())


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> TinyModel:
    return MODELS[request.param]


# --- the row law -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 7, 16, 32])
def test_chunks_change_no_bit(model: TinyModel, size: int, dtype: type[np.floating]) -> None:
    ids = tokens(50)
    expected = whole(runner_of(model, dtype), ids)
    runner = runner_of(model, dtype)
    assert (in_chunks(runner, timeline(runner, ids, list(range(8))), size) == expected).all()


def test_neighbours_change_no_bit(model: TinyModel) -> None:
    ids = tokens(40)
    runner = runner_of(model)
    expected = whole(runner, ids)
    lines = [
        timeline(runner, tokens(21, seed=1), [0, 1, 2, 3]),
        timeline(runner, ids, [9, 4, 17, 5]),
        timeline(runner, tokens(3, seed=2), [10, 11, 12]),
    ]
    together = step(runner, [line.take(100) for line in lines])
    assert (together[1] == expected).all()
    assert (together[0] == whole(runner_of(model), tokens(21, seed=1))).all()


def test_blocks_of_others_change_no_bit(model: TinyModel) -> None:
    """NaN in every free block, and in what was in this sequence's blocks before."""
    ids = tokens(37)
    expected = whole(runner_of(model), ids)
    runner = runner_of(model)
    poison(runner)
    line = timeline(runner, ids, [7, 2, 19])
    got = [step(runner, [line.take(11)])[0]]
    while line.done < len(ids):
        poison(runner, but=line.tables)
        got += step(runner, [line.take(11)])
    assert (np.concatenate(got) == expected).all()


def test_keys_behind_the_window_are_not_looked_at() -> None:
    """Blocks that lie wholly behind a window may be given to others."""
    model = replace(MODELS["gemma3"], window_pattern=0, window=16)
    runner = runner_of(model)
    ids = tokens(60)
    expected = whole(runner, ids)
    line = timeline(runner, ids, [3, 1, 4, 5])
    step(runner, [line.take(59)])
    poison(runner, but=[line.tables[0][2:]])  # position 59 sees 44 to 59: blocks 2 and 3
    assert (step(runner, [line.take(1)])[0][0] == expected[-1]).all()


SCHEDULE = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 18)), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)),
    st.lists(st.integers(1, 40), min_size=3, max_size=3),
    st.lists(SCHEDULE, min_size=1, max_size=6),
    st.permutations(range(NUM_BLOCKS)),
)
def test_any_schedule_gives_the_same_bits(
    name: str, lengths: list[int], steps: list[list[tuple[int, int]]], blocks: list[int]
) -> None:
    """Three sequences, in any batches and chunks, over scattered blocks, amid NaN."""
    prompts = [tokens(length, seed) for seed, length in enumerate(lengths)]
    expected = [whole(runner_of(MODELS[name]), ids) for ids in prompts]
    runner = runner_of(MODELS[name])
    poison(runner)
    lines = [timeline(runner, ids, blocks[4 * i : 4 * i + 4]) for i, ids in enumerate(prompts)]
    got: list[list[Floats]] = [[], [], []]
    rest = [[(i, 40)] for i in range(3)]
    for wanted in [*steps, *rest]:
        chosen = {i: size for i, size in wanted if lines[i].done < len(prompts[i])}
        if chosen:
            pieces = step(runner, [lines[i].take(size) for i, size in chosen.items()])
            for i, piece in zip(chosen, pieces, strict=True):
                got[i].append(piece)
    for i in range(3):
        assert (np.concatenate(got[i]) == expected[i]).all()


# --- blocks ------------------------------------------------------------------------------------


def test_a_copied_prefix_continues_with_the_same_bits(model: TinyModel) -> None:
    ids = tokens(48)
    runner = runner_of(model)
    expected = whole(runner, ids)
    line = timeline(runner, ids, [0, 1, 2, 3])
    step(runner, [line.take(32)])
    for g, table in enumerate(line.tables):
        moved = [20, 21]
        runner.copy_blocks(g, [(table[0], 20), (table[1], 21)])
        line.tables[g] = [*moved, table[2]]
    poison(runner, but=line.tables)
    assert (step(runner, [line.take(16)])[0] == expected[32:]).all()


def test_copies_happen_in_order() -> None:
    runner = runner_of(MODELS["llama"])
    whole(runner, tokens(16), [5])
    block = runner.read_blocks(0, [5])
    runner.copy_blocks(0, [(5, 6), (6, 7)])
    assert runner.read_blocks(0, [6, 7]) == block * 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_read_and_written_blocks_continue_with_the_same_bits(
    model: TinyModel, dtype: type[np.floating]
) -> None:
    ids = tokens(48)
    first = runner_of(model, dtype)
    expected = whole(first, ids)
    second = runner_of(model, dtype)
    line = timeline(second, ids, [9, 8, 7, 6])
    line.done = 32
    source = timeline(first, ids, list(range(8)))
    for g in range(len(first.cache_groups)):
        data = first.read_blocks(g, source.tables[g][:2])
        assert len(data) == 2 * first.block_bytes(g)
        second.write_blocks(g, line.tables[g][:2], data)
    assert (step(second, [line.take(16)])[0] == expected[32:]).all()


def test_bytes_of_another_size_are_refused() -> None:
    runner = runner_of(MODELS["llama"])
    data = runner.read_blocks(0, [0, 1])
    for wrong in (data[:-4], data + b"\0" * 4, b"", data[: len(data) // 2]):
        with pytest.raises(ValueError, match="bytes"):
            runner.write_blocks(0, [0, 1], wrong)


def test_growing_keeps_contents_and_adds_blocks(model: TinyModel) -> None:
    ids = tokens(48)
    runner = runner_of(model, num_blocks=3)
    expected = whole(runner_of(model), ids)
    line = timeline(runner, ids, [0, 1, 2])
    step(runner, [line.take(30)])
    runner.grow(50)
    assert runner.num_blocks == 50
    line.tables = [[*table[:2], 49] for table in line.tables]
    assert (step(runner, [line.take(18)])[0] == expected[30:]).all()
    runner.grow(10)
    assert runner.num_blocks == 50


def test_a_row_without_a_block_is_refused() -> None:
    runner = runner_of(MODELS["llama"])
    short = RowGroup(tokens(20), 0, [[0]], 1)
    long = RowGroup(tokens(20), 0, [[1, 2]], 1)
    for groups in ([short], [short, long]):
        with pytest.raises(LibraryError, match="no block"):
            step(runner, groups)


# --- batches -----------------------------------------------------------------------------------


def test_only_the_rows_asked_for_get_logits(model: TinyModel) -> None:
    ids = tokens(20)
    runner = runner_of(model)
    expected = whole(runner, ids)
    line = timeline(runner, ids, [0, 1])
    group = replace(line.take(20), num_logits_rows=3)
    none = RowGroup(tokens(5), 0, [[5]] * len(runner.cache_groups), 0)
    runner.execute(Batch.from_groups([none, group], len(runner.cache_groups)))
    assert (runner.logits() == expected[-3:]).all()


def test_a_step_that_only_fills_the_cache() -> None:
    runner = runner_of(MODELS["llama"])
    runner.execute(Batch.from_groups([RowGroup(tokens(5), 0, [[0]], 0)], 1))
    assert runner.logits().shape == (0, 300)
    assert runner.sample([]) == []


def test_embeddings_stand_in_for_ids() -> None:
    """Given unscaled, they are taken as they are."""
    model = MODELS["gemma3"]
    runner = runner_of(model)
    ids = tokens(12)
    expected = whole(runner, ids)
    group = timeline(runner, [*ids[:3], -1, -1, *ids[5:]], [0, 1]).take(12)
    batch = Batch.from_groups([group], len(runner.cache_groups))
    given = np.full((12, 64), np.nan, np.float32)
    rows = tiny_weights(model, seed=0)["token_embd.weight"][ids[3:5]]
    given[3:5] = rows * np.float32(8.0)
    runner.execute(replace(batch, embeddings=given))
    assert (runner.logits() == expected).all()


def test_sampling_is_by_row() -> None:
    runner = runner_of(MODELS["llama"])
    logits = whole(runner, tokens(3))
    rows = [ChooseToken(GREEDY, 1, 1), ScoreToken(17, 0), ChooseToken(GREEDY, 1, 3)]
    first, second, third = runner.sample(rows)
    assert (first.token_id, third.token_id) == (logits[0].argmax(), logits[2].argmax())
    assert second.token_id == 17
    with pytest.raises(ValueError, match="zip"):
        runner.sample(rows[:2])


def test_close_twice() -> None:
    runner = runner_of(MODELS["llama"])
    runner.close()
    runner.close()


def test_numerics_class_and_sizes() -> None:
    assert runner_of(MODELS["llama"]).numerics_class == "oracle-float32"
    double = runner_of(MODELS["gemma3"], np.float64)
    assert double.numerics_class == "oracle-float64"
    # The full group has layer 1; two key heads of 32 + 32, eight bytes each, sixteen tokens.
    assert double.block_bytes(1) == 16 * 2 * 64 * 8


# --- precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", DEFAULTS)
def test_float32_is_close_to_float64(family: str) -> None:
    """Measured: 1.1e-6 of the largest logit at most."""
    model = DEFAULTS[family]
    ids = tokens(64)
    single, double = (whole(runner_of(model, dtype), ids) for dtype in (np.float32, np.float64))
    assert double.dtype == np.float64
    assert np.abs(single - double).max() / np.abs(double).max() < 5e-6


# --- attention, a second time ------------------------------------------------------------------


def dense_attention(op: Attention, q: Floats, k: Floats, v: Floats, sinks: Floats | None) -> Floats:
    """The whole sequence at once, from the definition, in float64: (T, heads * value size)."""
    n = len(q)
    group = op.num_heads // op.num_kv_heads
    queries = q.reshape(n, op.num_heads, op.key_size).astype(np.float64)
    keys = np.repeat(k.reshape(n, op.num_kv_heads, op.key_size), group, axis=1)
    values = np.repeat(v.reshape(n, op.num_kv_heads, op.value_size), group, axis=1)
    scores = np.einsum("phd,shd->hps", queries, keys.astype(np.float64)) * op.scale
    if op.soft_cap is not None:
        scores = op.soft_cap * np.tanh(scores / op.soft_cap)
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    hidden = np.zeros((n, n), bool) if op.mask is Mask.NONE else distance < 0
    if op.window is not None:
        hidden = hidden | (distance >= op.window)
    scores[:, hidden] = -np.inf
    if sinks is not None:
        column = np.broadcast_to(sinks[:, None, None], (op.num_heads, n, 1))
        scores = np.concatenate([scores, column], axis=2)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.einsum("hps,shd->phd", weights[:, :, :n], values).reshape(n, -1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"window": 1},
        {"window": 5},
        {"window": 16},
        {"window": 1000},
        {"soft_cap": 2.0},
        {"sinks": WeightView("sinks", (6,), "F32")},
        {"scale": 3.0},
        {"mask": Mask.NONE},
        {"window": 7, "soft_cap": 1.5, "sinks": WeightView("sinks", (6,), "F32")},
    ],
    ids=str,
)
def test_attention_is_the_dense_one(changes: dict[str, object]) -> None:
    op = Attention(3, 0, 1, 2, 0, 0, 6, 2, 16, 24, 0.25)  # type: ignore[arg-type]
    op = replace(op, **changes)  # type: ignore[arg-type]
    draw = np.random.default_rng(3)
    q, k, v = (draw.standard_normal((45, width)) for width in (96, 32, 48))
    sinks = draw.standard_normal(6)
    plan = plan_of(replace(DEFAULTS["llama"], layers=1))
    group = replace(plan.cache_groups[0], caches=(CacheSpec(0, 2, 16, 24),))
    lone = replace(
        plan, operations=(op,), cache_groups=(group,), outputs={"logits": 3, "hidden": 3}
    )
    runner = OracleRunner(
        lone,  # type: ignore[arg-type]
        MemorySource({"sinks": sinks.astype(np.float32)}),
        num_blocks=8,
        dtype=np.float64,
    )
    expected = dense_attention(op, q, k, v, sinks.astype(np.float32) if op.sinks else None)
    got = _attend_in_pieces(runner, op, (q, k, v), [45] if op.mask is Mask.NONE else [20, 1, 24])
    assert np.abs(got - expected).max() < 1e-13


def _attend_in_pieces(
    runner: OracleRunner, op: Attention, values: tuple[Floats, ...], sizes: list[int]
) -> Floats:
    out: list[Floats] = []
    first = 0
    for size in sizes:
        rows = slice(first, first + size)
        group = RowGroup([0] * size, first, [[5, 2, 7]], 0)
        batch = Batch.from_groups([group], 1)
        given = {i: value[rows] for i, value in enumerate(values)}
        out.append(runner._run(op, given, batch))  # type: ignore[arg-type]
        first += size
    return np.concatenate(out)


# --- the whole model, a second time ------------------------------------------------------------


def dense_llama(model: TinyModel, ids: Sequence[int]) -> Floats:
    """A llama from its paper, whole sequence, float64, nothing shared with the executor; with
    experts, Mixtral from its."""
    w = {name: data.astype(np.float64) for name, data in tiny_weights(model, seed=0).items()}
    x = w["token_embd.weight"][list(ids)]

    def norm(rows: Floats, name: str) -> Floats:
        return rows / np.sqrt((rows**2).mean(1, keepdims=True) + 1e-5) * w[f"{name}.weight"]

    def turn(rows: Floats) -> Floats:
        pairs = rows.reshape(len(rows), -1, model.head_size // 2, 2)
        as_complex = pairs[..., 0] + 1j * pairs[..., 1]
        speed = model.rope_base ** (-np.arange(model.head_size // 2) * 2 / model.head_size)
        turned = as_complex * np.exp(1j * np.outer(np.arange(len(rows)), speed))[:, None, :]
        return np.stack([turned.real, turned.imag], axis=-1).reshape(rows.shape)

    for layer in range(model.layers):
        b = f"blk.{layer}."
        kv_heads = model.per_layer(model.kv_heads)[layer]
        size = model.head_size
        h = norm(x, b + "attn_norm")
        q, k, v = (h @ w[f"{b}attn_{part}.weight"].T for part in "qkv")
        op = Attention(0, 0, 0, 0, 0, 0, 4, kv_heads, size, size, size**-0.5)  # type: ignore[arg-type]
        x = x + dense_attention(op, turn(q), turn(k), v, None) @ w[b + "attn_output.weight"].T
        h = norm(x, b + "ffn_norm")
        if model.experts:
            x = x + dense_experts(h, w, b, model.experts_used)
            continue
        x = x + swiglu(h, *(w[f"{b}ffn_{part}.weight"] for part in ("gate", "up", "down")))
    return norm(x, "output_norm") @ w["output.weight"].T


def swiglu(h: Floats, gate: Floats, up: Floats, down: Floats) -> Floats:
    g = h @ gate.T
    return (g / (1 + np.exp(-g)) * (h @ up.T)) @ down.T


def dense_experts(h: Floats, w: dict[str, Floats], block: str, num_used: int) -> Floats:
    """Every expert for every row, those that are not chosen by zero."""
    logits = h @ w[f"{block}ffn_gate_inp.weight"].T
    least = np.sort(logits, axis=1)[:, -num_used, None]
    weights = np.where(logits >= least, np.exp(logits), 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    parts = [w[f"{block}ffn_{part}_exps.weight"] for part in ("gate", "up", "down")]
    outs = [swiglu(h, *matrices) for matrices in zip(*parts, strict=True)]
    return np.einsum("te,etw->tw", weights, np.stack(outs))


EXPERTS = {"kv_heads": 2, "feed_forward": 48, "experts": 6, "experts_used": 2}


@pytest.mark.parametrize("changes", [{}, EXPERTS], ids=["dense", "experts"])
def test_llama_is_the_one_of_its_paper(changes: dict[str, Any]) -> None:
    model = replace(MODELS["llama"], **changes)
    ids = tokens(40)
    expected = dense_llama(model, ids)
    got = whole(runner_of(model, np.float64), ids)
    assert np.abs(got - expected).max() / np.abs(expected).max() < 1e-12


# --- experts -----------------------------------------------------------------------------------


def route(logits: Sequence[Sequence[float]], op: MoeRoute) -> Floats:
    lone = plan_of(DEFAULTS["llama"])
    runner = OracleRunner(
        lone, MemorySource(tiny_weights(DEFAULTS["llama"], 0)), num_blocks=1, dtype=np.float64
    )
    batch = Batch.from_groups([RowGroup([0] * len(logits), 0, [[0]], 0)], 1)
    return runner._run(op, {ValueId(0): np.array(logits)}, batch)


@pytest.mark.parametrize("normalised", [True, False])
def test_a_route_is_the_largest_logits_and_their_share(normalised: bool) -> None:
    """Of equals the lowest id comes first, and stays where there is no room for all."""
    op = MoeRoute(ValueId(1), ValueId(0), 2, normalised, scale=2.0)
    e = np.exp([0.0, -1.0])
    got = route([[0.0, 1.0, -9.0], [3.0, 3.0, 3.0]], op)
    assert got[:, :2].tolist() == [[1, 0], [0, 1]]
    shares = e / (e.sum() + (0.0 if normalised else np.exp(-10.0)))
    assert np.abs(got[0, 2:] - 2.0 * shares).max() < 1e-15
    assert got[1, 2:].tolist() == ([1.0, 1.0] if normalised else [2 / 3, 2 / 3])
