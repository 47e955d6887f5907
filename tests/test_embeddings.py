"""Embeddings: a text's vector is its own, whoever else is computed and however it is cut, and it is
the reference's."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edgeserve
from edgeserve import LLM, AsyncLLM, EmbeddingOutput, SamplingParams
from edgeserve.engine.engine import Engine
from edgeserve.engine.pooling import Pooler
from edgeserve.errors import (
    ContextLengthError,
    HyperParameterError,
    InvalidRequestError,
    NonFiniteEmbeddingError,
    NoPoolingError,
)
from edgeserve.types import PoolingParams

from .engine_harness import VOCAB_SIZE, Harness, make_engine, poison_reused_blocks, uneven_clock
from .fake_runner import FakeRunner, hashed_logits
from .tiny_models import write_tiny_model

CONTEXT = 96
MEAN, LAST = PoolingParams("mean"), PoolingParams("last")
SHORT = PoolingParams("mean", dimensions=10, normalize=False)
POOLINGS = (MEAN, LAST, SHORT)
TALK = SamplingParams(temperature=1.0, max_tokens=6, ignore_eos=True, logprobs=1, prompt_logprobs=1)


# --- of rows -------------------------------------------------------------------------------------


@given(st.integers(1, 30), st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(1, 4))
def test_mean_is_added_up_from_the_first_row_to_the_last_however_rows_come(
    num_rows: int, cuts: list[int], width: int
) -> None:
    rows = np.random.default_rng(num_rows).standard_normal((num_rows, width)).astype(np.float32)
    total = rows[0].astype(np.float64)
    for row in rows[1:]:
        total = total + row
    pooler = Pooler(PoolingParams("mean", normalize=False), num_rows)
    first = 0
    while first < num_rows:
        size = min(cuts[first % len(cuts)], num_rows - first)
        assert pooler.num_wanted(first, size) == size
        pooler.take(rows[first : first + size])
        first += size
        # Computed again after preemption, they are not wanted again.
        assert pooler.num_wanted(0, first) == 0
    assert pooler.vector() == tuple((total / num_rows).astype(np.float32).tolist())


def test_last_wants_one_row_only() -> None:
    pooler = Pooler(LAST, 20)
    assert [pooler.num_wanted(first, 8) for first in (0, 8, 12)] == [0, 0, 1]
    assert not pooler.needs_every_row
    pooler.take(np.array([[3.0, 4.0]], np.float32))
    assert pooler.vector() == (np.float32(0.6), np.float32(0.8))


def test_a_vector_of_zeros_stays_one_and_one_of_nan_is_an_error() -> None:
    for value, expected in ((0.0, (0.0, 0.0)), (np.nan, None), (np.inf, None)):
        pooler = Pooler(MEAN, 1)
        pooler.take(np.full((1, 2), value, np.float32))
        if expected is None:
            with pytest.raises(NonFiniteEmbeddingError):
                pooler.vector()
        else:
            assert pooler.vector() == expected


# --- the law, over a runner that computes nothing ------------------------------------------------


def fake_engine(num_blocks: int, batched: int, seqs: int = 64, caching: bool = False) -> Engine:
    """Hidden states are what would be logits: any change of a row's history changes them."""
    runner = FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=num_blocks, windows=(24, 5))
    engine = make_engine(
        runner,
        max_model_len=CONTEXT,
        max_num_batched_tokens=batched,
        max_num_seqs=seqs,
        clock=uneven_clock(),
        prefix_caching=caching,
    )
    poison_reused_blocks(engine)
    return engine


def expected_vector(prompt: Sequence[int], pooling: PoolingParams) -> tuple[float, ...]:
    states = hashed_logits(VOCAB_SIZE)
    if pooling.pooling == "last":
        vector = states(tuple(prompt))
    else:
        rows = [states(tuple(prompt[: end + 1])) for end in range(len(prompt))]
        vector = sum(rows[1:], start=rows[0]) / len(rows)
    vector = vector[: pooling.dimensions]
    if pooling.normalize:
        vector = vector / math.sqrt(math.fsum(x * x for x in vector))
    return tuple(vector.astype(np.float32).tolist())


