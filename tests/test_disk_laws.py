"""The law, over restarts: what is read from disk changes no answer, and need not be there.

Compared with ==: answers of an engine that computes everything, of one that fills the store, and of
later ones which find it, whole or damaged, while others run, in pools with little room.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeserve.build import load_model
from edgeserve.cache.disk_folder import DiskFolder
from edgeserve.cache.disk_segments import SegmentTables
from edgeserve.cache.disk_store import DiskStore
from edgeserve.cache.kv_cache import CacheCounts
from edgeserve.config import Config
from edgeserve.engine.engine import Engine
from edgeserve.engine_options import EngineOptions
from edgeserve.types import RequestOutput, SamplingParams

from .engine_harness import VOCAB_SIZE, Harness, make_engine, poison_reused_blocks, tiny_tokenizer
from .fake_runner import FakeRunner, hashed_logits
from .tiny_models import write_tiny_model

CONTEXT = 160
TOKENIZER = tiny_tokenizer()
IDENTITY = bytes(16)
ROOM = 60


def fake_engine(
    root: Path | None,
    num_blocks: int = ROOM,
    batched: int = 512,
    clock: Callable[[], float] = time.monotonic,
) -> Engine:
    """Over a runner that computes nothing, with a full group and two windows."""
    store = None
    if root is not None:
        store = DiskStore(DiskFolder(root), IDENTITY, {}, bound_bytes=1 << 24)
        assert store.wait_ready(10)
    engine = make_engine(
        FakeRunner(hashed_logits(VOCAB_SIZE, spread=3.0), num_blocks=num_blocks, windows=(24, 5)),
        max_model_len=CONTEXT,
        max_num_batched_tokens=batched,
        tokenizer=TOKENIZER,
        clock=clock,
        store=store,
    )
    poison_reused_blocks(engine)
    return engine


def answers(engine: Engine, prompts: Sequence[Sequence[int]], n: int = 1) -> list[RequestOutput]:
    """Of all at once; every step is checked."""
    bench = Harness(engine)
    params = SamplingParams(temperature=1.0, max_tokens=5, ignore_eos=True, logprobs=1, n=n)
    for at, prompt in enumerate(prompts):
        bench.add(str(at), prompt, params, seed=at)
    bench.run()
    assert bench.errors == {}
    return [bench.answer(str(at)) for at in range(len(prompts))]


def cached_tokens(engine: Engine, prompt: Sequence[int]) -> int:
    bench = Harness(engine)
    bench.add("one", prompt, SamplingParams(max_tokens=1))
    bench.run()
    return bench.outputs["one"].usage.cached_tokens


beginnings = st.tuples(st.sampled_from([100, 130, 160]), st.integers(1, 110), st.integers(0, 3))
prompts_of = st.lists(
    beginnings.map(lambda at: [*(at[0] + k % 90 for k in range(at[1])), 3 + at[2]]),
    min_size=1,
    max_size=4,
)


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(prompts_of, min_size=1, max_size=2),
    st.sampled_from([11, 16, ROOM]),
    st.sampled_from([7, 64, 512]),
    st.sampled_from([1, 1, 2]),
)
def test_answers_do_not_depend_on_what_lies_on_disk(
    tmp_path: Path,
    lives: list[list[list[int]]],
    num_blocks: int,
    batched: int,
    n: int,
) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    for prompts in [*lives, *lives]:
        cold = answers(fake_engine(None), prompts, n)
        engine = fake_engine(folder, num_blocks, batched)
        assert answers(engine, prompts, n) == cold
        engine.close()


PROMPT = [*range(100, 190), *range(100, 140)]
FULL_BLOCKS = len(PROMPT) // 16


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A folder in which the prompt's blocks lie: of each group all."""
    root = tmp_path / "prompts"
    engine = fake_engine(root)
    answers(engine, [PROMPT])
    engine.close()
    return root


def counts_of(root: Path, prompt: Sequence[int], **options: int) -> tuple[int, CacheCounts]:
    engine = fake_engine(root, **options)
    cached = cached_tokens(engine, prompt)
    counts = replace(engine.cache_counts)
    engine.close()
    return cached, counts


def test_restart_finds_what_memory_would_have_found(filled: Path) -> None:
    cached, counts = counts_of(filled, PROMPT)
    assert cached == FULL_BLOCKS * 16
    # All of the full group, and what the next row sees of the windows of 24 and of 5.
    assert counts.restored == counts.hit == FULL_BLOCKS + 2 + 1


