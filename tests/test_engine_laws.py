"""The law: a request's answer is its own, whoever else is there and however its prompt is cut.

Compared with ==: tokens, texts, logprobs, finish reasons; alone, among others, in chunks, when
preempted; greedy and with a seed. First over a runner that computes nothing, where schedules are
many and random, then over tiny models on each executor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeserve.build import EngineOptions, load_model
from edgeserve.config import Config
from edgeserve.engine.engine import Engine
from edgeserve.types import CompletionOutput, RequestOutput, SamplingParams

from .engine_harness import VOCAB_SIZE, Harness, make_engine, tiny_tokenizer
from .fake_runner import FakeRunner, hashed_logits
from .tiny_models import write_tiny_model

CONTEXT = 96


@dataclass(frozen=True)
class Ask:
    """One request of a schedule. `pause` steps are taken after it was queued."""

    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int = 0
    pause: int = 0


def answer_alone(engine: Engine, ask: Ask) -> RequestOutput:
    bench = Harness(engine)
    bench.add("alone", ask.prompt, ask.params, ask.seed)
    bench.run()
    return replace(bench.answer("alone"), request_id="")


def answers_together(engine: Engine, asks: list[Ask]) -> list[RequestOutput]:
    bench = Harness(engine)
    for n, ask in enumerate(asks):
        bench.add(str(n), ask.prompt, ask.params, ask.seed)
        for _ in range(ask.pause):
            bench.step()
    bench.run()
    assert bench.errors == {}
    for n in range(len(asks)):
        for choice in bench.answer(str(n)).outputs:
            check_stream(bench, str(n), choice)
    return [replace(bench.answer(str(n)), request_id="") for n in range(len(asks))]


def check_stream(bench: Harness, name: str, choice: CompletionOutput) -> None:
    """Streamed pieces add up to the whole, and only the last one ends it."""
    chunks = [chunk for chunk in bench.chunks[name] if chunk.index == choice.index]
    assert "".join(chunk.text for chunk in chunks) == choice.text
    assert tuple(i for chunk in chunks for i in chunk.token_ids) == choice.token_ids
    reasons = [chunk.finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [choice.finish_reason]
    if choice.logprobs is not None:
        assert tuple(at for chunk in chunks for at in chunk.logprobs or ()) == choice.logprobs


# --- over a runner that computes nothing ---------------------------------------------------------

TOKENIZER = tiny_tokenizer()
tokens = st.integers(3, VOCAB_SIZE - 1)
sampling = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0, 3.0]),
    top_p=st.sampled_from([None, 0.7, 1.0]),
    top_k=st.sampled_from([None, 0, 3]),
    repetition_penalty=st.sampled_from([None, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.5]),
    logit_bias=st.sampled_from([None, {40: 3.0, 2: -100.0}]),
    n=st.sampled_from([1, 1, 2, 3]),
    max_tokens=st.integers(4, 12),
    min_tokens=st.sampled_from([0, 3]),
    stop=st.sampled_from([None, "e", ["th", " o"], ""]),
    stop_token_ids=st.sampled_from([(), tuple(range(100, 130))]),
    ignore_eos=st.booleans(),
    logprobs=st.sampled_from([None, 0, 2]),
    prompt_logprobs=st.sampled_from([None, 0, 2]),
    skip_special_tokens=st.booleans(),
)
asks = st.builds(
    Ask,
    prompt=st.lists(tokens, min_size=1, max_size=60).map(tuple),
    params=sampling,
    seed=st.sampled_from([0, 1, 2**64 - 1]),
    pause=st.integers(0, 4),
)


def uneven_clock() -> Callable[[], float]:
    """A machine whose steps take any time, so that the engine cuts prompts anywhere."""
    state = [0, 0.0]

    def clock() -> float:
        state[0] += 1
        state[1] += (state[0] * 7919 % 13) * 0.01
        return state[1]

    return clock


def fake_engine(num_blocks: int, batched: int, seqs: int = 64) -> Engine:
    return make_engine(
        FakeRunner(hashed_logits(VOCAB_SIZE, spread=3.0), num_blocks=num_blocks, num_groups=2),
        max_model_len=CONTEXT,
        max_num_batched_tokens=batched,
        max_num_seqs=seqs,
        tokenizer=TOKENIZER,
        clock=uneven_clock(),
    )


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(asks, min_size=1, max_size=5),
    st.sampled_from([1, 2, 7, 32, 512]),
    st.sampled_from([1, 2, 64]),
    st.sampled_from([6, 9, 400]),
)
def test_answers_do_not_depend_on_the_schedule(
    schedule: list[Ask], batched: int, seqs: int, num_blocks: int
) -> None:
    together = answers_together(fake_engine(num_blocks, batched, seqs), schedule)
    assert together == [answer_alone(fake_engine(400, 512), ask) for ask in schedule]


@settings(deadline=None, max_examples=12)
@given(asks, st.sampled_from([None, 0, 5]), st.sampled_from([None, 0, 5]))
def test_asking_for_logprobs_changes_no_token(
    ask: Ask, logprobs: int | None, prompt_logprobs: int | None
) -> None:
    asked = replace(ask.params, logprobs=logprobs, prompt_logprobs=prompt_logprobs)
    first = answer_alone(fake_engine(400, 512), ask)
    second = answer_alone(fake_engine(400, 512), replace(ask, params=asked))
    for a, b in zip(first.outputs, second.outputs, strict=True):
        assert (a.text, a.token_ids, a.finish_reason) == (b.text, b.token_ids, b.finish_reason)


@settings(deadline=None, max_examples=12)
@given(asks)
def test_choice_is_what_its_seed_alone_gives(ask: Ask) -> None:
    whole = answer_alone(fake_engine(400, 512), ask)
    for choice in whole.outputs:
        one = replace(ask, params=replace(ask.params, n=1), seed=choice.seed)
        (lone,) = answer_alone(fake_engine(400, 512), one).outputs
        assert replace(lone, index=choice.index) == choice


# --- over tiny models, on each executor ----------------------------------------------------------

DEVICES = ("oracle", "cpu")
MODELS = {
    "llama": {},
    "qwen3": {"layers": 1},
    # Windows of 24 with prompts past them, and every sixth layer full.
    "gemma3": {"layers": 6},
}
PROMPTS = (
    tuple(range(40, 40 + 45)),
    (50, 51),
    tuple(range(200, 170, -1)),
    (77,) * 17,
    tuple(range(90, 122)),
)
REQUESTS = (
    SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, logprobs=2, prompt_logprobs=1),
    SamplingParams(temperature=1.0, max_tokens=9, ignore_eos=True, logprobs=0, n=2),
    SamplingParams(temperature=1.0, top_p=0.9, top_k=40, max_tokens=6, frequency_penalty=1.0),
    SamplingParams(temperature=0.0, max_tokens=7, repetition_penalty=1.5, stop=["e", " o"]),
    SamplingParams(temperature=2.0, max_tokens=5, ignore_eos=True, logit_bias={60: 4.0}, min_p=0.1),
)
SCHEDULE = [
    Ask(prompt, params, seed=n, pause=n % 3)
    for n, (prompt, params) in enumerate(zip(PROMPTS, REQUESTS, strict=True))
]


@pytest.fixture(scope="module", params=MODELS)
def model_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family = request.param
    path = tmp_path_factory.mktemp("models") / f"{family}.gguf"
    return write_tiny_model(path, family, context=CONTEXT, **MODELS[family])


@pytest.fixture(scope="module")
def open_engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Engine]:
    folder = tmp_path_factory.mktemp("cache")

    def opened(path: Path, **options: object) -> Engine:
        return load_model(
            str(path),
            EngineOptions(**options),  # type: ignore[arg-type]
            config=Config(folder, folder),
            clock=uneven_clock(),
        ).engine

    return opened


def block_bytes(path: Path, device: str, open_engine: Callable[..., Engine]) -> int:
    """Bytes of one KV block, over all groups."""
    engine = open_engine(path, device=device, kv_cache_memory=1 << 30, max_num_seqs=1)
    runner = engine._runner  # pyright: ignore[reportPrivateUsage]
    total = sum(runner.block_bytes(group) for group in range(len(runner.cache_groups)))
    engine.close()
    return total


@pytest.fixture(scope="module", params=DEVICES)
def lone_answers(
    request: pytest.FixtureRequest, model_path: Path, open_engine: Callable[..., Engine]
) -> tuple[str, list[RequestOutput]]:
    """The device, and what each request answers alone there, its prompt in one piece."""
    engine = open_engine(model_path, device=request.param)
    answers = [answer_alone(engine, ask) for ask in SCHEDULE]
    engine.close()
    return request.param, answers


@pytest.mark.parametrize("batched", [1, 7, 32, 512])
def test_model_answers_the_same_among_others_and_in_chunks(
    model_path: Path,
    lone_answers: tuple[str, list[RequestOutput]],
    open_engine: Callable[..., Engine],
    batched: int,
) -> None:
    device, alone = lone_answers
    engine = open_engine(model_path, device=device, max_num_batched_tokens=batched)
    assert answers_together(engine, SCHEDULE) == alone
    engine.close()


def test_model_answers_the_same_when_preempted(
    model_path: Path,
    lone_answers: tuple[str, list[RequestOutput]],
    open_engine: Callable[..., Engine],
) -> None:
    device, alone = lone_answers
    room = (CONTEXT // 16) * block_bytes(model_path, device, open_engine)
    engine = open_engine(model_path, device=device, kv_cache_memory=room)
    preempted: list[int] = []
    scheduler = engine._scheduler  # pyright: ignore[reportPrivateUsage]
    preempt = scheduler._preempt  # pyright: ignore[reportPrivateUsage]
    scheduler._preempt = lambda s: (preempted.append(s.index), preempt(s))[1]  # type: ignore[method-assign]
    assert answers_together(engine, SCHEDULE) == alone
    assert preempted, "the pool was large enough: this proves nothing"
    engine.close()


def test_model_answers_the_same_with_any_number_of_threads(
    model_path: Path, open_engine: Callable[..., Engine]
) -> None:
    answers: list[list[RequestOutput]] = []
    for num_threads in (1, 2, 5):
        engine = open_engine(model_path, device="cpu", num_threads=num_threads)
        answers.append(answers_together(engine, SCHEDULE))
        engine.close()
    assert answers[0] == answers[1] == answers[2]