prompts = st.tuples(
    st.sampled_from([range(100, 160), range(160, 220)]),
    st.integers(0, 60),
    st.lists(st.integers(3, VOCAB_SIZE - 1), min_size=1, max_size=12),
).map(lambda parts: (*parts[0][: parts[1]], *parts[2]))


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.tuples(prompts, st.sampled_from([None, *POOLINGS])), min_size=1, max_size=6),
    st.sampled_from([1, 7, 32, 512]),
    st.sampled_from([1, 64]),
    st.sampled_from([6, 12, 60]),
    st.booleans(),
)
def test_vectors_do_not_depend_on_the_schedule_or_on_what_is_cached(
    schedule: list[tuple[tuple[int, ...], PoolingParams | None]],
    batched: int,
    seqs: int,
    num_blocks: int,
    caching: bool,
) -> None:
    bench = Harness(fake_engine(num_blocks, batched, seqs, caching))
    for time in range(2 if caching else 1):
        for n, (prompt, pooling) in enumerate(schedule):
            if pooling is None:
                bench.add(f"{time}.{n}", prompt, replace(TALK, prompt_logprobs=None))
            else:
                bench.add_embedding(f"{time}.{n}", prompt, pooling)
            bench.step()
        bench.run()
        for n, (prompt, pooling) in enumerate(schedule):
            if pooling is not None:
                output = bench.outputs[f"{time}.{n}"]
                assert output.embedding == expected_vector(prompt, pooling)
                assert output.usage.cached_tokens == 0 or pooling.pooling == "last"
    assert bench.errors == {}


def test_no_logits_are_computed_and_the_whole_context_may_be_embedded() -> None:
    engine = fake_engine(60, 40)
    runner = engine._runner  # pyright: ignore[reportPrivateUsage]
    assert isinstance(runner, FakeRunner)
    bench = Harness(engine)
    bench.add_embedding("mean", range(100, 100 + CONTEXT), MEAN)
    bench.add_embedding("last", range(100, 100 + CONTEXT), LAST)
    with pytest.raises(ContextLengthError):
        bench.add_embedding("longer", range(100, 101 + CONTEXT), LAST)
    bench.run()
    assert {int(batch.num_logits_rows.sum()) for batch in runner.batches} == {0}
    assert sum(int(batch.num_hidden_rows.sum()) for batch in runner.batches) == CONTEXT + 1
    assert set(bench.outputs) == {"mean", "last"}
    assert engine.stats.num_requests == {"stop": 2}
    assert engine.stats.num_prompt_tokens == 2 * CONTEXT


def test_what_was_computed_for_a_vector_is_found_by_others() -> None:
    bench = Harness(fake_engine(60, 512, caching=True))
    bench.add_embedding("first", range(100, 150), MEAN)
    bench.run()
    bench.add_embedding("again", range(100, 150), LAST)
    bench.add("text", range(100, 150), replace(TALK, prompt_logprobs=None))
    bench.run()
    assert bench.outputs["again"].usage.cached_tokens == 48
    assert bench.outputs["text"].num_cached_tokens == 48
    assert bench.outputs["again"].embedding == expected_vector(range(100, 150), LAST)


def test_a_vector_that_is_none_fails_its_own_request() -> None:
    def states(history: tuple[int, ...]) -> np.ndarray:
        return np.full(VOCAB_SIZE, np.nan if 77 in history else 1.0)

    bench = Harness(make_engine(FakeRunner(states, num_blocks=60)))
    bench.add_embedding("damaged", [50, 77], MEAN)
    bench.add_embedding("whole", [50, 78], MEAN)
    bench.run()
    assert isinstance(bench.errors["damaged"], NonFiniteEmbeddingError)
    assert set(bench.outputs) == {"whole"}


def test_cancelled_and_failed_requests_leave_nothing_behind() -> None:
    engine = fake_engine(60, 16)
    runner = engine._runner  # pyright: ignore[reportPrivateUsage]
    bench = Harness(engine)
    bench.add_embedding("gone", range(100, 150), MEAN)
    bench.step()
    engine.abort("gone")
    bench.add_embedding("broken", range(100, 150), MEAN)
    bench.step()

    def fail() -> np.ndarray:
        raise RuntimeError("no hidden states")

    hidden, runner.hidden = runner.hidden, fail  # type: ignore[method-assign]
    bench.step()
    runner.hidden = hidden  # type: ignore[method-assign]
    assert "no hidden states" in str(bench.errors["broken"])
    bench.add_embedding("next", range(100, 150), MEAN)
    bench.run()
    assert bench.outputs["next"].embedding == expected_vector(range(100, 150), MEAN)


