"""A forked copy of a process that loaded a model: an error that says so, and never a hang."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from edgeserve import LLM, AsyncLLM
from edgeserve.errors import ForkedProcessError
from edgeserve.home_process import HomeProcess

from .fake_runner import FakeRunner, hashed_logits
from .tiny_models import write_tiny_model

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]

SECONDS = 60


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns in a forked child, which is killed should it hang."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            os.write(writer, pickle.dumps(work()))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with wait status {status}"
    return pickle.loads(data)


def what_it_raises(work: Callable[[], object]) -> tuple[int, int]:
    """The processes that the error names."""
    with pytest.raises(ForkedProcessError, match="spawn") as caught:
        work()
    return caught.value.loaded_in, caught.value.used_in


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    return str(write_tiny_model(folder / "tiny.gguf", "llama", context=64))


def test_here_is_home() -> None:
    home = HomeProcess()
    home.require()
    assert home.is_here


def test_a_model_used_in_a_fork_says_so_and_closes(path: str) -> None:
    with LLM(path, num_threads=2) as llm:
        before = llm.generate("the inn", temperature=0, max_tokens=4)

        def work() -> tuple[int, int, int]:
            loaded_in, used_in = what_it_raises(lambda: llm.generate("the inn", max_tokens=4))
            llm.close()
            return loaded_in, used_in, os.getpid()

        loaded_in, used_in, child = in_child(work)
        assert loaded_in == os.getpid()
        assert used_in == child
        assert llm.generate("the inn", temperature=0, max_tokens=4)[0].text == before[0].text


def test_a_fork_in_the_middle_of_another_threads_step_does_not_hang(path: str) -> None:
    """The copy has the engine's lock as it was: taken, by a thread that is not there."""
    with LLM(path) as llm:
        in_step, go_on = threading.Event(), threading.Event()
        runner: Any = FakeRunner(hashed_logits(300), num_blocks=64)

        def wait(_: object) -> None:
            in_step.set()
            assert go_on.wait(SECONDS)

        runner.on_execute = wait
        llm._model.engine._forward._runner = runner  # pyright: ignore[reportPrivateUsage]
        thread = threading.Thread(target=lambda: llm.generate("the inn", max_tokens=1))
        thread.start()
        assert in_step.wait(SECONDS)
        raised = in_child(lambda: what_it_raises(lambda: llm.stream("the inn")))
        go_on.set()
        thread.join()
        assert raised[0] == os.getpid()


def test_a_stream_that_is_taken_into_a_fork_says_so(path: str) -> None:
    with LLM(path, num_threads=2) as llm, llm.stream("the inn", max_tokens=4) as stream:
        next(stream)
        assert in_child(lambda: what_it_raises(lambda: next(stream)))[0] == os.getpid()
        assert len(list(stream)) > 0


def test_a_model_for_asyncio_says_so_and_closes(path: str) -> None:
    async def use(llm: AsyncLLM) -> None:
        async def call() -> None:
            with pytest.raises(ForkedProcessError):
                await llm.generate("the inn")
            with pytest.raises(ForkedProcessError):
                await llm.stream("the inn").start()
            await llm.close()

        # The loop is the parent's; the child makes its own, in a thread that has none yet.
        in_child(lambda: ThreadPoolExecutor(1).submit(asyncio.run, call()).result())
        assert (await llm.generate("the inn", max_tokens=1)).text is not None

    async def test() -> None:
        async with await AsyncLLM.create(path, num_threads=2) as llm:
            await use(llm)

    asyncio.run(test())


def test_the_runner_itself_says_so(path: str) -> None:
    """Whoever drives it without an engine."""
    with LLM(path, num_threads=2) as llm:
        runner: Any = llm._model.engine._runner  # pyright: ignore[reportPrivateUsage]

        def work() -> list[tuple[int, int]]:
            raised = [
                what_it_raises(lambda: runner.execute(None)),
                what_it_raises(lambda: runner.sample([])),
            ]
            runner.close()
            return raised

        assert {loaded_in for loaded_in, _ in in_child(work)} == {os.getpid()}


def test_a_model_loaded_by_the_fork_works(path: str) -> None:
    with LLM(path, num_threads=2) as llm:
        expected = llm.generate("the inn", temperature=0, max_tokens=4)[0].text

        def work() -> str:
            with LLM(path, num_threads=2) as own:
                return own.generate("the inn", temperature=0, max_tokens=4)[0].text

        assert in_child(work) == expected
