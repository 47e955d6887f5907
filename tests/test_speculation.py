"""Speculation: drafts change when tokens come, never which. Proposers here know the answer, or lie.

Over a runner that computes nothing, and reads each row's whole history back through the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeserve.engine.engine import Engine
from edgeserve.engine.sequence import Sequence as Line
from edgeserve.engine.speculation.speculator import FixedLength, Speculator
from edgeserve.types import RequestOutput, SamplingParams

from .engine_harness import (
    VOCAB_SIZE,
    Harness,
    ids_of,
    make_engine,
    poison_reused_blocks,
    tiny_tokenizer,
)
from .fake_runner import FakeRunner, hashed_logits, scripted_logits
from .test_engine_laws import (
    CONTEXT,
    TOKENIZER,
    Ask,
    answer_alone,
    answers_together,
    asks,
    check_stream,
    uneven_clock,
)


@dataclass(eq=False)
class Oracle:
    """Guesses what a sequence will say, and is wrong where `wrong` says so.

    `answers` maps a prompt and a choice to what it says; `wrong` gives for a position the lie.
    """

    answers: Mapping[tuple[tuple[int, ...], int], tuple[int, ...]]
    lies: Sequence[int | None] = (None,)
    name: str = "oracle"
    seconds_per_token: float = 0.0
    forgotten: list[Line] = field(default_factory=list)

    def foresee(self, _sequence: Line, limit: int, /) -> list[float]:
        return [1.0] * limit

    def draft(self, wanted: Mapping[Line, int]) -> Mapping[Line, list[int]]:
        return {sequence: self._guess(sequence, count) for sequence, count in wanted.items()}

    def forget(self, sequence: Line) -> None:
        self.forgotten.append(sequence)

    def close(self) -> None:
        pass

    def _guess(self, sequence: Line, count: int) -> list[int]:
        prompt = tuple(sequence.token_ids[: sequence.num_prompt_tokens])
        answer = self.answers[prompt, sequence.index]
        first = sequence.num_output_tokens
        told = [*answer[first : first + count], *[7] * count][:count]
        for at in range(count):
            lie = self.lies[(first + at) % len(self.lies)]
            told[at] = told[at] if lie is None else lie
        return told


def knowing(outputs: Sequence[RequestOutput], lies: Sequence[int | None] = (None,)) -> Oracle:
    return Oracle(
        {
            (output.prompt_token_ids, choice.index): choice.token_ids
            for output in outputs
            for choice in output.outputs
        },
        lies,
    )


def speculating(
    proposer: Oracle, length: int, *, num_blocks: int, batched: int, caching: bool, seqs: int = 64
) -> tuple[Engine, FakeRunner]:
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
        prefix_caching=caching,
        speculator=Speculator([proposer], FixedLength(length), VOCAB_SIZE),
    )
    poison_reused_blocks(engine)
    return engine, runner


def plain_engine() -> Engine:
    runner = FakeRunner(hashed_logits(VOCAB_SIZE, spread=3.0), num_blocks=60, windows=(24, 5))
    return make_engine(
        runner,
        max_model_len=CONTEXT,
        tokenizer=TOKENIZER,
        clock=uneven_clock(),
        prefix_caching=False,
    )


def count_preemptions(engine: Engine) -> list[Line]:
    """Fills up with sequences that gave way, as they do."""
    found: list[Line] = []
    scheduler = engine._scheduler  # pyright: ignore[reportPrivateUsage]
    preempt = scheduler._preempt  # pyright: ignore[reportPrivateUsage]
    scheduler._preempt = lambda s: (found.append(s), preempt(s))[1]  # type: ignore[method-assign]
    return found


def count_rejections(runner: FakeRunner) -> list[int]:
    """Fills up with positions inside a block that are written again with another token."""
    found: list[int] = []
    last: dict[tuple[int, int], int] = {}

    def watch(batch: object) -> None:
        for group in range(batch.num_groups):  # type: ignore[attr-defined]
            table = batch.block_tables[0, group]  # type: ignore[attr-defined]
            for row in range(int(batch.first_row[group]), int(batch.first_row[group + 1])):  # type: ignore[attr-defined]
                block, slot = divmod(int(batch.positions[row]), 16)  # type: ignore[attr-defined]
                cell, token = (int(table[block]), slot), int(batch.token_ids[row])  # type: ignore[attr-defined]
                first = row == int(batch.first_row[group])  # type: ignore[attr-defined]
                if slot > 0 and first and cell in last and last[cell] != token:
                    found.append(int(batch.positions[row]))  # type: ignore[attr-defined]
                last[cell] = token

    runner.on_execute = watch
    return found


# --- the law -------------------------------------------------------------------------------------

LIES = st.lists(
    st.sampled_from([None, None, None, 7, 40, 101, -1, VOCAB_SIZE, 2**40]), min_size=1, max_size=9
)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(asks, min_size=1, max_size=4),
    LIES,
    st.sampled_from([1, 3, 18]),
    st.sampled_from([2, 7, 32, 512]),
    st.sampled_from([6, 9, 60]),
    st.booleans(),
)
def test_answers_do_not_depend_on_drafts(
    schedule: list[Ask],
    lies: list[int | None],
    length: int,
    batched: int,
    blocks: int,
    caching: bool,
) -> None:
    alone = [answer_alone(plain_engine(), ask) for ask in schedule]
    # Requests of one prompt may differ in what they say: the last one's answer misleads the others.
    engine, runner = speculating(
        knowing(alone, lies), length, num_blocks=blocks, batched=batched, caching=caching
    )
    assert answers_together(engine, schedule) == alone
    assert all(batch.num_rows <= batched for batch in runner.batches)
    assert answers_together(engine, schedule[::-1]) == alone[::-1]


SCHEDULE = [
    Ask(tuple(range(40, 85)), SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)),
    Ask(
        (50, 51),
        SamplingParams(temperature=1.0, max_tokens=40, n=2, logprobs=2, ignore_eos=True),
        5,
    ),
    Ask((77,) * 17, SamplingParams(temperature=3.0, max_tokens=30, repetition_penalty=1.3), 6, 2),
    Ask(tuple(range(90, 122)), SamplingParams(temperature=1.0, max_tokens=30, stop=["e", "th"]), 7),
]


def test_rejected_drafts_inside_blocks_and_freed_windows_and_preemption_all_happen() -> None:
    """What the law above must have met: here by counting, on a schedule that is always the same."""
    alone = [answer_alone(plain_engine(), ask) for ask in SCHEDULE]
    engine, runner = speculating(
        knowing(alone, (None, None, None, 7, None)), 6, num_blocks=9, batched=32, caching=True
    )
    rejected_inside = count_rejections(runner)
    preempted = count_preemptions(engine)
    bench = Harness(engine)
    assert answers_together(engine, SCHEDULE, bench) == alone
    assert len(preempted) > 0
    assert engine.cache_counts.behind > 0
    assert len(rejected_inside) > 0
    usages = [output.usage for output in bench.outputs.values()]
    assert sum(usage.num_accepted_tokens for usage in usages) > 50
    assert all(usage.num_accepted_tokens < usage.num_draft_tokens for usage in usages)
    for request_id, output in bench.outputs.items():
        drafted = sum(chunk.drafted for chunk in bench.chunks[request_id])
        # A choice's last token may have been guessed as well, and nothing was computed after it.
        assert 0 <= drafted - output.usage.num_accepted_tokens <= len(output.outputs)


def test_every_draft_is_accepted_where_the_proposer_knows_and_steps_are_few() -> None:
    ask = Ask(tuple(range(40, 85)), SamplingParams(temperature=1.0, max_tokens=40, ignore_eos=True))
    alone = answer_alone(plain_engine(), ask)
    engine, _ = speculating(knowing([alone]), 7, num_blocks=60, batched=512, caching=False)
    bench = Harness(engine)
    assert answers_together(engine, [ask], bench) == [alone]
    usage = bench.outputs["0"].usage
    # The prompt gives one token, four steps eight each, and the last seven.
    assert (usage.num_draft_tokens, usage.num_accepted_tokens) == (34, 34)
    assert bench.num_steps == 6
    drafted = [chunk.drafted for chunk in bench.chunks["0"]]
    assert drafted == [False, *([True] * 7 + [False]) * 4, *[True] * 6, False]


def test_a_sequence_that_ended_is_forgotten_by_proposers() -> None:
    ask = Ask((50, 51), SamplingParams(temperature=0.0, max_tokens=5, n=2, ignore_eos=True))
    oracle = knowing([answer_alone(plain_engine(), ask)])
    engine, _ = speculating(oracle, 2, num_blocks=60, batched=512, caching=False)
    bench = Harness(engine)
    bench.add("r", ask.prompt, ask.params)
    bench.run()
    assert sorted(sequence.index for sequence in oracle.forgotten) == [0, 1]


# --- ends inside a draft -------------------------------------------------------------------------


def say(text: str, prompt: list[int], **fields: object) -> Harness:
    """An engine that drafts eight tokens of what it will say: `text`, a byte a token, and more."""
    tokenizer = tiny_tokenizer()
    script = [*ids_of(tokenizer, text), tokenizer.eos_id or 0]
    runner = FakeRunner(scripted_logits(VOCAB_SIZE, len(prompt), script), num_blocks=64)
    # Also past the end of text, as a proposer that copies would.
    oracle = Oracle({(tuple(prompt), 0): (*script, *ids_of(tokenizer, "and so on"))})
    speculator = Speculator([oracle], FixedLength(8), VOCAB_SIZE)
    bench = Harness(make_engine(runner, tokenizer=tokenizer, speculator=speculator))
    bench.add("r", prompt, SamplingParams(temperature=0.0, **fields))  # type: ignore[arg-type]
    bench.run()
    return bench


@pytest.mark.parametrize(
    ("fields", "text", "reason"),
    [
        ({}, "one two three", "stop"),
        ({"stop": ["wo t"]}, "one t", "stop"),
        ({"max_tokens": 7}, "one two", "length"),
        ({"stop": ["one"], "min_tokens": 6}, "one two three", "stop"),
    ],
)
def test_text_ends_inside_a_draft_where_it_ends_without(
    fields: dict[str, object], text: str, reason: str
) -> None:
    bench = say("one two three", [5, 6, 7], **fields)
    (choice,) = bench.outputs["r"].outputs
    assert (choice.text, choice.finish_reason) == (text, reason)
    assert bench.streamed_text("r") == text
    check_stream(bench, "r", choice)
    assert bench.outputs["r"].usage.num_accepted_tokens > 0


def test_a_draft_never_runs_past_what_may_be_said() -> None:
    bench = say("one two three", [5, 6, 7], max_tokens=4)
    usage = bench.outputs["r"].usage
    assert (usage.completion_tokens, usage.num_draft_tokens) == (4, 2)


def test_a_row_of_a_rejected_draft_may_hold_nan() -> None:
    prompt = [5, 6, 7]

    def logits_of(history: tuple[int, ...]) -> np.ndarray:
        logits = scripted_logits(VOCAB_SIZE, 3, [30, 31, 32])(history)
        return logits * np.nan if 99 in history else logits

    runner = FakeRunner(logits_of, num_blocks=64)
    oracle = Oracle({(tuple(prompt), 0): (30, 31, 32)}, (None, 99))
    speculator = Speculator([oracle], FixedLength(2), VOCAB_SIZE)
    bench = Harness(make_engine(runner, speculator=speculator))
    bench.add("r", prompt, SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True))
    bench.run()
    assert bench.errors == {}
    assert bench.outputs["r"].outputs[0].token_ids == (30, 31, 32)


# --- room ----------------------------------------------------------------------------------------


def test_drafts_shrink_to_what_the_budget_leaves() -> None:
    alone = [answer_alone(plain_engine(), ask) for ask in SCHEDULE]
    engine, runner = speculating(knowing(alone), 20, num_blocks=60, batched=12, caching=False)
    assert answers_together(engine, SCHEDULE) == alone
    assert max(batch.num_rows for batch in runner.batches) == 12


@pytest.mark.parametrize("num_blocks", [4, 5, 6, 7])
def test_drafts_cause_no_preemption(num_blocks: int) -> None:
    """Two sequences that fill the pool between them, with drafts that are always wrong."""
    schedule = [
        Ask((50, 51), SamplingParams(temperature=0.0, max_tokens=44, ignore_eos=True)),
        Ask((60, 61), SamplingParams(temperature=0.0, max_tokens=44, ignore_eos=True)),
    ]
    counts: list[int] = []
    alone = [answer_alone(plain_engine(), ask) for ask in schedule]
    for length in (0, 20):
        engine, _ = speculating(
            knowing(alone, (2**40, 3)), length, num_blocks=num_blocks, batched=64, caching=False
        )
        preempted = count_preemptions(engine)
        assert answers_together(engine, schedule) == alone
        counts.append(len(preempted))
    assert counts[0] == counts[1]
    assert (counts[0] > 0) == (num_blocks < 6)


# --- beside a prompt -----------------------------------------------------------------------------


def read_beside(length: int) -> tuple[list[RequestOutput], list[int], int]:
    """A stream, and a prompt of 90 tokens that comes later, 16 rows a step: answers, rows of the
    steps in which the prompt is read, and how many tokens the stream said in them."""
    asks = [
        Ask((50, 51), SamplingParams(temperature=1.0, max_tokens=60, ignore_eos=True), 1),
        Ask(tuple(range(40, 130)), SamplingParams(temperature=0.0, max_tokens=5), 2),
    ]
    alone = [answer_alone(plain_engine(), ask) for ask in asks]
    engine, runner = speculating(
        knowing(alone, (None, None, 7)), length, num_blocks=60, batched=16, caching=False
    )
    bench = Harness(engine)
    bench.add("0", asks[0].prompt, asks[0].params, asks[0].seed)
    bench.step()
    bench.step()
    bench.add("1", asks[1].prompt, asks[1].params, asks[1].seed)
    first, said = len(runner.batches), len(bench.chunks["0"])
    while not bench.chunks.get("1"):
        bench.step()
    rows = [batch.num_rows for batch in runner.batches[first:]]
    said = len(bench.chunks["0"]) - said
    bench.run()
    answers = [replace(bench.answer(name), request_id="") for name in ("0", "1")]
    assert answers == [replace(answer, request_id="") for answer in alone]
    return answers, rows, said


def test_streams_keep_their_drafts_while_a_prompt_is_read() -> None:
    plain, plain_rows, plain_said = read_beside(0)
    drafted, rows, said = read_beside(8)
    assert drafted == plain
    assert max(rows) == max(plain_rows) == 16, "a step is no longer for it"
    assert len(rows) <= len(plain_rows) * 4 / 3 + 1, "a quarter of the chunks at most"
    assert said / len(rows) > 1.5 * plain_said / len(plain_rows)