# --- the law, over tiny models -------------------------------------------------------------------

MODELS = {"llama": {}, "gemma3": {"layers": 6}, "qwen3moe": {"layers": 2}}
TEXTS = (
    tuple(range(40, 85)),
    (50,),
    tuple(range(200, 130, -1)),
    (77,) * 17,
    tuple(range(40, 72)),
)


@pytest.fixture(scope="module", params=MODELS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    changes = MODELS[request.param]
    file = write_tiny_model(folder / "tiny.gguf", request.param, context=CONTEXT, **changes)
    return str(file)


def vectors(outputs: Sequence[EmbeddingOutput]) -> list[tuple[float, ...]]:
    return [output.embedding for output in outputs]


@pytest.mark.parametrize("device", ["cpu", "oracle"])
def test_vectors_of_a_model_are_the_same_alone_together_in_chunks_and_preempted(
    path: str, device: str
) -> None:
    with LLM(path, device=device, num_threads=1, prefix_caching=False) as llm:
        alone = {
            kind: vectors([llm.embed(text, pooling=kind)[0] for text in TEXTS])
            for kind in ("mean", "last")
        }
    assert all(abs(math.hypot(*v) - 1.0) < 1e-6 for v in alone["mean"] + alone["last"])
    assert alone["mean"][1] == alone["last"][1]  # of one token
    assert alone["mean"][0] != alone["last"][0]
    for options in (
        {"num_threads": 2},
        {"num_threads": 3, "max_num_batched_tokens": 7},
        {"max_num_batched_tokens": 32, "max_num_seqs": 2},
    ):
        with LLM(path, device=device, **options) as llm:
            poison_reused_blocks(llm._model.engine)  # pyright: ignore[reportPrivateUsage]
            stream = llm.stream({"prompt_token_ids": TEXTS[0]}, TALK)
            for _ in range(2):  # the second time some is found in the cache
                for kind, expected in alone.items():
                    assert vectors(llm.embed(TEXTS, pooling=kind)) == expected
            assert len([chunk for chunk in stream if chunk.token_ids]) == 6


def test_vectors_survive_preemption(path: str) -> None:
    with LLM(path) as llm:
        mean = vectors(llm.embed(TEXTS, pooling="mean"))
    with LLM(path, max_num_batched_tokens=16, max_num_seqs=4) as llm:
        engine = llm._model.engine  # pyright: ignore[reportPrivateUsage]
        scheduler = engine._scheduler  # pyright: ignore[reportPrivateUsage]
        bench = Harness(engine)
        for n, text in enumerate(TEXTS):
            bench.add_embedding(str(n), text, MEAN)
        preempted = 0
        while engine.has_work:
            bench.step()
            running = scheduler._running  # pyright: ignore[reportPrivateUsage]
            if bench.num_steps in (2, 4, 5) and running:
                scheduler._preempt(running.pop())  # pyright: ignore[reportPrivateUsage]
                preempted += 1
        assert preempted == 3
        assert [bench.outputs[str(n)].embedding for n in range(len(TEXTS))] == mean


# --- the reference -------------------------------------------------------------------------------


def reference_vectors(
    llama_cpp: ModuleType, path: str, pooling: str, texts: Sequence[Sequence[int]]
) -> np.ndarray:
    """llama.cpp's own pooling, normalised as its server does; F32 keys and values."""
    kind = getattr(llama_cpp, f"LLAMA_POOLING_TYPE_{pooling.upper()}")
    model = llama_cpp.Llama(
        path,
        n_ctx=256,
        n_batch=256,
        n_threads=1,
        n_threads_batch=1,
        embedding=True,
        pooling_type=kind,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        swa_full=True,
        verbose=False,
    )
    found: list[np.ndarray] = []
    try:
        for text in texts:
            model._ctx.kv_cache_clear()
            batch = model._batch
            batch.reset()
            batch.add_sequence(list(text), 0, True)
            model._ctx.decode(batch)
            pointer = llama_cpp.llama_get_embeddings_seq(model._ctx.ctx, 0)
            vector = np.array(pointer[: model.n_embd()], np.float64)
            found.append(vector / np.linalg.norm(vector))
    finally:
        model.close()
    return np.array(found)


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "phi3"])
def test_vectors_are_the_reference_s(
    llama_cpp: ModuleType, tmp_path: Path, family: str, pooling: str
) -> None:
    """The oracle in float32 is held as near as its logits are; the native core, whose keys and
    values are halfs, a little less. Measured: 1.1e-6 and 1.4e-3 at most."""
    path = str(write_tiny_model(tmp_path / "tiny.gguf", family, context=256))
    theirs = reference_vectors(llama_cpp, path, pooling, TEXTS)
    for device, bound in (("oracle", 1e-4), ("cpu", 3e-3)):
        with LLM(path, device=device) as llm:
            ours = np.array(vectors(llm.embed(TEXTS, pooling=pooling)))
        assert np.linalg.norm(ours - theirs, axis=1).max() <= bound, device


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_vectors_of_a_real_model_are_the_reference_s(
    llama_cpp: ModuleType, smollm2_path: Path, pooling: str
) -> None:
    """Both round activations to bytes, each its own way. Measured: cosines of 0.9995 at least."""
    texts = ["The cat sat on the mat.", "Ein Hund schläft.", "def f(x):\n    return x * x\n" * 6]
    with LLM(str(smollm2_path), max_model_len=512, pooling=pooling) as llm:
        outputs = llm.embed(texts)
        ids = [llm.tokenize(text) for text in texts]
    assert [list(output.prompt_token_ids) for output in outputs] == ids
    theirs = reference_vectors(llama_cpp, str(smollm2_path), pooling, ids)
    cosines = (np.array(vectors(outputs)) * theirs).sum(axis=1)
    assert cosines.min() > 0.999