def test_prompt_that_goes_another_way_finds_the_part_it_shares(filled: Path) -> None:
    cached, counts = counts_of(filled, [*PROMPT[:70], 3, 4, 5])
    assert cached == 64
    assert counts.restored == 4 + 2 + 1


def test_what_is_in_memory_is_not_read_again(filled: Path) -> None:
    engine = fake_engine(filled)
    assert cached_tokens(engine, PROMPT[:70]) == 64
    first = engine.cache_counts.restored
    assert cached_tokens(engine, PROMPT) == FULL_BLOCKS * 16
    assert engine.cache_counts.restored - first == (FULL_BLOCKS - 4) + 2 + 1
    assert cached_tokens(engine, PROMPT) == FULL_BLOCKS * 16
    assert engine.cache_counts.restored - first == (FULL_BLOCKS - 4) + 2 + 1
    engine.close()


def test_prompts_that_begin_alike_read_their_beginning_once(filled: Path) -> None:
    engine = fake_engine(filled)
    together = [[*PROMPT, last] for last in (3, 4, 5)]
    assert answers(engine, together) == answers(fake_engine(None), together)
    assert engine.cache_counts.restored == FULL_BLOCKS + 2 + 1
    engine.close()


def test_damaged_segment_costs_what_it_held(filled: Path) -> None:
    cold = answers(fake_engine(None), [PROMPT])
    for path in filled.rglob("*.kv"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    engine = fake_engine(filled)
    assert answers(engine, [PROMPT]) == cold
    engine.close()
    assert counts_of(filled, PROMPT)[0] == FULL_BLOCKS * 16  # computed, and kept again


def test_scored_prompt_is_computed_whole(filled: Path) -> None:
    engine = fake_engine(filled)
    bench = Harness(engine)
    bench.add("scored", PROMPT, SamplingParams(max_tokens=1, prompt_logprobs=1))
    bench.run()
    assert (bench.outputs["scored"].usage.cached_tokens, engine.cache_counts.restored) == (0, 0)
    engine.close()


def test_pool_with_room_for_part_of_it_computes_the_rest(filled: Path) -> None:
    """Beside a stream that holds most of the pool, and grows into what was restored."""
    cold = answers(fake_engine(None), [PROMPT[:90], PROMPT])
    engine = fake_engine(filled, num_blocks=10)
    assert answers(engine, [PROMPT[:90], PROMPT]) == cold
    engine.close()


# --- a disk that is slow -------------------------------------------------------------------------


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Nothing is read until the event is set."""
    go_on = Event()
    read_all = SegmentTables.read

    def read(tables: SegmentTables, keys: Sequence[tuple[int, bytes]]) -> Iterator[bytes | None]:
        for data in read_all(tables, keys):
            go_on.wait(20)
            yield data

    monkeypatch.setattr(SegmentTables, "read", read)
    yield go_on
    go_on.set()


def test_others_go_on_while_blocks_are_read(filled: Path, slow_disk: Event) -> None:
    engine = fake_engine(filled)
    bench = Harness(engine)
    bench.add("reads", PROMPT, SamplingParams(max_tokens=2))
    bench.add("others", [3, 4], SamplingParams(max_tokens=20, ignore_eos=True))
    while "others" not in bench.outputs:
        bench.step()
    assert bench.chunks["reads"] == []
    slow_disk.set()
    bench.run()
    assert bench.outputs["reads"].usage.cached_tokens == FULL_BLOCKS * 16
    engine.close()


def test_request_that_is_dropped_while_its_blocks_are_read_frees_them(
    filled: Path, slow_disk: Event
) -> None:
    engine = fake_engine(filled)
    bench = Harness(engine)
    bench.add("reads", PROMPT, SamplingParams(max_tokens=2))
    bench.step()
    engine.abort("reads")
    engine.check()
    slow_disk.set()
    assert answers(engine, [PROMPT]) == answers(fake_engine(None), [PROMPT])
    engine.close()


@pytest.mark.usefixtures("slow_disk")
def test_disk_that_hangs_is_waited_for_two_seconds(filled: Path) -> None:
    now = [0.0]
    engine = fake_engine(filled, clock=lambda: now[0])
    bench = Harness(engine)
    bench.add("reads", PROMPT, SamplingParams(max_tokens=1))
    for now[0] in (10.0, 11.9):
        bench.step()
        assert bench.outputs == {}
    now[0] = 12.1
    bench.step()
    assert bench.outputs["reads"].usage.cached_tokens == 0
    engine.close()


# --- tiny models, computed ------------------------------------------------------------------------


def open_model(path: Path, root: Path, **options: object) -> Engine:
    config = Config(root, root, disk_cache=1 << 26)
    wanted = EngineOptions(num_threads=2, **options)  # type: ignore[arg-type]
    return load_model(str(path), wanted, config=config, clock=time.monotonic).engine


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_model_answers_the_same_after_a_restart(tmp_path: Path, family: str, kv_type: str) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", family, context=CONTEXT)
    cold = open_model(path, tmp_path, disk_cache=0, kv_cache_dtype=kv_type)
    expected = answers(cold, [PROMPT, PROMPT[:50]])
    cold.close()
    for restored in (False, True):
        engine = open_model(path, tmp_path, kv_cache_dtype=kv_type)
        poison_reused_blocks(engine)
        assert answers(engine, [PROMPT, PROMPT[:50]]) == expected
        assert (engine.cache_counts.restored > 0) == restored
        engine.close()


def test_what_is_kept_is_found_by_the_same_file_read_the_same_way_only(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", "llama", context=CONTEXT)

    def cached(path: Path = path, **options: object) -> int:
        engine = open_model(path, tmp_path, **options)
        found = cached_tokens(engine, PROMPT)
        engine.close()
        return found

    assert cached() == 0
    assert cached() == cached(max_num_batched_tokens=16) == FULL_BLOCKS * 16
    assert cached(kv_cache_dtype="q8_0") == 0
    assert cached(disk_cache=False) == cached(prefix_caching=False) == 0
    copied = Path(shutil.copy2(path, tmp_path / "copied.gguf"))
    assert cached(copied) == 0
    # Other weights under the same name, of the same size and time.
    state = path.stat()
    write_tiny_model(path, "llama", context=CONTEXT, seed=1)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert path.stat().st_size == state.st_size
    assert cached() == 0


def test_oracle_keeps_nothing_on_disk(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", "llama", context=CONTEXT)
    config = Config(tmp_path, tmp_path, disk_cache=1 << 26)
    options = EngineOptions(device="oracle")
    engine = load_model(str(path), options, config=config, clock=time.monotonic).engine
    answers(engine, [PROMPT])
    engine.close()
    assert not (tmp_path / "prompts").exists()


KILLED = """
import sys, time
from pathlib import Path
from edgeserve import LLM
from edgeserve.config import Config

root = Path(sys.argv[2])
llm = LLM(sys.argv[1], config=Config(root, root, disk_cache=1 << 26))
llm.generate({"prompt_token_ids": list(map(int, sys.argv[3].split()))}, max_tokens=1)
print("answered", flush=True)
time.sleep(60)
"""


def test_answer_is_kept_though_the_process_is_killed_after_it(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", "gemma3", context=CONTEXT)
    words = " ".join(map(str, PROMPT))
    command = [sys.executable, "-c", KILLED, str(path), str(tmp_path), words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "answered\n"
    deadline = time.monotonic() + 20
    while not list(tmp_path.rglob("*.kv")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    engine = open_model(path, tmp_path)
    assert cached_tokens(engine, PROMPT) == FULL_BLOCKS * 16
    engine.close()


# --- real models ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["smollm2_path", "gemma3_path"])
def test_real_model_answers_the_same_after_a_restart(
    model: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path: Path = request.getfixturevalue(model)
    # For Gemma past its window of 512.
    prompt = [2000 + 7 * at % 5000 for at in range(530 if "gemma" in model else 70)]
    found: list[tuple[int, RequestOutput]] = []
    for disk_cache in (0, 1 << 30, 1 << 30):
        engine = open_model(path, tmp_path, disk_cache=disk_cache, max_model_len=640)
        (answer,) = answers(engine, [prompt])
        found.append((engine.cache_counts.restored, answer))
        engine.close()
    assert found[0][1] == found[1][1] == found[2][1]
    assert [restored > 0 for restored, _ in found] == [False, False, True]
