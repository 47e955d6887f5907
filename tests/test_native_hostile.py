"""The native executor, used badly: crowded steps, aborts and closes from other threads, forks, and
arguments that do not go together. Answers are the right ones, or typed errors. That memory stays
whole is for scripts/sanitize to see, which runs these tests too."""

from __future__ import annotations

import os
import random
import signal
import threading
import traceback
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeserve.binding.executor import NativeExecutor, PlanArrays
from edgeserve.errors import (
    AbortedError,
    ClosedError,
    EdgeServeError,
    ForkedProcessError,
    LibraryError,
)
from edgeserve.loader.gguf import ModelFile, read_gguf
from edgeserve.loader.tensors import TensorReader
from edgeserve.models import build_plan
from edgeserve.runner.batch import BLOCK_SIZE, Batch, RowGroup
from edgeserve.runner.kv_types import KV_TYPES
from edgeserve.runner.native_runner import (
    NativeRunner,
    _PlanWriter,  # pyright: ignore[reportPrivateUsage]
)
from edgeserve.runner.native_weights import NativeWeights
from edgeserve.runner.regions import RowOpKind

from .test_native_runner import NUM_BLOCKS, SETS, Setup, open_runner, poison
from .test_oracle import MODELS, Timeline, tokens
from .tiny_models import write_tiny_model

F16 = KV_TYPES["f16"]
SECONDS = 60
MAX_ROWS = 64


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModelFile]:
    folder = tmp_path_factory.mktemp("hostile")

    def make(name: str) -> ModelFile:
        path: Path = folder / f"{name}.gguf"
        if not path.exists():
            model = MODELS[name]
            overrides = {f: getattr(model, f) for f in model.__dataclass_fields__ if f != "family"}
            write_tiny_model(path, model.family, quant="Q8_0", **overrides)
        return read_gguf(path)

    return make


@pytest.fixture
def llama(model_of: Callable[[str], ModelFile]) -> ModelFile:
    return model_of("llama")