# --- the Python API ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = write_tiny_model(tmp_path_factory.mktemp("m") / "tiny.gguf", "llama", context=CONTEXT)
    with LLM(str(path), pooling="mean") as opened:
        yield opened


def test_one_text_many_texts_and_token_ids_in_any_sequence(llm: LLM) -> None:
    ids = llm.tokenize("hello")
    expected = llm.embed("hello")[0]
    assert isinstance(expected, edgeserve.EmbeddingOutput)
    assert (expected.prompt, expected.num_prompt_tokens) == ("hello", len(ids))
    assert expected.usage.total_tokens == len(ids)
    for inputs in (["hello"], ids, tuple(ids), [ids], np.array(ids), [np.array(ids)]):
        (output,) = llm.embed(inputs)  # type: ignore[arg-type]
        assert output.embedding == expected.embedding
    assert vectors(llm.embed(["a", "hello"]))[1] == expected.embedding
    assert llm.embed([]) == []


def test_first_dimensions_are_kept_and_scaled_again(llm: LLM) -> None:
    (whole,) = vectors(llm.embed("hello", normalize=False))
    (short,) = vectors(llm.embed("hello", dimensions=5))
    scaled = np.array(whole[:5]) / np.linalg.norm(whole[:5])
    assert np.allclose(short, scaled, rtol=1e-6, atol=0)
    assert vectors(llm.embed("hello", dimensions=len(whole))) == vectors(llm.embed("hello"))


