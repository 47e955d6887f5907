"""Hidden states of executors: the final norm's rows, whoever else is in the step, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeserve.errors import LibraryError
from edgeserve.loader.gguf import ModelFile, read_gguf
from edgeserve.loader.tensors import TensorReader
from edgeserve.models import build_plan
from edgeserve.runner.batch import Batch, RowGroup
from edgeserve.runner.native_runner import NativeRunner
from edgeserve.runner.oracle_runner import OracleRunner

from .test_native_runner import SETS, Setup, open_runner, timeline
from .test_oracle import MODELS, tokens
from .tiny_models import write_tiny_model

Runner = NativeRunner | OracleRunner
Rows = NDArray[np.floating]


@pytest.fixture(scope="module", params=MODELS)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    model = MODELS[request.param]
    overrides = {f: getattr(model, f) for f in model.__dataclass_fields__ if f != "family"}
    path = tmp_path_factory.mktemp("hidden") / "tiny.gguf"
    return read_gguf(write_tiny_model(Path(path), model.family, quant="Q8_0", **overrides))


@pytest.fixture
def opened(file: ModelFile) -> Iterator[Callable[[Setup | None], Runner]]:
    """Native with a setup, the oracle without."""
    runners: list[Runner] = []

    def make(setup: Setup | None) -> Runner:
        runners.append(oracle(file) if setup is None else open_runner(file, setup))
        return runners[-1]

    yield make
    for runner in runners:
        runner.close()


def oracle(file: ModelFile) -> OracleRunner:
    with TensorReader(file) as tensors:
        plan = build_plan(file.metadata, file.tensors)
        return OracleRunner(plan, tensors, num_blocks=48, dtype=np.float64)


def hidden_in_chunks(runner: Runner, ids: Sequence[int], size: int) -> Rows:
    line = timeline(runner, ids, range(8))  # type: ignore[arg-type]
    pieces: list[Rows] = []
    while line.done < len(ids):
        group = line.take(size)
        group = replace(group, num_logits_rows=0, num_hidden_rows=len(group.token_ids))
        runner.execute(Batch.from_groups([group], len(runner.cache_groups)))
        assert len(runner.logits()) == 0
        pieces.append(runner.hidden())
    return np.concatenate(pieces)


@pytest.mark.parametrize(
    "setup",
    [
        None,
        Setup(num_threads=3),
        Setup(fuse=False, num_threads=2),
        *[Setup(kernels=name) for name in SETS],
    ],
    ids=str,
)
def test_chunks_threads_fusion_and_kernels_change_no_bit(
    opened: Callable[[Setup | None], Runner], setup: Setup | None
) -> None:
    ids = tokens(45)
    first = None if setup is None else Setup(kernels="ref", fuse=False)
    expected = hidden_in_chunks(opened(first), ids, 1)
    assert expected.std() > 0.1
    for size in (3, 17, 45):
        assert hidden_in_chunks(opened(setup), ids, size).tobytes() == expected.tobytes()


@pytest.mark.parametrize("setup", [None, Setup(num_threads=2), Setup(fuse=False)], ids=str)
def test_rows_with_logits_beside_change_no_bit(
    opened: Callable[[Setup | None], Runner], setup: Setup | None
) -> None:
    """Some rows of a step give logits and some hidden states, in any order of their groups."""
    runner, alone = opened(setup), opened(setup)
    ids, others = tokens(30), tokens(80)[40:]
    expected = hidden_in_chunks(alone, ids, 30)
    talker = timeline(alone, others, range(8, 16))  # type: ignore[arg-type]
    alone.execute(Batch.from_groups([talker.take(40)], len(runner.cache_groups)))
    logits = alone.logits()
    for order in (1, -1):
        line = timeline(runner, ids, range(8))  # type: ignore[arg-type]
        talker = timeline(runner, others, range(8, 16))  # type: ignore[arg-type]
        hidden: list[Rows] = []
        said: list[Rows] = []
        for size, num_hidden, num_logits in ((10, 10, 3), (7, 7, 0), (13, 4, 13)):
            groups = [
                replace(line.take(size), num_logits_rows=0, num_hidden_rows=num_hidden),
                replace(talker.take(13), num_logits_rows=num_logits),
            ]
            runner.execute(Batch.from_groups(groups[::order], len(runner.cache_groups)))
            hidden.append(runner.hidden())
            said.append(runner.logits())
        wanted = np.concatenate([expected[:17], expected[26:]])
        assert np.concatenate(hidden).tobytes() == wanted.tobytes()
        of_logits = np.concatenate([logits[10:13], logits[26:39]])
        assert np.concatenate(said).tobytes() == of_logits.tobytes()


def test_native_rows_are_near_the_oracle_s(opened: Callable[[Setup | None], Runner]) -> None:
    ids = tokens(60)
    exact = hidden_in_chunks(opened(None), ids, 60)
    got = hidden_in_chunks(opened(Setup()), ids, 60)
    assert np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2)) < 3e-2


@pytest.mark.parametrize("counts", [(1, 1), (0, 9), (0, -1), (8, 8)])
def test_rows_that_cannot_be_are_refused(
    opened: Callable[[Setup | None], Runner], counts: tuple[int, int]
) -> None:
    """No row is asked for both: a step has room for each of its rows once."""
    runner = opened(Setup())
    tables = [[group] for group in range(len(runner.cache_groups))]
    batch = Batch.from_groups([RowGroup(tokens(8), 0, tables, *counts)], len(tables))
    with pytest.raises(LibraryError):
        runner.execute(batch)
    assert len(runner.hidden()) == 0
