"""The law: a request's answer is its own, whoever else is there and however its prompt is cut.

Compared with ==: tokens, texts, logprobs, finish reasons; alone, among others, in chunks, when
preempted, with prefixes found, forked, evicted and never kept; greedy and with a seed. First over a
runner that computes nothing, where schedules are many and random, then over tiny models on each
executor. Reused blocks hold NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeserve.build import load_model
from edgeserve.cache.kv_cache import Growth
from edgeserve.config import Config
from edgeserve.engine.engine import Engine
from edgeserve.engine_options import EngineOptions
from edgeserve.types import CompletionOutput, RequestOutput, SamplingParams

from .engine_harness import (
    VOCAB_SIZE,
    Harness,
    fill_to_the_last_block,
    make_engine,
    poison_reused_blocks,
    tiny_tokenizer,
    uneven_clock,
)
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


def answers_together(
    engine: Engine, asks: list[Ask], bench: Harness | None = None
) -> list[RequestOutput]:
    bench = bench or Harness(engine)
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
    dynatemp_range=st.sampled_from([None, None, 1.0]),
    xtc_probability=st.sampled_from([None, None, 0.5]),
    dry_multiplier=st.sampled_from([None, None, 2.0]),
    mirostat=st.sampled_from([None, None, 2]),
    samplers=st.sampled_from([None, None, ["temperature", "top_p", "penalties", "xtc", "dry"]]),
)
beginnings = st.tuples(
    st.sampled_from([range(100, 160), range(160, 220), [*range(100, 132), *range(3, 30)]]),
    st.integers(0, 60),
    st.lists(tokens, min_size=1, max_size=12),
).map(lambda parts: tuple([*parts[0][: parts[1]], *parts[2]][:60]))
asks = st.builds(
    Ask,
    prompt=st.one_of(beginnings, beginnings, st.lists(tokens, min_size=1, max_size=60).map(tuple)),
    params=sampling,
    seed=st.sampled_from([0, 1, 2**64 - 1]),
    pause=st.integers(0, 4),
)


def uneven_memory() -> Callable[[int, int], bool]:
    """A machine that has memory to spare every third time."""
    state = [0]

    def may_grow(_group: int, _num_blocks: int) -> bool:
        state[0] += 1
        return state[0] % 3 == 0

    return may_grow


def fake_engine(
    num_blocks: int,
    batched: int,
    seqs: int = 64,
    *,
    prefix_caching: bool = False,
    growth: Growth | None = None,
) -> Engine:
    runner = FakeRunner(
        hashed_logits(VOCAB_SIZE, spread=3.0), num_blocks=num_blocks, windows=(24, 5)
    )
    engine = make_engine(
        runner,
        max_model_len=CONTEXT,
        max_num_batched_tokens=batched,
        max_num_seqs=seqs,
        tokenizer=TOKENIZER,
        clock=uneven_clock(),
        prefix_caching=prefix_caching,
        growth=growth,
    )
    poison_reused_blocks(engine)
    return engine


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(asks, min_size=1, max_size=5),
    st.sampled_from([1, 2, 7, 32, 512]),
    st.sampled_from([1, 2, 64]),
    st.sampled_from([6, 9, 60]),
    st.booleans(),
)
def test_answers_do_not_depend_on_the_schedule_or_on_what_is_cached(
    schedule: list[Ask], batched: int, seqs: int, num_blocks: int, prefix_caching: bool
) -> None:
    alone = [answer_alone(fake_engine(60, 512), ask) for ask in schedule]
    # Nine blocks hold each request alone; for more there is memory now and then.
    growth = Growth(9, uneven_memory()) if num_blocks > 9 else None
    engine = fake_engine(num_blocks, batched, seqs, prefix_caching=prefix_caching, growth=growth)
    assert answers_together(engine, schedule) == alone
    if prefix_caching:
        assert answers_together(engine, schedule[::-1]) == alone[::-1]


@settings(deadline=None, max_examples=12)
@given(asks, st.sampled_from([None, 0, 5]), st.sampled_from([None, 0, 5]))
def test_asking_for_logprobs_changes_no_token(
    ask: Ask, logprobs: int | None, prompt_logprobs: int | None
) -> None:
    asked = replace(ask.params, logprobs=logprobs, prompt_logprobs=prompt_logprobs)
    first = answer_alone(fake_engine(60, 512), ask)
    second = answer_alone(fake_engine(60, 512), replace(ask, params=asked))
    for a, b in zip(first.outputs, second.outputs, strict=True):
        assert (a.text, a.token_ids, a.finish_reason) == (b.text, b.token_ids, b.finish_reason)


@settings(deadline=None, max_examples=12)
@given(asks)
def test_choice_is_what_its_seed_alone_gives(ask: Ask) -> None:
    whole = answer_alone(fake_engine(60, 512), ask)
    for choice in whole.outputs:
        one = replace(ask, params=replace(ask.params, n=1), seed=choice.seed)
        (lone,) = answer_alone(fake_engine(60, 512), one).outputs
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
    (60, 61, 62) * 6,
    tuple(range(130, 150)),
)
REQUESTS = (
    SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, logprobs=2, prompt_logprobs=1),
    SamplingParams(temperature=1.0, max_tokens=9, ignore_eos=True, logprobs=0, n=2),
    SamplingParams(temperature=1.0, top_p=0.9, top_k=40, max_tokens=6, frequency_penalty=1.0),
    SamplingParams(temperature=0.0, max_tokens=7, repetition_penalty=1.5, stop=["e", " o"]),
    SamplingParams(temperature=2.0, max_tokens=5, ignore_eos=True, logit_bias={60: 4.0}, min_p=0.1),
    SamplingParams(temperature=1.0, max_tokens=8, mirostat=2, mirostat_eta=0.5, dry_multiplier=1.0),
    SamplingParams(temperature=1.0, max_tokens=6, xtc_probability=0.5, typical_p=0.9, n=2),
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
    """The device, and what each request answers alone there, its prompt in one piece, computed
    whole."""
    engine = open_engine(model_path, device=request.param, prefix_caching=False)
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
    poison_reused_blocks(engine)
    assert answers_together(engine, SCHEDULE) == alone
    cold = replace(engine.cache_counts)
    assert (min(cold.forked, cold.copied) > 0) == (batched > 1)  # alone, a choice waits
    # Warm: among prompts that came back some are found whole, and some in part.
    assert answers_together(engine, SCHEDULE[::-1]) == alone[::-1]
    assert engine.cache_counts.hit > cold.hit
    engine.close()


def test_model_answers_the_same_when_preempted(
    model_path: Path,
    lone_answers: tuple[str, list[RequestOutput]],
    open_engine: Callable[..., Engine],
) -> None:
    device, alone = lone_answers
    room = (CONTEXT // 16) * block_bytes(model_path, device, open_engine)
    engine = open_engine(model_path, device=device, kv_cache_memory=room)
    fill_to_the_last_block(engine)
    poison_reused_blocks(engine)
    preempted: list[int] = []
    scheduler = engine._scheduler  # pyright: ignore[reportPrivateUsage]
    preempt = scheduler._preempt  # pyright: ignore[reportPrivateUsage]
    scheduler._preempt = lambda s: (preempted.append(s.index), preempt(s))[1]  # type: ignore[method-assign]
    assert answers_together(engine, SCHEDULE) == alone
    assert preempted, "the pool was large enough: this proves nothing"
    assert answers_together(engine, SCHEDULE) == alone
    # What was computed last is still there.
    assert answers_together(engine, SCHEDULE[2:3] * 2) == alone[2:3] * 2
    counts = engine.cache_counts
    assert min(counts.hit, counts.forked, counts.copied, counts.evicted) > 0
    assert (counts.behind > 0) == (len(scheduler._cache.new_tables().groups) > 1)  # pyright: ignore[reportPrivateUsage]
    engine.close()


CHAT = SamplingParams(temperature=1.0, max_tokens=8, ignore_eos=True, logprobs=1)


def chat(engine: Engine) -> list[tuple[RequestOutput, int]]:
    """Three turns of a chat, the second one again with another question, and the third again:
    each answer, and how much of its prompt was found."""
    answers: list[tuple[RequestOutput, int]] = []

    def turn(prompt: tuple[int, ...]) -> tuple[int, ...]:
        bench = Harness(engine)
        bench.add("turn", prompt, CHAT, seed=len(prompt))
        bench.run()
        answers.append((bench.answer("turn"), bench.outputs["turn"].num_cached_tokens))
        return (*prompt, *answers[-1][0].outputs[0].token_ids)

    first = turn(tuple(range(100, 140)))
    second = turn((*first, *range(40, 48)))
    third = (*second, *range(48, 56))
    turn(third)
    turn((*first, *range(60, 68)))
    turn(third)
    return answers


def test_chat_finds_its_earlier_turns_and_answers_the_same_also_when_it_branches(
    model_path: Path,
    lone_answers: tuple[str, list[RequestOutput]],
    open_engine: Callable[..., Engine],
) -> None:
    device, _ = lone_answers
    engines = [
        open_engine(model_path, device=device, prefix_caching=prefix_caching)
        for prefix_caching in (True, False)
    ]
    poison_reused_blocks(engines[0])
    found, whole = (chat(engine) for engine in engines)
    assert [answer for answer, _ in found] == [answer for answer, _ in whole]
    # Prompts of 40, 56, 72, 56 and 72 tokens: full blocks of what was computed before. The last
    # token of an answer never is, and the last of a prompt always.
    assert [num_cached for _, num_cached in found] == [0, 32, 48, 48, 64]
    assert {num_cached for _, num_cached in whole} == {0}
    for engine in engines:
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