@pytest.mark.parametrize(
    ("inputs", "fields", "parameter"),
    [
        ("", {}, "prompt"),
        ([[]], {}, "prompt"),
        (7, {}, "inputs"),
        (b"text", {}, "inputs"),
        (["a", 7], {}, "prompt"),
        (np.zeros((2, 3, 4), int), {}, "prompt_token_ids[0]"),
        (["a", None], {}, "prompt"),
        ([[1, 2.5]], {}, "prompt_token_ids[1]"),
        ([[1, VOCAB_SIZE]], {}, "prompt_token_ids[1]"),
        ([5, -1], {}, "prompt_token_ids[1]"),
        ("a", {"dimensions": 0}, "dimensions"),
        ("a", {"dimensions": 1 << 20}, "dimensions"),
        ("a", {"dimensions": True}, "dimensions"),
        ("a", {"pooling": "cls"}, "pooling"),
        ("a", {"normalize": 2}, "normalize"),
        ("a", {"priority": 1 << 20}, "priority"),
    ],
)
def test_what_cannot_be_embedded_is_a_typed_error(
    llm: LLM, inputs: object, fields: dict[str, object], parameter: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        llm.embed(inputs, **fields)  # type: ignore[arg-type]
    assert caught.value.parameter == parameter


def test_an_error_says_which_text_it_is_about(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        llm.embed(["a", ""])
    assert caught.value.__notes__ == ["in inputs[1]"]
    with pytest.raises(ContextLengthError) as too_long:
        llm.embed([[50], [50] * (CONTEXT + 1)])
    assert too_long.value.__notes__ == ["in inputs[1]"]


@pytest.mark.parametrize(
    ("number", "name"), [(0, None), (1, "mean"), (2, "cls"), (3, "last"), (4, "rank")]
)
def test_pooling_is_the_file_s_unless_somebody_says_otherwise(
    tmp_path: Path, number: int, name: str | None
) -> None:
    metadata = {"llama.pooling_type": number}
    path = str(write_tiny_model(tmp_path / "tiny.gguf", "llama", metadata=metadata))
    with LLM(path) as llm:
        last = llm.embed("hello", pooling="last")[0].embedding
        if name in ("mean", "last"):
            assert llm.embed("hello")[0].embedding == llm.embed("hello", pooling=name)[0].embedding
        else:
            with pytest.raises(NoPoolingError, match="--pooling mean") as caught:
                llm.embed("hello")
            assert caught.value.file_pooling == name
    with LLM(path, pooling="last") as llm:
        assert llm.embed("hello")[0].embedding == last


@pytest.mark.parametrize("value", [5, "mean", 1.0])
def test_a_pooling_that_does_not_exist_is_an_error_of_the_file(
    tmp_path: Path, value: object
) -> None:
    metadata = {"llama.pooling_type": value}
    path = str(write_tiny_model(tmp_path / "tiny.gguf", "llama", metadata=metadata))
    with pytest.raises(HyperParameterError, match="pooling_type"):
        LLM(path)


def test_an_option_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    path = str(write_tiny_model(tmp_path / "tiny.gguf", "llama"))
    with pytest.raises(InvalidRequestError, match="mean or last"):
        LLM(path, pooling="max")


def with_async_llm(llm: LLM, test: Callable[[AsyncLLM], object], **options: object) -> None:
    async def run() -> None:
        path = str(llm._model.path)  # pyright: ignore[reportPrivateUsage]
        async with await AsyncLLM.create(path, pooling="mean", **options) as opened:  # type: ignore[arg-type]
            await asyncio.wait_for(test(opened), 60)  # type: ignore[arg-type]
            await opened.generate("a", max_tokens=1)
            assert not opened._model.engine.has_work  # pyright: ignore[reportPrivateUsage]

    asyncio.run(run())


def test_async_vectors_are_the_same_and_any_number_fits_the_queue(llm: LLM) -> None:
    texts = [[40 + n % 30, 50, 60 + n % 7] for n in range(40)]
    expected = vectors(llm.embed(texts))

    async def test(other: AsyncLLM) -> None:
        talk = asyncio.ensure_future(other.generate("hello", TALK))
        assert vectors(await other.embed(texts)) == expected
        assert len((await talk).outputs[0].token_ids) == 6
        assert vectors(await other.embed("hello")) == vectors(llm.embed("hello"))
        with pytest.raises(ContextLengthError) as caught:
            await other.embed([[50], [50] * (CONTEXT + 1)])
        assert caught.value.__notes__ == ["in inputs[1]"]
        with pytest.raises(InvalidRequestError):
            await other.embed("a", pooling="max")

    with_async_llm(llm, test, max_queued_requests=4, max_num_seqs=3)


def test_cancelling_the_task_cancels_all_texts(llm: LLM) -> None:
    async def test(other: AsyncLLM) -> None:
        task = asyncio.ensure_future(other.embed([[50] * 90] * 30))
        while not other._model.engine.has_work:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with_async_llm(llm, test, max_num_batched_tokens=8, max_num_seqs=4)
