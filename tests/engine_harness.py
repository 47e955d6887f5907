"""An engine to be driven by hand: every step checked, every event kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from edgeserve.cache.disk_store import DiskStore
from edgeserve.cache.kv_cache import Growth
from edgeserve.cache.prefix_index import PrefixIndex
from edgeserve.engine.engine import Engine
from edgeserve.engine.headroom import Headroom
from edgeserve.engine.limits import EngineLimits
from edgeserve.engine.live_request import Request
from edgeserve.engine.output import (
    EngineEvent,
    RequestEmbedded,
    RequestFailed,
    RequestFinished,
    RequestProgress,
)
from edgeserve.engine.speculation.speculator import Speculator
from edgeserve.errors import EdgeServeError
from edgeserve.runner.batch import BLOCK_SIZE
from edgeserve.runner.runner import Runner
from edgeserve.text.constraint import ConstraintCompiler
from edgeserve.text.tokenizer import Tokenizer, build_tokenizer
from edgeserve.types import (
    EmbeddingOutput,
    PoolingParams,
    SamplingDefaults,
    SamplingParams,
    Timings,
    TokenChunk,
    Usage,
)

from .tiny_models import DEFAULTS, describe

VOCAB_SIZE = DEFAULTS["llama"].vocab_size
NO_TIME = Timings(0.0, 0.0, 0.0, 0.0, 0.0)


def tiny_tokenizer() -> Tokenizer:
    return build_tokenizer(describe(DEFAULTS["llama"])[0])


@cache
def tiny_constraints() -> ConstraintCompiler:
    return ConstraintCompiler(tiny_tokenizer())


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """The text a byte at a time, so that a test knows which token carries which byte."""
    byte_tokens = {tokenizer.token_bytes(i): i for i in range(VOCAB_SIZE - 40)}
    return [byte_tokens[bytes([byte])] for byte in text.encode()]


class Harness:
    """Runs requests to their end. A step that runs past a limit of the engine fails the test."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.chunks: dict[str, list[TokenChunk]] = defaultdict(list)
        self.outputs: dict[str, Any] = {}
        self.errors: dict[str, EdgeServeError] = {}
        self.num_steps = 0

    def add(
        self,
        request_id: str,
        prompt: Sequence[int],
        params: SamplingParams | None = None,
        seed: int = 0,
    ) -> None:
        given = SamplingParams(temperature=0.0) if params is None else params
        asked = given.constraint
        constraint = None if asked is None else tiny_constraints().compile(asked)
        request = Request(request_id, None, tuple(prompt), given, seed, constraint=constraint)
        self.engine.add_request(request)

    def add_embedding(self, request_id: str, prompt: Sequence[int], pooling: PoolingParams) -> None:
        request = Request(request_id, None, tuple(prompt), SamplingParams(), 0, pooling=pooling)
        self.engine.add_request(request)

    def step(self) -> list[EngineEvent]:
        events = self.engine.step()
        self.num_steps += 1
        self.engine.check()
        for event in events:
            assert event.request_id not in self.outputs, "an event after the end"
            match event:
                case RequestProgress():
                    self.chunks[event.request_id].append(event.chunk)
                case RequestFinished() | RequestEmbedded():
                    self.outputs[event.request_id] = event.output
                case RequestFailed():
                    self.errors[event.request_id] = event.error
        return events

    def run(self, max_steps: int = 20_000) -> None:
        """To the end of every request. The last check then says that all blocks are free."""
        while self.engine.has_work:
            self.step()
            assert self.num_steps < max_steps, "a request that never ends"

    def answer(self, request_id: str) -> Any:
        """The output but for what the clock said, what had been computed before, and drafts."""
        output = self.outputs[request_id]
        usage = Usage(output.usage.prompt_tokens, output.usage.completion_tokens)
        if isinstance(output, EmbeddingOutput):
            return replace(output, timings=NO_TIME, usage=usage)
        return replace(output, timings=NO_TIME, usage=usage, prefix_miss=None)

    def streamed_text(self, request_id: str, index: int = 0) -> str:
        return "".join(c.text for c in self.chunks[request_id] if c.index == index)


def make_engine(
    runner: Runner,
    *,
    max_model_len: int = 256,
    max_num_batched_tokens: int = 512,
    max_num_seqs: int = 64,
    tokenizer: Tokenizer | None = None,
    clock: Callable[[], float] = lambda: 0.0,
    prefix_caching: bool = True,
    growth: Growth | None = None,
    speculator: Speculator | None = None,
    store: DiskStore | None = None,
    headroom: float = 0.0,
) -> Engine:
    """Without `headroom` pools are filled to the last block, so that preemption is common."""
    return Engine(
        runner,
        tokenizer or tiny_tokenizer(),
        EngineLimits(
            max_model_len, max_num_batched_tokens, max_num_seqs, headroom_answers=headroom
        ),
        SamplingDefaults(),
        clock,
        PrefixIndex(b"", BLOCK_SIZE) if prefix_caching else None,
        growth,
        speculator,
        store,
    )


def fill_to_the_last_block(engine: Engine) -> None:
    """From now on whoever starts leaves no room for others, so that preemption is common."""
    engine._scheduler._headroom = Headroom(0.0)  # pyright: ignore[reportPrivateUsage]


def uneven_clock() -> Callable[[], float]:
    """A machine whose steps take any time, so that the engine cuts prompts anywhere."""
    state = [0, 0.0]

    def clock() -> float:
        state[0] += 1
        state[1] += (state[0] * 7919 % 13) * 0.01
        return state[1]

    return clock


def poison_reused_blocks(engine: Engine) -> None:
    """From now on a block that somebody gets holds NaN, so that what is read was written before."""
    runner, cache = engine._runner, engine._cache  # pyright: ignore[reportPrivateUsage]
    for group, pool in enumerate(cache._pools):  # pyright: ignore[reportPrivateUsage]

        def take(count: int, take: Callable[[int], list[int]] = pool.take, group: int = group):
            taken = take(count)
            runner.write_blocks(group, taken, b"\xff" * (count * runner.block_bytes(group)))
            return taken

        pool.take = take  # type: ignore[method-assign]
