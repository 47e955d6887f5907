"""A draft model: the same answers, guesses drawn with the same noise, memory that is bounded."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from edgeserve.build import load_model
from edgeserve.config import Config
from edgeserve.engine.engine import Engine
from edgeserve.engine.speculation.draft_lengths import PayingLengths
from edgeserve.engine.speculation.draft_model import DraftLimits, DraftModel
from edgeserve.engine.speculation.row_times import RowTimes
from edgeserve.engine.speculation.speculator import FixedLength, Speculator
from edgeserve.engine_options import EngineOptions
from edgeserve.errors import DraftVocabularyError, InvalidRequestError
from edgeserve.runner.batch import Batch
from edgeserve.types import RequestOutput, SamplingParams

from .engine_harness import VOCAB_SIZE, Harness, make_engine, poison_reused_blocks
from .fake_runner import FakeRunner, History, hashed_logits
from .test_engine_laws import CONTEXT, MODELS, SCHEDULE, TOKENIZER, Ask, uneven_clock
from .test_speculation import answers_together
from .tiny_models import write_tiny_model

LONG = [
    Ask((5, 7, 11 + n), SamplingParams(max_tokens=40, ignore_eos=True, temperature=1.0), seed=n)
    for n in range(3)
]
"""Enough guesses for a share to mean something."""

LIMITS = DraftLimits(max_rows=16, max_position=CONTEXT)


def nearly(share: float) -> FakeRunner:
    """A small model that agrees with the large one after a share of all histories."""
    large, other = hashed_logits(VOCAB_SIZE, 3.0), hashed_logits(VOCAB_SIZE, 2.0)

    def logits_of(history: History):
        return large(history) if sum(history) % 100 < share * 100 else other(history[1:])

    return FakeRunner(logits_of, num_blocks=40, windows=(10,))


def opened(draft: FakeRunner, length: int = 5, num_blocks: int = 60) -> tuple[Engine, DraftModel]:
    runner = FakeRunner(
        hashed_logits(VOCAB_SIZE, spread=3.0), num_blocks=num_blocks, windows=(24, 5)
    )
    proposer = DraftModel(draft, LIMITS, uneven_clock())
    engine = make_engine(
        runner,
        max_model_len=CONTEXT,
        max_num_batched_tokens=32,
        tokenizer=TOKENIZER,
        speculator=Speculator([proposer], FixedLength(length), VOCAB_SIZE),
    )
    poison_reused_blocks(engine)
    return engine, proposer


def plain(asks: list[Ask] = SCHEDULE) -> list[RequestOutput]:
    runner = FakeRunner(hashed_logits(VOCAB_SIZE, spread=3.0), num_blocks=60, windows=(24, 5))
    engine = make_engine(runner, max_model_len=CONTEXT, tokenizer=TOKENIZER)
    return answers_together(engine, asks)


def counts(bench: Harness) -> tuple[int, int]:
    usages = [output.usage for output in bench.outputs.values()]
    drafted = sum(usage.num_draft_tokens for usage in usages)
    return drafted, sum(usage.num_accepted_tokens for usage in usages)


@pytest.mark.parametrize("num_blocks", [9, 60])
@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0.0, 0.1), (0.8, 0.4, 0.95), (1.0, 1, 1)])
def test_answers_are_the_same_and_as_many_guesses_right_as_the_models_agree(
    share: float, low: float, high: float, num_blocks: int
) -> None:
    engine, proposer = opened(nearly(share), num_blocks=num_blocks)
    bench = Harness(engine)
    assert answers_together(engine, SCHEDULE + LONG, bench) == plain(SCHEDULE + LONG)
    drafted, accepted = counts(bench)
    assert drafted > 50
    assert low <= accepted / drafted <= high
    cache = proposer._cache  # pyright: ignore[reportPrivateUsage]
    cache.check([])  # every block was given back


def test_mirostat_is_guessed_with_its_own_state() -> None:
    params = SamplingParams(
        temperature=1.0, mirostat=2, mirostat_tau=3.0, max_tokens=40, ignore_eos=True
    )
    ask = Ask((50, 51, 52), params, 3)
    engine, _ = opened(nearly(1.0))
    runner = FakeRunner(hashed_logits(VOCAB_SIZE, spread=3.0), num_blocks=60, windows=(24, 5))
    alone = make_engine(runner, max_model_len=CONTEXT, tokenizer=TOKENIZER)
    bench = Harness(engine)
    assert answers_together(engine, [ask], bench) == answers_together(alone, [ask])
    drafted, accepted = counts(bench)
    assert 0 < drafted == accepted


def test_a_pool_too_small_for_all_guesses_for_some() -> None:
    draft = nearly(1.0)
    draft.num_blocks = 4
    engine, _ = opened(draft)
    bench = Harness(engine)
    assert answers_together(engine, SCHEDULE, bench) == plain()
    assert counts(bench)[0] > 0


def test_a_long_prompt_is_read_in_passes_of_bounded_rows() -> None:
    draft = nearly(1.0)
    engine, _ = opened(draft)
    answers_together(engine, SCHEDULE)
    rows = [batch.num_rows for batch in draft.batches]
    assert max(rows) == LIMITS.max_rows


def test_a_draft_model_that_fails_is_asked_no_more_and_answers_go_on() -> None:
    draft = nearly(1.0)

    def fail(_batch: Batch) -> None:
        if len(draft.batches) == 5:
            raise RuntimeError("out of memory")

    draft.on_execute = fail
    engine, _ = opened(draft)
    assert answers_together(engine, SCHEDULE) == plain()
    assert len(draft.batches) == 5
    assert draft.closed == 1
    speculator = engine._speculator  # pyright: ignore[reportPrivateUsage]
    assert speculator is not None
    assert [(name, str(error)) for name, error in speculator.failures] == [
        ("draft model", "out of memory")
    ]


@pytest.mark.parametrize(("draft_cost", "pays"), [(0.05, True), (0.95, False)])
def test_a_draft_model_is_used_where_its_passes_are_cheap(draft_cost: float, pays: bool) -> None:
    """On a synthetic clock: a pass of either model is flat over rows."""
    now = [0.0]
    params = SamplingParams(temperature=1.0, max_tokens=90, ignore_eos=True)
    prompt = (50, 51, 52)

    def spend(seconds: float) -> None:
        now[0] += seconds

    seconds: list[float] = []
    for drafts in (False, True):
        large = FakeRunner(hashed_logits(VOCAB_SIZE, 3.0), num_blocks=20)
        large.on_execute = lambda batch: spend(1.0 + 0.02 * batch.num_rows)
        small = nearly(0.9)
        small.on_execute = lambda _: spend(draft_cost)
        proposer = DraftModel(small, LIMITS, lambda: now[0])
        speculator = Speculator([proposer], PayingLengths(RowTimes()), VOCAB_SIZE)
        engine = make_engine(
            large,
            max_model_len=CONTEXT,
            tokenizer=TOKENIZER,
            clock=lambda: now[0],
            speculator=speculator if drafts else None,
        )
        bench = Harness(engine)
        began = now[0]
        answers_together(engine, [Ask(prompt, params, 3)], bench)
        seconds.append(now[0] - began)
    if pays:
        assert seconds[1] < 0.6 * seconds[0]
    else:
        assert seconds[1] < 1.05 * seconds[0]


# --- from files ----------------------------------------------------------------------------------


def load(path: Path, **options: object) -> Engine:
    config = Config(path.parent, path.parent)
    given = EngineOptions(num_threads=1, **options)  # type: ignore[arg-type]
    return load_model(str(path), given, config=config, clock=time.monotonic).engine


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_model_answers_the_same_with_a_draft_model(tmp_path: Path, family: str) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", family, context=CONTEXT, **MODELS[family])
    draft = tmp_path / "d.gguf"
    write_tiny_model(draft, family, quant="Q8_0", context=CONTEXT, **MODELS[family])
    engine = load(path, speculation="off")
    expected = answers_together(engine, SCHEDULE)
    engine.close()
    engine = load(path, draft_model=str(draft))
    speculator = engine._speculator  # pyright: ignore[reportPrivateUsage]
    assert speculator is not None
    speculator._lengths = FixedLength(4)  # pyright: ignore[reportPrivateUsage]
    bench = Harness(engine)
    assert answers_together(engine, SCHEDULE, bench) == expected
    drafted, accepted = counts(bench)
    assert 0.3 * drafted < accepted
    assert speculator.failures == []
    engine.close()


def test_a_draft_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", "llama", context=CONTEXT)
    other = write_tiny_model(tmp_path / "d.gguf", "gemma3", context=CONTEXT)
    with pytest.raises(DraftVocabularyError, match="another vocabulary") as caught:
        load(path, draft_model=str(other))
    assert caught.value.draft_model == str(other)


@pytest.mark.parametrize("fields", [{"draft_model": ""}, {"draft_model": 5}])
@pytest.mark.parametrize("speculation", ["auto", "off"])
def test_draft_models_name_is_checked(fields: dict[str, object], speculation: str) -> None:
    with pytest.raises(InvalidRequestError, match="draft_model"):
        EngineOptions(speculation=speculation, **fields)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="left out with speculation off"):
        EngineOptions(speculation="off", draft_model="smollm2")


def test_prompts_longer_than_the_draft_models_context_are_answered() -> None:
    engine, proposer = opened(nearly(1.0))
    proposer._limits = replace(LIMITS, max_position=20)  # pyright: ignore[reportPrivateUsage]
    assert answers_together(engine, SCHEDULE) == plain()