def one_group(count: int, num_logits_rows: int = 1) -> Batch:
    table = list(range((count - 1) // BLOCK_SIZE + 1))
    return Batch.from_groups([RowGroup(tokens(count), 0, [table], num_logits_rows)], 1)


@contextmanager
def in_background(work: Callable[[], None]) -> Generator[None]:
    """Runs `work` in a thread, which has to end well, and soon after the body does."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        yield
        future.result(SECONDS)


# --- crowded steps -------------------------------------------------------------------------------


class Crowd:
    """Sequences that start, fork and end at random, in steps of many groups.

    Forks share full blocks, as a prefix cache would, and own a copy of the last. Blocks that are
    given back are taken again with whatever is in them.
    """

    def __init__(self, runner: NativeRunner, source: random.Random) -> None:
        self._runner = runner
        self._random = source
        self._groups = range(len(runner.cache_groups))
        self._owners = [0] * runner.num_blocks
        self._lines: list[Timeline] = []
        self.rows_seen: dict[tuple[int, ...], bytes] = {}
        self.hidden_seen: dict[tuple[int, ...], bytes] = {}
        """Logits by the tokens that they follow."""

    def start(self) -> None:
        length = self._random.choice([1, 2, 15, 16, 17, 40, 130])
        ids = tokens(length, self._random.randrange(3))
        self._lines.append(Timeline(ids, [[] for _ in self._groups]))

    def fork(self) -> None:
        parent = self._random.choice(self._lines)
        full, part = divmod(parent.done, BLOCK_SIZE)
        ids = [*parent.token_ids[: parent.done], *tokens(self._random.randint(1, 30), 7)]
        child = Timeline(ids, [table[:full] for table in parent.tables], parent.done)
        if part and self._owners.count(0) < len(self._groups):
            return
        for group in self._groups:
            for block in child.tables[group]:
                self._owners[block] += 1
            if part:
                child.tables[group].append(self._take_block())
                pair = (parent.tables[group][full], child.tables[group][full])
                self._runner.copy_blocks(group, [pair])
        self._lines.append(child)

    def end(self) -> None:
        line = self._lines.pop(self._random.randrange(len(self._lines)))
        for block in (block for table in line.tables for block in table):
            self._owners[block] -= 1

    def step(self) -> None:
        """One step, again for as long as it is aborted; remembers the logits, and compares."""
        chosen, left = list[tuple[Timeline, RowGroup]](), MAX_ROWS
        for line in self._random.sample(self._lines, len(self._lines)):
            size = min(self._random.choice([1, 1, 1, 2, 16, 17, 64]), left)
            size = min(size, len(line.token_ids) - line.done)
            if size > 0 and self._has_blocks(line, size):
                count = self._random.randint(0, size)
                hidden = self._random.random() < 0.3
                wanted = {"num_logits_rows": 0 if hidden else count}
                wanted |= {"num_hidden_rows": count if hidden else 0}
                chosen.append((line, replace(line.take(size), **wanted)))
                left -= size
        if not chosen:
            return
        batch = Batch.from_groups([group for _, group in chosen], len(self._groups))
        while True:
            try:
                self._runner.execute(batch)
                break
            except AbortedError:
                assert len(self._runner.logits()) == len(self._runner.hidden()) == 0
        self._remember(chosen)

    def _remember(self, chosen: list[tuple[Timeline, RowGroup]]) -> None:
        rows, hidden = iter(self._runner.logits()), iter(self._runner.hidden())
        for line, group in chosen:
            for end in range(line.done - group.num_logits_rows, line.done):
                bits = next(rows).tobytes()
                key = tuple(line.token_ids[: end + 1])
                assert self.rows_seen.setdefault(key, bits) == bits
            for end in range(line.done - group.num_hidden_rows, line.done):
                bits = next(hidden).tobytes()
                key = tuple(line.token_ids[: end + 1])
                assert self.hidden_seen.setdefault(key, bits) == bits
        assert next(rows, None) is None
        assert next(hidden, None) is None

    def _has_blocks(self, line: Timeline, size: int) -> bool:
        needed = (line.done + size - 1) // BLOCK_SIZE + 1
        missing = [needed - len(table) for table in line.tables]
        if sum(missing) > self._owners.count(0):
            return False
        for table, count in zip(line.tables, missing, strict=True):
            table.extend(self._take_block() for _ in range(count))
        return True

    def _take_block(self) -> int:
        block = self._random.choice([i for i, owners in enumerate(self._owners) if owners == 0])
        self._owners[block] = 1
        return block

    def do_something(self) -> None:
        if len(self._lines) < 14 and self._random.random() < 0.6:
            self.start()
        if self._lines and self._random.random() < 0.5:
            self.fork()
        if self._lines and self._random.random() < 0.2:
            self.end()
        self.step()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", MODELS)
def test_crowds_forks_and_aborts_change_no_bit(
    model_of: Callable[[str], ModelFile], name: str, seed: int
) -> None:
    source = random.Random(seed)
    setup = Setup(source.randint(1, 5), source.choice(SETS), source.random() < 0.7, MAX_ROWS)
    runner = open_runner(model_of(name), setup)
    runner.grow(NUM_BLOCKS + source.choice([0, 5, 100]))
    poison(runner)
    done = threading.Event()

    def abort_now_and_then() -> None:
        pauses = random.Random(seed)
        for _ in range(60):
            done.wait(pauses.random() * 5e-3)
            runner.abort(True)
            done.wait(pauses.random() * 2e-4)
            runner.abort(False)

    crowd = Crowd(runner, source)
    with in_background(abort_now_and_then):
        try:
            for _ in range(25):
                crowd.do_something()
        finally:
            done.set()
    runner.close()
    assert len(crowd.rows_seen) + len(crowd.hidden_seen) > 60
    check_alone(model_of(name), crowd, source)


def check_alone(file: ModelFile, crowd: Crowd, source: random.Random) -> None:
    """Some of the crowd's rows beside those of a runner that computes nothing else."""
    alone = open_runner(file, Setup(kernels="ref", max_rows=512))
    for ids in source.sample(sorted(crowd.rows_seen), 5):
        table = list(range(len(ids) // BLOCK_SIZE + 1))
        tables = [table for _ in alone.cache_groups]
        alone.execute(Batch.from_groups([RowGroup(ids, 0, tables, 1)], len(tables)))
        assert alone.logits().tobytes() == crowd.rows_seen[ids]
    for ids in source.sample(sorted(crowd.hidden_seen), 3):
        tables = [list(range(len(ids) // BLOCK_SIZE + 1)) for _ in alone.cache_groups]
        alone.execute(Batch.from_groups([RowGroup(ids, 0, tables, 0, 1)], len(tables)))
        assert alone.hidden().tobytes() == crowd.hidden_seen[ids]
    alone.close()


# --- other threads, other processes --------------------------------------------------------------


def step_without_end(runner: NativeRunner, started: threading.Event) -> None:
    batch = one_group(60)
    while True:
        started.set()
        runner.execute(batch)


def test_closing_ends_the_step_of_another_thread(llama: ModelFile) -> None:
    for pause in (0.0, 1e-4, 1e-3, 1e-2) * 3:
        runner = open_runner(llama, Setup(num_threads=2))
        started = threading.Event()

        def work(runner: NativeRunner = runner, started: threading.Event = started) -> None:
            with pytest.raises((AbortedError, ClosedError)):
                step_without_end(runner, started)

        with in_background(work):
            assert started.wait(SECONDS)
            threading.Event().wait(pause)
            runner.close()


def test_closing_from_many_threads_while_others_abort(llama: ModelFile) -> None:
    for _ in range(20):
        runner = open_runner(llama, Setup(num_threads=2))
        line_up = threading.Barrier(4)

        def close(runner: NativeRunner = runner, line_up: threading.Barrier = line_up) -> None:
            line_up.wait(SECONDS)
            runner.close()

        def abort(runner: NativeRunner = runner, line_up: threading.Barrier = line_up) -> None:
            line_up.wait(SECONDS)
            for raised in (True, False) * 50:
                runner.abort(raised)

        with in_background(close), in_background(close), in_background(abort):
            line_up.wait(SECONDS)
        with pytest.raises(ClosedError):
            runner.execute(one_group(3))


def test_a_closed_runner_says_so(llama: ModelFile) -> None:
    runner = open_runner(llama)
    runner.close()
    runner.close()
    runner.abort(True)  # too late, and no error: whoever aborts cannot know
    calls: list[Callable[[], object]] = [
        lambda: runner.execute(one_group(3)),
        runner.logits,
        lambda: runner.sample([]),
        lambda: runner.block_bytes(0),
        lambda: runner.copy_blocks(0, [(0, 1)]),
        lambda: runner.read_blocks(0, [0]),
        lambda: runner.write_blocks(0, [0], b""),
        lambda: runner.grow(NUM_BLOCKS + 1),
    ]
    for call in calls:
        with pytest.raises(ClosedError):
            call()


def test_runners_of_several_threads_do_not_meet(llama: ModelFile) -> None:
    batch = one_group(40, 40)
    alone = open_runner(llama)
    alone.execute(batch)
    expected = alone.logits().tobytes()
    wrong: list[int] = []

    def work(num_threads: int) -> None:
        runner = open_runner(llama, Setup(num_threads=num_threads))
        for i in range(40):
            runner.execute(batch)
            if runner.logits().tobytes() != expected:
                wrong.append(i)
        runner.close()

    with in_background(lambda: work(2)), in_background(lambda: work(3)):
        work(1)
    alone.close()
    assert wrong == []


def child_of_a_fork(runner: NativeRunner, file: ModelFile, expected: bytes) -> int:
    """0 if all is well. Nothing of the parent's is usable here, but a new runner is."""
    batch = one_group(40, 40)
    for call in (lambda: runner.execute(batch), runner.logits, lambda: runner.copy_blocks(0, [])):
        try:
            call()
            return 2
        except ForkedProcessError:
            pass
    runner.close()
    own = open_runner(file, Setup(num_threads=2))
    own.execute(batch)
    same = own.logits().tobytes() == expected
    own.close()
    return 0 if same else 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_forks_in_the_middle_of_steps_leave_both_processes_whole(llama: ModelFile) -> None:
    batch = one_group(40, 40)
    runner = open_runner(llama, Setup(num_threads=2))
    runner.execute(batch)
    expected = runner.logits().tobytes()
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            runner.execute(batch)

    statuses: list[int] = []
    with in_background(work):
        for _ in range(6):
            child = os.fork()
            if child == 0:
                signal.alarm(SECONDS)
                try:
                    os._exit(child_of_a_fork(runner, llama, expected))
                except BaseException:
                    traceback.print_exc()
                os._exit(1)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        done.set()
    assert statuses == [0] * 6
    assert runner.logits().tobytes() == expected
    runner.close()


# --- arguments -----------------------------------------------------------------------------------


def refused(runner: NativeRunner, batch: Batch, match: str) -> None:
    with pytest.raises(LibraryError, match=match):
        runner.execute(batch)


def test_arrays_that_do_not_go_together_are_refused(llama: ModelFile) -> None:
    """C is given pointers, and would read on."""
    runner, batch = open_runner(llama), one_group(20)
    for name in ("token_ids", "positions", "first_row", "num_logits_rows", "num_hidden_rows"):
        array = getattr(batch, name)
        for wrong in (array[:-1].copy(), array.astype(np.int16), array.astype(np.int64)):
            refused(runner, replace(batch, **{name: wrong}), " and must be ")
    for shape in ((0, 1, 2), (2, 1), (1, 0, 2), (1, 2, 1)):
        refused(runner, replace(batch, block_tables=np.zeros(shape, np.int32)), "block_tables")
    for rows in (np.zeros((20, 3), np.float32), np.zeros((19, 64), np.float32), np.zeros((20, 64))):
        refused(runner, replace(batch, embeddings=rows), "embeddings")
    runner.execute(batch)
    runner.close()


@pytest.mark.parametrize("first", [511, 512, 2**31 - 2, 2**31 - 1])
def test_positions_near_the_last_number_are_refused(llama: ModelFile, first: int) -> None:
    """The second row's position is none: past the context, or past int32."""
    runner = open_runner(llama)
    refused(runner, Batch.from_groups([RowGroup([5, 5], first, [[0] * 33], 1)], 1), "out of range")
    runner.close()


INTERESTING = [*range(-2, 5), 15, 16, 17, 32, 64, 96, 300, 2**16, 2**31 - 16, 2**31 - 1, -(2**31)]
TABLES = ("regions", "row_ops", "linears", "attentions", "caches")
NUMBERS = ("num_cache_groups", "logits", "vocab_size", "max_rows", "max_position")


def spoil(plan: PlanArrays, source: random.Random) -> PlanArrays:
    """One number of the plan is another one."""
    value = source.choice(INTERESTING)
    what = source.choice([*TABLES, *TABLES, *NUMBERS, "slot_widths"])
    if what in NUMBERS:
        return replace(plan, **{what: value})
    items = list(getattr(plan, what))
    index = source.randrange(len(items))
    if what == "slot_widths":
        items[index] = value
    else:
        whole = [name for name, number in items[index].items() if isinstance(number, int)]
        items[index] = {**items[index], source.choice(whole): value}
    return replace(plan, **{what: items})


def written(file: ModelFile, tensors: TensorReader, fuse: bool) -> tuple[PlanArrays, NativeWeights]:
    """A plan as C gets it, and the weights in it, which are the caller's to close."""
    plan = build_plan(file.metadata, file.tensors)
    weights = NativeWeights(plan, fuse=fuse)
    weights.fill(tensors, 1)
    return _PlanWriter(plan, tensors, weights, 32, F16).finish(), weights


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_a_spoiled_plan_is_refused_or_computes_something(
    model_of: Callable[[str], ModelFile], name: str, fuse: bool
) -> None:
    """Whatever numbers a plan holds, no step leaves its memory."""
    file = model_of(name)
    source = random.Random(name)
    with TensorReader(file) as tensors:
        plan, weights = written(file, tensors, fuse)
    outcomes = [try_plan(spoil(spoil(plan, source), source)) for _ in range(150)]
    weights.close()
    assert outcomes.count(True) > 10
    assert outcomes.count(False) > 10


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("route", {"rows": 1}),
        ("experts", {"n_experts": 4}),
        ("experts", {"n_experts": 16}),
        ("experts", {"n_experts": 0}),
        ("experts", {"route": 0}),
        ("experts", {"route": 99}),
        ("experts", {"rows": 1}),
        ("experts", {"count": 2}),
        ("experts", {"x": 99}),
        ("before", {"kind": 1}),
    ],
    ids=str,
)
def test_rows_go_to_no_experts_but_those_of_their_route(
    model_of: Callable[[str], ModelFile], kind: str, changes: dict[str, int]
) -> None:
    """A slot that holds anything else, or another region's rows, would name any memory."""
    file = model_of("qwen3moe")
    with TensorReader(file) as tensors:
        plan, weights = written(file, tensors, True)
    assert try_plan(plan)
    experts = next(i for i, region in enumerate(plan.regions) if region["kind"] == 3)
    at = {"experts": experts, "route": experts - 1, "before": experts - 1}[kind]
    regions = list(plan.regions)
    regions[at] = {**regions[at], **changes}
    assert not try_plan(replace(plan, regions=regions))
    weights.close()


@pytest.mark.parametrize("what", ["x", "out", "residual", "store_key", "q", "select"])
def test_a_region_that_writes_what_it_reads_is_refused(
    model_of: Callable[[str], ModelFile], what: str
) -> None:
    """Its units run in any order on any thread: the answer would depend on it."""
    file = model_of("llama")
    with TensorReader(file) as tensors:
        plan, weights = written(file, tensors, what != "select")
    assert try_plan(plan)
    regions = list(plan.regions)
    linears, ops = list(plan.linears), list(plan.row_ops)
    attentions = list(plan.attentions)
    fused = [region for region in regions if region["kind"] == 1 and region["count"] == 3]
    x, first = (int(fused[0]["x"]), int(fused[0]["first"])) if fused else (-1, -1)
    if what == "x":  # the query may be as wide as what it is computed from
        linears[first] = {**linears[first], "out": x}
    elif what == "out":
        linears[first + 1] = {**linears[first], "store_key": -1}
    elif what == "residual":
        linears[first + 1] = {**linears[first], "out": spare(plan, int(linears[first]["out"]), x)}
        linears[first] = {**linears[first], "residual": linears[first + 1]["out"]}
    elif what == "store_key":
        linears[first + 2] = {**linears[first + 1]}
    elif what == "q":
        attentions[0] = {**attentions[0], "out": attentions[0]["q"]}
    else:
        at = next(i for i, op in enumerate(ops) if op["kind"] == RowOpKind.SELECT)
        ops[at] = {**ops[at], "out": ops[at]["a"]}
    changed = replace(plan, linears=linears, row_ops=ops, attentions=attentions)
    assert not try_plan(changed)
    weights.close()


def spare(plan: PlanArrays, *taken: int) -> int:
    """Another slot as wide as the first of `taken`."""
    width = plan.slot_widths[taken[0]]
    return next(i for i, each in enumerate(plan.slot_widths) if each == width and i not in taken)


def try_plan(plan: PlanArrays) -> bool:
    """Whether C takes it; if so, after a step that ran."""
    try:
        executor = NativeExecutor(plan, num_threads=2, num_blocks=4, kernels=None)
    except EdgeServeError:
        return False
    groups = max(0, min(plan.num_cache_groups, 64))
    try:
        if groups == plan.num_cache_groups:
            tables = [list(range(2))] * groups
            batch = Batch.from_groups([RowGroup([1, 2, 3], 17, tables, 2)], groups)
            executor.step(
                batch.token_ids,
                batch.positions,
                batch.first_row,
                batch.num_logits_rows,
                batch.num_hidden_rows,
                batch.block_tables,
                None,
            )
            executor.logits()
            executor.hidden()
    except LibraryError:  # tokens or positions that this plan does not have
        pass
    finally:
        executor.close()
    return True
