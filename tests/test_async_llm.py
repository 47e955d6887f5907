"""AsyncLLM: the answers and refusals of LLM, streams that end however they are left, no leaks."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeserve import LLM, AsyncLLM, AsyncTokenStream, RequestOutput, SamplingParams, async_llm
from edgeserve.config import Config
from edgeserve.engine.engine import Engine
from edgeserve.engine.prompt_cost import PromptCost
from edgeserve.errors import (
    ClosedError,
    ContextLengthError,
    InvalidRequestError,
    ModelNotFoundError,
    QueueFullError,
    TemplateError,
)
from edgeserve.types import Usage

from .engine_harness import NO_TIME
from .tiny_models import write_tiny_model

CONTEXT = 128
SECONDS = 120
LONG = SamplingParams(temperature=1.0, seed=3, max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    return str(write_tiny_model(folder / "tiny.gguf", "llama", context=CONTEXT))


@pytest.fixture(scope="module")
def llm(path: str) -> LLM:
    return LLM(path)


Test = Callable[[AsyncLLM], Awaitable[None]]


def with_llm(path: str, test: Test, **options: Any) -> None:
    """Runs a test in a loop of its own; afterwards no block is held and no thread is left."""
    before = set(threading.enumerate())

    async def bounded() -> None:
        async with await AsyncLLM.create(path, num_threads=2, **options) as llm:
            await asyncio.wait_for(test(llm), SECONDS)
            await llm.generate("a", max_tokens=1)  # what was cancelled before is gone now
            assert not engine_of(llm).has_work
            engine_of(llm).check()

    asyncio.run(bounded())
    assert set(threading.enumerate()) <= before


def engine_of(llm: AsyncLLM) -> Engine:
    return llm._model.engine  # pyright: ignore[reportPrivateUsage]


def answer(output: RequestOutput | None) -> RequestOutput:
    """But for its name, what the clock said, what had been computed before, and drafts."""
    assert output is not None
    usage = Usage(output.usage.prompt_tokens, output.usage.completion_tokens)
    return replace(output, request_id="", timings=NO_TIME, usage=usage, prefix_miss=None)


async def read(stream: AsyncTokenStream) -> str:
    return "".join([chunk.text async for chunk in stream])


# --- answers -------------------------------------------------------------------------------------


def test_twenty_streams_at_once_answer_as_alone(path: str, llm: LLM) -> None:
    prompts = [f"the inn {'on and ' * (i % 7)}{i}" for i in range(20)]
    params = [replace(LONG, seed=i, n=1 + i % 2, logprobs=i % 3) for i in range(20)]

    async def test(made: AsyncLLM) -> None:
        streams = [made.stream({"prompt": p}, q) for p, q in zip(prompts, params, strict=True)]
        await asyncio.gather(*(read(stream) for stream in streams))
        for stream, prompt, given in zip(streams, prompts, params, strict=True):
            assert answer(stream.output) == answer(llm.generate(prompt, given)[0])

    with_llm(path, test, max_num_seqs=12)


def test_what_streams_is_what_is_returned(path: str, llm: LLM) -> None:
    async def test(made: AsyncLLM) -> None:
        stream = made.stream("the inn", LONG)
        text = await read(stream)
        output = await made.chat("the inn", LONG)
        assert text == output.text
        assert answer(output) == answer(stream.output) == answer(llm.chat("the inn", LONG))
        assert [chunk async for chunk in stream] == []

    with_llm(path, test)


def test_prompts_and_conversations_are_read_as_by_llm(path: str, llm: LLM) -> None:
    ids = llm.tokenize("the <|im_start|> inn")
    messages: Any = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]

    async def test(made: AsyncLLM) -> None:
        of_ids = await made.generate({"prompt_token_ids": ids}, temperature=0, max_tokens=4)
        assert of_ids.prompt_token_ids == tuple(ids)
        assert (
            of_ids.text
            == (await made.generate("the <|im_start|> inn", temperature=0, max_tokens=4)).text
        )
        continued = await made.chat(messages, LONG, continue_final_message=True)
        assert answer(continued) == answer(llm.chat(messages, LONG, continue_final_message=True))
        assert made.tokenize("the inn") == llm.tokenize("the inn")
        assert made.detokenize(ids) == llm.detokenize(ids)
        assert made.max_model_len == llm.max_model_len
        assert made.default_sampling == llm.default_sampling
        assert made.has_chat_template

    with_llm(path, test)


def test_what_a_prompt_costs_is_told_without_computing(path: str, tmp_path: Path) -> None:
    config = Config(tmp_path, tmp_path, disk_cache=1 << 26)
    prompt = "the inn on and on and on and on and on and on and on"

    async def first(made: AsyncLLM) -> None:
        ids = made.tokenize(prompt)
        cost = await made.prompt_cost(ids)
        assert cost == PromptCost(len(ids), 0, 0, None)
        await made.generate(prompt, max_tokens=1)
        cost = await made.prompt_cost(ids)
        assert (cost.num_cached, cost.num_stored) == ((len(ids) - 1) // 16 * 16, 0)
        assert cost.seconds is not None
        assert 0 < cost.seconds < SECONDS

    async def after_a_restart(made: AsyncLLM) -> None:
        ids = made.tokenize(prompt)
        while (cost := await made.prompt_cost(ids)).num_stored == 0:
            pass  # the store is still looking at what lies there
        assert (cost.num_cached, cost.num_stored) == (0, (len(ids) - 1) // 16 * 16)
        assert made.stats.num_steps == 0

    with_llm(path, first, config=config)
    with_llm(path, after_a_restart, config=config)


def test_loops_in_several_threads_use_one_model(path: str, llm: LLM) -> None:
    found: dict[int, RequestOutput] = {}

    async def test(made: AsyncLLM) -> None:
        def loop_of(seed: int) -> None:
            async def ask() -> None:
                stream = made.stream("the inn", replace(LONG, seed=seed))
                await read(stream)
                found[seed] = answer(stream.output)

            asyncio.run(ask())

        await asyncio.gather(*(asyncio.to_thread(loop_of, seed) for seed in range(4)))

    with_llm(path, test)
    for seed in range(4):
        assert found[seed] == answer(llm.chat("the inn", replace(LONG, seed=seed)))


# --- refusals ------------------------------------------------------------------------------------


def test_wrong_calls_raise_what_llm_raises(path: str) -> None:
    async def test(made: AsyncLLM) -> None:
        with pytest.raises(InvalidRequestError) as caught:
            await made.generate("")
        assert caught.value.parameter == "prompt"
        with pytest.raises(InvalidRequestError):
            await made.generate(["several"])  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError):
            await made.generate("a", LONG, top_p=0.5)
        with pytest.raises(InvalidRequestError):
            made.stream("a", top_p=2.0)
        with pytest.raises(InvalidRequestError):
            await made.chat("a", tools=[{}])
        with pytest.raises(InvalidRequestError):
            await made.chat([])
        with pytest.raises(ContextLengthError):
            await made.generate({"prompt_token_ids": [5] * CONTEXT})

    with_llm(path, test)


def test_a_model_without_a_template_does_not_chat(tmp_path: Path) -> None:
    base = write_tiny_model(tmp_path / "b.gguf", "llama", context=CONTEXT, chat_template=None)

    async def test(made: AsyncLLM) -> None:
        assert not made.has_chat_template
        with pytest.raises(TemplateError):
            await made.chat("hello")
        assert (await made.generate("hello", LONG)).text

    with_llm(str(base), test)


def test_a_streams_errors_come_with_its_start(path: str) -> None:
    async def test(made: AsyncLLM) -> None:
        stream = made.stream({"prompt_token_ids": [5] * CONTEXT})
        with pytest.raises(ContextLengthError):
            await stream.start()
        assert [chunk async for chunk in stream] == []
        with pytest.raises(ContextLengthError):
            async with made.stream({"prompt_token_ids": [5] * CONTEXT}):
                pass
        with pytest.raises(ContextLengthError):
            await anext(made.stream({"prompt_token_ids": [5] * CONTEXT}))

    with_llm(path, test)


def test_a_full_queue_refuses(path: str) -> None:
    async def test(made: AsyncLLM) -> None:
        calls = [asyncio.ensure_future(made.generate("the inn", LONG)) for _ in range(12)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        refused = [result for result in results if isinstance(result, QueueFullError)]
        answered = [result for result in results if isinstance(result, RequestOutput)]
        assert len(refused) + len(answered) == 12
        assert len(answered) >= 2
        assert len({output.text for output in answered}) == 1

    with_llm(path, test, max_num_seqs=1, max_queued_requests=2)


@pytest.mark.parametrize("value", [0, -1])
def test_a_queue_of_nothing_is_refused(path: str, value: int) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        asyncio.run(AsyncLLM.create(path, max_queued_requests=value))
    assert caught.value.parameter == "max_queued_requests"


def test_a_model_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        asyncio.run(AsyncLLM.create(str(tmp_path / "no.gguf")))


# --- leaving -------------------------------------------------------------------------------------


async def leave_by_break(made: AsyncLLM) -> None:
    async with made.stream("the inn", LONG) as stream:
        async for _ in stream:
            break


async def leave_by_closing(made: AsyncLLM) -> None:
    stream = made.stream("the inn", LONG)
    await anext(stream)
    await stream.aclose()
    await stream.aclose()
    assert [chunk async for chunk in stream] == []
    assert stream.output is None


async def leave_by_dropping(made: AsyncLLM) -> None:
    stream = made.stream("the inn", LONG)
    await anext(stream)
    del stream
    gc.collect()


async def leave_by_error(made: AsyncLLM) -> None:
    async def break_down() -> None:
        async with made.stream("the inn", LONG) as stream:
            async for _ in stream:
                raise KeyError

    with pytest.raises(KeyError):
        await break_down()


async def leave_by_cancelling_the_reader(made: AsyncLLM) -> None:
    stream = made.stream("the inn", LONG)
    await stream.start()
    task = asyncio.ensure_future(read(stream))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [chunk async for chunk in stream] == []


async def leave_before_the_start(made: AsyncLLM) -> None:
    stream = made.stream("the inn", LONG)
    await stream.aclose()
    await stream.start()
    assert [chunk async for chunk in stream] == []


async def leave_by_cancelling_a_call(made: AsyncLLM) -> None:
    calls = [asyncio.ensure_future(made.generate("the inn", LONG)) for _ in range(4)]
    other = made.stream("the inn", LONG)
    await anext(other)
    for call in calls:
        call.cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} <= {asyncio.CancelledError, RequestOutput}
    assert await read(other)


@pytest.mark.parametrize(
    "leave",
    [
        leave_by_break,
        leave_by_closing,
        leave_by_dropping,
        leave_by_error,
        leave_by_cancelling_the_reader,
        leave_before_the_start,
        leave_by_cancelling_a_call,
    ],
)
def test_whoever_leaves_frees_the_blocks(path: str, leave: Test) -> None:
    with_llm(path, leave)


def test_a_reader_ends_when_another_task_closes_the_stream(path: str) -> None:
    async def test(made: AsyncLLM) -> None:
        stream = made.stream("the inn", replace(LONG, max_tokens=100))
        await anext(stream)
        reader = asyncio.ensure_future(read(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        await reader
        assert stream.output is None

    with_llm(path, test)


def test_two_tasks_that_start_a_stream_start_it_once(path: str) -> None:
    async def test(made: AsyncLLM) -> None:
        stream = made.stream("the inn", LONG)
        pieces = await asyncio.gather(read(stream), stream.start(), stream.start())
        assert stream.output is not None
        assert pieces[0] == stream.output.text

    with_llm(path, test)


# --- closing -------------------------------------------------------------------------------------


def test_closing_in_flight_ends_everybody_with_a_typed_error(path: str) -> None:
    async def test() -> None:
        made = await AsyncLLM.create(path, num_threads=2)
        stream = made.stream("the inn", replace(LONG, max_tokens=100))
        await anext(stream)
        calls = [made.generate("the inn", replace(LONG, max_tokens=100)) for _ in range(3)]
        waiting = [asyncio.ensure_future(call) for call in [*calls, read(stream)]]
        await asyncio.sleep(0)
        await asyncio.gather(made.close(), made.close())
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(result) for result in results} == {ClosedError}
        with pytest.raises(ClosedError):
            await made.generate("late")
        with pytest.raises(ClosedError):
            await made.stream("late").start()
        await made.close()

    before = set(threading.enumerate())
    asyncio.run(test())
    assert set(threading.enumerate()) <= before


def test_a_model_nobody_waits_for_any_more_is_closed(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    load_model = async_llm.load_model

    def slow_load(*arguments: Any, **options: Any) -> Any:
        loading.set()
        assert go_on.wait(SECONDS)
        model = load_model(*arguments, **options)
        close = model.engine.close

        def note_close() -> None:
            close()
            closed.set()

        model.engine.close = note_close  # type: ignore[method-assign]
        return model

    async def test() -> None:
        creating = asyncio.ensure_future(AsyncLLM.create(path))
        await asyncio.to_thread(loading.wait, SECONDS)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating

    monkeypatch.setattr(async_llm, "load_model", slow_load)
    asyncio.run(test())
    go_on.set()
    assert closed.wait(SECONDS)


def test_a_program_that_closes_nothing_ends(path: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from edgeserve import AsyncLLM\n"
        "async def main():\n"
        "    llm = await AsyncLLM.create(sys.argv[1], num_threads=2)\n"
        "    stream = llm.stream('the inn', max_tokens=100, ignore_eos=True)\n"
        "    print(len((await anext(stream)).token_ids))\n"
        "    return llm, stream\n"
        "kept = asyncio.run(main())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program, path],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1\n", "")


def test_options_reach_the_engine(path: str, tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path, hf_hub_cache=tmp_path, kernels="ref")

    async def test(made: AsyncLLM) -> None:
        limits = engine_of(made).limits
        assert (limits.max_model_len, limits.max_num_batched_tokens, limits.max_num_seqs) == (
            64,
            9,
            5,
        )
        assert made._model.engine._runner.kernels == "ref"  # type: ignore[attr-defined]  # pyright: ignore
        assert (await made.chat("a", LONG)).prompt.startswith("hey ")  # type: ignore[union-attr]

    with_llm(
        path,
        test,
        config=config,
        max_model_len=64,
        max_num_batched_tokens=9,
        max_num_seqs=5,
        chat_template="hey {{ messages[0].content }}",
    )
