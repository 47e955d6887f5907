"""Lookahead: the same answers, fewer steps where rows are nearly free, and none where they are not.

Over runners that compute nothing. `chained_logits` depend on the last token alone, of nine kinds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeserve.engine.engine import Engine
from edgeserve.engine.sequence import Sequence as Line
from edgeserve.engine.sequence import VerifiedDraft
from edgeserve.engine.speculation.draft_lengths import PayingLengths
from edgeserve.engine.speculation.lookahead import Lookahead
from edgeserve.engine.speculation.row_times import RowTimes
from edgeserve.engine.speculation.speculator import DraftLengths, FixedLength, Speculator
from edgeserve.types import SamplingParams

from .engine_harness import VOCAB_SIZE, Harness, make_engine, poison_reused_blocks
from .fake_runner import FakeRunner, History, LogitsOf, hashed_logits
from .test_engine_laws import (
    CONTEXT,
    MODELS,
    SCHEDULE,
    TOKENIZER,
    Ask,
    answer_alone,
    answers_together,
    asks,
    uneven_clock,
)
from .test_speculation import count_preemptions, count_rejections
from .test_speculation_lookup import line
from .test_speculation_models import alone, opened
from .tiny_models import write_tiny_model


def chained_logits() -> LogitsOf:
    logits_of = hashed_logits(VOCAB_SIZE, spread=6.0)
    return lambda history: logits_of((history[-1] % 9,))


def looking_ahead(
    lengths: DraftLengths, *, num_blocks: int = 60, batched: int = 512, caching: bool = True
) -> tuple[Engine, FakeRunner]:
    runner = FakeRunner(chained_logits(), num_blocks=num_blocks, windows=(24, 5))
    engine = make_engine(
        runner,
        max_model_len=CONTEXT,
        max_num_batched_tokens=batched,
        tokenizer=TOKENIZER,
        clock=uneven_clock(),
        prefix_caching=caching,
        speculator=Speculator([Lookahead()], lengths, VOCAB_SIZE),
    )
    poison_reused_blocks(engine)
    return engine, runner


def plain_engine() -> Engine:
    runner = FakeRunner(chained_logits(), num_blocks=60, windows=(24, 5))
    return make_engine(
        runner,
        max_model_len=CONTEXT,
        tokenizer=TOKENIZER,
        clock=uneven_clock(),
        prefix_caching=False,
    )


# --- the law -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(asks, min_size=1, max_size=4),
    st.sampled_from([1, 3, 18]),
    st.sampled_from([2, 7, 32, 512]),
    st.sampled_from([6, 9, 60]),
    st.booleans(),
)
def test_answers_do_not_depend_on_looking_ahead(
    schedule: list[Ask], length: int, batched: int, blocks: int, caching: bool
) -> None:
    expected = [answer_alone(plain_engine(), ask) for ask in schedule]
    engine, runner = looking_ahead(
        FixedLength(length), num_blocks=blocks, batched=batched, caching=caching
    )
    assert answers_together(engine, schedule) == expected
    assert all(batch.num_rows <= batched for batch in runner.batches)


def test_right_and_wrong_guesses_and_preemption_all_happen() -> None:
    expected = [answer_alone(plain_engine(), ask) for ask in SCHEDULE]
    engine, runner = looking_ahead(FixedLength(6), num_blocks=7, batched=32)
    rejected_inside, preempted = count_rejections(runner), count_preemptions(engine)
    bench = Harness(engine)
    assert answers_together(engine, SCHEDULE, bench) == expected
    assert len(preempted) > 0
    assert len(rejected_inside) > 0
    usages = [output.usage for output in bench.outputs.values()]
    accepted = sum(usage.num_accepted_tokens for usage in usages)
    assert 0 < accepted < sum(usage.num_draft_tokens for usage in usages)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_model_answers_the_same_looking_ahead(tmp_path: Path, family: str) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", family, context=CONTEXT, **MODELS[family])
    expected = alone(path, "f16")
    engine = opened(path, "f16", speculation="lookahead")
    speculator = engine._speculator  # pyright: ignore[reportPrivateUsage]
    assert speculator is not None
    speculator._lengths = FixedLength(5)  # pyright: ignore[reportPrivateUsage]
    bench = Harness(engine)
    assert answers_together(engine, SCHEDULE, bench) == expected
    assert sum(output.usage.num_draft_tokens for output in bench.outputs.values()) > 0
    assert speculator.failures == []
    engine.close()


# --- where it pays -------------------------------------------------------------------------------


def taken(
    row_cost: float, temperature: float, proposers: list[Lookahead]
) -> tuple[float, int, Harness]:
    """Seconds and steps of an answer, where each row adds so much of a step of one."""
    now = [0.0]
    runner = FakeRunner(chained_logits(), num_blocks=40)

    def spend(num_rows: int) -> None:
        now[0] += 1.0 + row_cost * (num_rows - 1)

    runner.on_execute = lambda batch: spend(batch.num_rows)
    engine = make_engine(
        runner,
        max_model_len=CONTEXT,
        tokenizer=TOKENIZER,
        clock=lambda: now[0],
        speculator=Speculator(proposers, PayingLengths(RowTimes()), VOCAB_SIZE),
    )
    params = SamplingParams(temperature=temperature, max_tokens=90, ignore_eos=True)
    bench = Harness(engine)
    answers_together(engine, [Ask((50, 51, 52), params, 3)], bench)
    return now[0], bench.num_steps, bench


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_it_switches_on_and_wins_where_rows_are_nearly_free(temperature: float) -> None:
    plain_seconds, plain_steps, _ = taken(0.02, temperature, [])
    seconds, steps, bench = taken(0.02, temperature, [Lookahead()])
    assert steps < 0.85 * plain_steps
    assert seconds < 0.9 * plain_seconds
    assert bench.outputs["0"].usage.num_accepted_tokens > 0


def nothing_follows(history: History):
    """Logits that no n-gram foretells."""
    return hashed_logits(VOCAB_SIZE, spread=3.0)(history)


def test_it_stays_off_where_a_row_adds_a_fifth_and_nothing_is_foretold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(globals(), "chained_logits", lambda: nothing_follows)
    plain_seconds, _, _ = taken(0.2, 1.0, [])
    seconds, _, bench = taken(0.2, 1.0, [Lookahead()])
    assert seconds < 1.03 * plain_seconds
    assert bench.outputs["0"].usage.num_draft_tokens < 20


# --- what is learned -----------------------------------------------------------------------------


def guesses(lookahead: Lookahead, sequence: Line, count: int) -> list[int]:
    chances = lookahead.foresee(sequence, count)
    assert all(0.0 < chance <= 1.0 for chance in chances)
    return lookahead.draft({sequence: count})[sequence]


def test_an_answer_after_a_wrong_guess_is_guessed_where_it_is_right() -> None:
    lookahead, sequence = Lookahead(), line([1, 2, 3])
    assert len(guesses(lookahead, sequence, 4)) == 4
    # 50 was guessed and 9 said; after 50 the model would have said 60, after that 70.
    sequence.verified = VerifiedDraft(3, (50, 60, 8, 8), (9, 60, 70, 4, 5))
    sequence.token_ids += [9]
    guesses(lookahead, sequence, 4)
    sequence.token_ids += [50]
    assert guesses(lookahead, sequence, 2) == [60, 70]


def test_the_window_holds_what_was_said_in_each_place() -> None:
    lookahead, sequence = Lookahead(), line([1, 2, 3])
    guesses(lookahead, sequence, 4)
    sequence.verified = VerifiedDraft(3, (50, 51, 52, 53), (9, 20, 21, 22, 23))
    sequence.token_ids += [9]
    assert guesses(lookahead, sequence, 4) == [20, 21, 22, 23]


def test_rows_that_bring_nothing_are_foreseen_to_bring_less() -> None:
    lookahead, sequence = Lookahead(), line([1, 2, 3])
    before = lookahead.foresee(sequence, 8)
    after = before
    for n in range(12):
        draft = tuple(lookahead.draft({sequence: 8})[sequence])
        sequence.verified = VerifiedDraft(3 + n, draft, (*range(100 * n + 99, 100 * n + 108),))
        sequence.token_ids += [100 * n + 99]
        after = lookahead.foresee(sequence, 8)
    assert after[0] < 0.5 * before[0]


def test_a_sequence_that_ended_is_forgotten() -> None:
    lookahead, sequence = Lookahead(), line([1, 2, 3])
    lookahead.foresee(sequence, 4)
    lookahead.forget(sequence)
    lookahead.forget(sequence)
    assert lookahead._readers == {}  # pyright: ignore[reportPrivateUsage]


def test_schedule_has_an_answer_of_one_token() -> None:
    ask = replace(SCHEDULE[0], params=replace(SCHEDULE[0].params, max_tokens=1))
    engine, _ = looking_ahead(FixedLength(5))
    assert answers_together(engine, [ask]) == [answer_alone(plain_engine(), ask)]
