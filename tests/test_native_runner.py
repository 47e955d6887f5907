"""The native executor: the laws by `==`, and its logits beside the oracle's.

Bits depend on a row's own sequence only: not on threads, chunks, neighbours, fusion, the kernel
set, or what lies in blocks that are not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeserve.binding.executor import kernel_sets
from edgeserve.errors import AbortedError, LibraryError
from edgeserve.loader.gguf import ModelFile, read_gguf
from edgeserve.loader.tensors import TensorReader
from edgeserve.models import build_plan
from edgeserve.plan.ops import Attention, Plan
from edgeserve.plan.weights import WeightView
from edgeserve.runner.batch import Batch, RowGroup
from edgeserve.runner.kv_types import KV_TYPES
from edgeserve.runner.native_runner import NativeRunner
from edgeserve.runner.oracle_runner import OracleRunner

from .test_oracle import MODELS, Timeline, tokens
from .tiny_models import TinyModel, write_tiny_model

NUM_BLOCKS = 48
Logits = NDArray[np.float32]
QUANTS = ("F32", "F16", "Q8_0", "Q5_1", "Q4_0")
SETS = [name for name, runs in kernel_sets() if runs]


@dataclass(frozen=True)
class Setup:
    """One way to run one model; everything in it may change speed and no bit."""

    num_threads: int = 1
    kernels: str | None = None
    fuse: bool = True
    max_rows: int = 64


KV_SETUPS = [
    *[Setup(kernels=name) for name in SETS],
    Setup(num_threads=4),
    Setup(fuse=False, num_threads=3),
]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], ModelFile]:
    folder = tmp_path_factory.mktemp("native")

    @cache
    def make(name: str, quant: str) -> ModelFile:
        return read_gguf(_write(folder, MODELS[name], name, quant))

    return make


def _write(folder: Path, model: TinyModel, name: str, quant: str) -> Path:
    # Widths of 96 are no multiple of 64, the unit that threads claim.
    overrides = {f: getattr(model, f) for f in model.__dataclass_fields__ if f != "family"}
    path = folder / f"{name}-{quant}.gguf"
    return write_tiny_model(path, model.family, quant=quant, **overrides)


def open_runner(
    file: ModelFile, setup: Setup = Setup(), *, plan: Plan | None = None, kv: str = "f16"
) -> NativeRunner:
    with TensorReader(file) as tensors:
        return NativeRunner(
            plan or build_plan(file.metadata, file.tensors),
            tensors,
            num_blocks=NUM_BLOCKS,
            num_threads=setup.num_threads,
            max_rows=setup.max_rows,
            kernels=setup.kernels,
            fuse=setup.fuse,
            kv_cache_dtype=kv,
        )


@pytest.fixture
def runner_of() -> Iterator[Callable[..., NativeRunner]]:
    opened: list[NativeRunner] = []

    def make(
        file: ModelFile, setup: Setup = Setup(), *, plan: Plan | None = None, kv: str = "f16"
    ) -> NativeRunner:
        opened.append(open_runner(file, setup, plan=plan, kv=kv))
        return opened[-1]

    yield make
    for runner in opened:
        runner.close()


def timeline(runner: NativeRunner, ids: Sequence[int], blocks: Sequence[int]) -> Timeline:
    count = len(runner.cache_groups)
    return Timeline(ids, [[*blocks[g:], *blocks[:g]] for g in range(count)])


def step(runner: NativeRunner, groups: list[RowGroup]) -> list[Logits]:
    runner.execute(Batch.from_groups(groups, len(runner.cache_groups)))
    ends = np.cumsum([group.num_logits_rows for group in groups])[:-1]
    return np.split(runner.logits(), ends)


def in_chunks(runner: NativeRunner, line: Timeline, size: int) -> Logits:
    pieces: list[Logits] = []
    while line.done < len(line.token_ids):
        pieces += step(runner, [line.take(size)])
    return np.concatenate(pieces)


def poison(runner: NativeRunner, *, but: Sequence[Sequence[int]] = ()) -> None:
    """NaN into every block, but for those of each cache group that are named."""
    for g in range(len(runner.cache_groups)):
        kept = set[int](but[g] if but else ())
        free = [block for block in range(runner.num_blocks) if block not in kept]
        nan = np.full(runner.block_bytes(g) // 2 * len(free), np.nan, np.float16)
        runner.write_blocks(g, free, nan.tobytes())


def reference(file: ModelFile, ids: Sequence[int], kv: str = "f16") -> Logits:
    """The reference kernels, one thread, unfused, one token at a time."""
    runner = open_runner(file, Setup(kernels="ref", fuse=False), kv=kv)
    logits = in_chunks(runner, timeline(runner, ids, range(20)), 1)
    runner.close()
    return logits


@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_near_the_oracle(
    model_file: Callable[[str, str], ModelFile],
    runner_of: Callable[..., NativeRunner],
    name: str,
    quant: str,
) -> None:
    """Float weights differ by the f16 cache and summation only; int8 activations cost more."""
    file = model_file(name, quant)
    ids = tokens(60)
    runner = runner_of(file)
    got = in_chunks(runner, timeline(runner, ids, range(8)), 60)
    with TensorReader(file) as tensors:
        plan = build_plan(file.metadata, file.tensors)
        oracle = OracleRunner(plan, tensors, num_blocks=8, dtype=np.float64)
    tables = [list(range(8))] * len(plan.cache_groups)
    oracle.execute(Batch.from_groups([RowGroup(ids, 0, tables, 60)], len(tables)))
    error = np.sqrt(np.mean((got - oracle.logits()) ** 2) / np.mean(oracle.logits() ** 2))
    assert error < (2e-3 if quant.startswith("F") else 3e-2)


@pytest.mark.parametrize("quant", ["F16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "setup",
    [
        Setup(),
        *[Setup(kernels=name) for name in SETS],
        *[Setup(num_threads=n) for n in (2, 4, 7)],
        Setup(fuse=False, num_threads=3),
    ],
    ids=str,
)
def test_setup_changes_no_bit(
    model_file: Callable[[str, str], ModelFile],
    runner_of: Callable[..., NativeRunner],
    name: str,
    quant: str,
    setup: Setup,
) -> None:
    file, ids = model_file(name, quant), tokens(45)
    expected = reference(file, ids)
    for size in (1, 3, 17, 45):
        runner = runner_of(file, setup)
        got = in_chunks(runner, timeline(runner, ids, range(20)), size)
        assert got.tobytes() == expected.tobytes(), f"chunks of {size}"


@pytest.mark.parametrize("kv", ["q8_0", "q4_0"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("setup", KV_SETUPS, ids=str)
def test_setup_changes_no_bit_of_an_integer_cache(
    model_file: Callable[[str, str], ModelFile],
    runner_of: Callable[..., NativeRunner],
    name: str,
    kv: str,
    setup: Setup,
) -> None:
    file, ids = model_file(name, "Q8_0"), tokens(45)
    expected = reference(file, ids, kv)
    for size in (1, 17, 45):
        runner = runner_of(file, setup, kv=kv)
        got = in_chunks(runner, timeline(runner, ids, range(20)), size)
        assert got.tobytes() == expected.tobytes(), f"chunks of {size}"


@pytest.mark.parametrize(("kv", "bound"), [("q8_0", 2e-2), ("q4_0", 3e-1)])
@pytest.mark.parametrize("name", MODELS)
def test_an_integer_cache_is_near_f16(
    model_file: Callable[[str, str], ModelFile],
    runner_of: Callable[..., NativeRunner],
    name: str,
    kv: str,
    bound: float,
) -> None:
    file, ids = model_file(name, "F32"), tokens(60)
    exact, got = (
        in_chunks(runner, timeline(runner, ids, range(8)), 60)
        for runner in (runner_of(file), runner_of(file, kv=kv))
    )
    error = np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2))
    assert 0.0 < error < bound


@pytest.mark.parametrize("kv", KV_TYPES)
@pytest.mark.parametrize("name", MODELS)
def test_blocks_are_as_large_as_is_planned_for(
    model_file: Callable[[str, str], ModelFile],
    runner_of: Callable[..., NativeRunner],
    name: str,
    kv: str,
) -> None:
    runner = runner_of(model_file(name, "Q8_0"), kv=kv)
    for index, group in enumerate(runner.cache_groups):
        token_bytes = sum(KV_TYPES[kv].cache_bytes(cache) for cache in group.caches)
        assert runner.block_bytes(index) == 16 * token_bytes


@pytest.mark.parametrize("kv", KV_TYPES)
def test_chunks_of_128_merge_the_same_alone_and_split(
    model_file: Callable[[str, str], ModelFile], runner_of: Callable[..., NativeRunner], kv: str
) -> None:
    """Long contexts: attention partials computed apart on many threads, or in turn on one."""
    file, ids = model_file("llama", "Q8_0"), tokens(400)
    blocks = list(range(25))
    one = runner_of(file, Setup(max_rows=400), kv=kv)
    expected = in_chunks(one, timeline(one, ids, blocks), 400)
    many = runner_of(file, Setup(num_threads=4), kv=kv)
    line = timeline(many, ids, blocks)
    prefill = [step(many, [line.take(n)])[0] for n in (60, 60, 60, 60, 60)]
    decode = in_chunks(many, line, 1)
    assert np.concatenate([*prefill, decode]).tobytes() == expected.tobytes()


SCHEDULE = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 18)), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)),
    st.sampled_from(sorted(KV_TYPES)),
    st.integers(1, 3),
    st.booleans(),
    st.lists(st.integers(1, 40), min_size=3, max_size=3),
    st.lists(SCHEDULE, min_size=1, max_size=6),
    st.permutations(range(NUM_BLOCKS)),
)
def test_any_schedule_gives_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    kv: str,
    num_threads: int,
    fuse: bool,
    lengths: list[int],
    steps: list[list[tuple[int, int]]],
    blocks: list[int],
) -> None:
    """Three sequences, in any batches and chunks, over scattered blocks, amid NaN."""
    path = tmp_path_factory.getbasetemp() / f"schedule-{name}.gguf"
    if not path.exists():
        _write(path.parent, MODELS[name], name, "Q8_0").rename(path)
    file = read_gguf(path)
    prompts = [tokens(length, seed) for seed, length in enumerate(lengths)]
    expected = [reference(file, ids, kv) for ids in prompts]
    runner = open_runner(file, Setup(num_threads=num_threads, fuse=fuse), kv=kv)
    poison(runner)
    lines = [timeline(runner, ids, blocks[4 * i : 4 * i + 4]) for i, ids in enumerate(prompts)]
    got: list[list[Logits]] = [[], [], []]
    for wanted in [*steps, *[[(i, 40)] for i in range(3)]]:
        chosen = {i: size for i, size in wanted if lines[i].done < len(prompts[i])}
        if chosen:
            pieces = step(runner, [lines[i].take(size) for i, size in chosen.items()])
            for i, piece in zip(chosen, pieces, strict=True):
                got[i].append(piece)
    runner.close()
    for i in range(3):
        assert np.concatenate(got[i]).tobytes() == expected[i].tobytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"soft_cap": 3.0, "scale": 0.4},
        {"sinks": WeightView("output_norm.weight", (4,), "F32")},
    ],
    ids=str,
)
def test_other_attention_is_the_oracles(
    model_file: Callable[[str, str], ModelFile],
    runner_of: Callable[..., NativeRunner],
    changes: dict[str, Any],
) -> None:
    """Attributes that no family here uses yet."""
    file, ids = model_file("llama", "F32"), tokens(40)
    plan = build_plan(file.metadata, file.tensors)
    changed = replace(
        plan,
        operations=tuple(
            replace(op, **changes) if isinstance(op, Attention) else op for op in plan.operations
        ),
    )
    runner = runner_of(file, plan=changed)
    got = in_chunks(runner, timeline(runner, ids, range(8)), 40)
    with TensorReader(file) as tensors:
        oracle = OracleRunner(changed, tensors, num_blocks=8, dtype=np.float64)
    oracle.execute(Batch.from_groups([RowGroup(ids, 0, [list(range(8))], 40)], 1))
    error = np.sqrt(np.mean((got - oracle.logits()) ** 2) / np.mean(oracle.logits() ** 2))
    assert error < 2e-3


# --- blocks, aborts, refusals --------------------------------------------------------------------


@pytest.mark.parametrize("kv", KV_TYPES)
@pytest.mark.parametrize("name", MODELS)
def test_blocks_travel(
    model_file: Callable[[str, str], ModelFile],
    runner_of: Callable[..., NativeRunner],
    name: str,
    kv: str,
) -> None:
    """Copied, read and written elsewhere, and after growth: the continuation has the same bits."""
    file, ids = model_file(name, "Q8_0"), tokens(48)
    runner = runner_of(file, kv=kv)
    expected = in_chunks(runner, timeline(runner, ids, range(4)), 16)[32:]
    groups = range(len(runner.cache_groups))
    tables = timeline(runner, ids, range(4)).tables
    other = [[NUM_BLOCKS + 3, NUM_BLOCKS + 1, NUM_BLOCKS + 2] for _ in groups]
    runner.grow(NUM_BLOCKS + 8)
    assert runner.num_blocks == NUM_BLOCKS + 8
    for g in groups:
        runner.copy_blocks(g, [(tables[g][0], other[g][0])])
        runner.write_blocks(g, other[g][1:2], runner.read_blocks(g, tables[g][1:2]))
    poison(runner, but=[table[:2] for table in other])
    line = Timeline(ids, other, done=32)
    assert step(runner, [line.take(16)])[0].tobytes() == expected.tobytes()


def test_an_abort_ends_steps_until_it_is_lowered(
    model_file: Callable[[str, str], ModelFile], runner_of: Callable[..., NativeRunner]
) -> None:
    runner = runner_of(model_file("llama", "Q8_0"))
    group = timeline(runner, tokens(5), range(4)).take(5)
    runner.abort(True)
    with pytest.raises(AbortedError):
        step(runner, [group])
    runner.abort(False)
    assert np.isfinite(step(runner, [group])[0]).all()


@pytest.mark.parametrize(
    ("ids", "first", "table", "num_logits"),
    [
        ([300], 0, [0], 1),
        ([-1], 0, [0], 1),
        ([5], -1, [0], 1),
        ([5], 512, list(range(33)), 1),
        ([5], 16, [0], 1),
        ([5], 0, [NUM_BLOCKS], 1),
        ([5], 0, [-1], 1),
        ([5], 0, [0], 2),
        ([5] * 65, 0, [0, 1, 2, 3, 4], 1),
    ],
)
def test_what_does_not_exist_is_refused(
    model_file: Callable[[str, str], ModelFile],
    runner_of: Callable[..., NativeRunner],
    ids: list[int],
    first: int,
    table: list[int],
    num_logits: int,
) -> None:
    runner = runner_of(model_file("llama", "Q8_0"))
    with pytest.raises(LibraryError):
        runner.execute(Batch.from_groups([RowGroup(ids, first, [table], num_logits)], 1))


def test_an_unknown_kernel_set_is_refused(
    model_file: Callable[[str, str], ModelFile], runner_of: Callable[..., NativeRunner]
) -> None:
    with pytest.raises(LibraryError, match="sse9"):
        runner_of(model_file("llama", "F32"), Setup(kernels="sse9"))


def test_embeddings_stand_in_for_tokens(
    model_file: Callable[[str, str], ModelFile], runner_of: Callable[..., NativeRunner]
) -> None:
    file, ids = model_file("llama", "F32"), tokens(6)
    runner = runner_of(file)
    expected = step(runner, [timeline(runner, ids, range(4)).take(6)])[0]
    with TensorReader(file) as tensors:
        rows = tensors.float32_rows("token_embd.weight", 0, 300)[ids]
    batch = Batch.from_groups([timeline(runner, [-1] * 6, range(4)).take(6)], 1)
    runner.execute(replace(batch, embeddings=np.ascontiguousarray(rows)))
    assert runner.logits().tobytes() == expected.tobytes()
