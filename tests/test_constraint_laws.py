"""Constrained answers obey the law, and their constraint, at any temperature.

Tokens, logprobs and finish reasons are those of the request alone with nothing drafted: among
others, in chunks, preempted, forked, with forced text and with drafts that lie.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeserve.engine.live_request import Request
from edgeserve.engine.speculation.forced import Forced
from edgeserve.engine.speculation.speculator import FixedLength, Speculator
from edgeserve.errors import ConstraintLimitError
from edgeserve.text import matcher
from edgeserve.text.constraint import ConstraintCompiler
from edgeserve.types import Constraint, RequestOutput, SamplingParams

from .engine_harness import VOCAB_SIZE, Harness, make_engine, poison_reused_blocks, uneven_clock
from .fake_runner import FakeRunner, hashed_logits
from .test_engine_laws import TOKENIZER, Ask, answer_alone, answers_together, beginnings
from .test_speculation import knowing

CONTEXT = 128

PERSON = {
    "type": "object",
    "properties": {
        "the name": {"type": "string", "maxLength": 5},
        "kind": {"enum": ["the first one", "the second one", None]},
        "is it so": {"type": "boolean"},
    },
    "required": ["the name", "kind", "is it so"],
    "additionalProperties": False,
}
CONSTRAINTS = [
    Constraint.json_schema(PERSON),
    Constraint.json_schema({"type": "array", "items": {"type": "integer"}, "maxItems": 3}),
    Constraint.json_schema({"const": {"the": ["only", "answer"]}}),
    Constraint.regex("(the|in|on)+ (forced text that is in all of them|another one)[0-9]?"),
    Constraint.lark('start: "<call>" args "</call>"\nargs: %json {"type": "boolean"}'),
    Constraint.gbnf('root ::= "the " ("one" | "other") root?'),
]

constrained = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0, 5.0]),
    top_p=st.sampled_from([None, 0.7, 1.0]),
    repetition_penalty=st.sampled_from([None, 1.3]),
    n=st.sampled_from([1, 1, 2]),
    max_tokens=st.sampled_from([3, 25, 60]),
    stop=st.sampled_from([None, None, "on"]),
    logprobs=st.sampled_from([None, 2]),
    prompt_logprobs=st.sampled_from([None, None, 1]),
    mirostat=st.sampled_from([None, None, 2]),
    constraint=st.sampled_from([None, *CONSTRAINTS]),
)
asks = st.builds(
    Ask,
    prompt=beginnings,
    params=constrained,
    seed=st.integers(0, 3),
    pause=st.integers(0, 3),
)


def engine_of(num_blocks: int = 96, batched: int = 512, speculator: Speculator | None = None):
    runner = FakeRunner(
        hashed_logits(VOCAB_SIZE, spread=3.0), num_blocks=num_blocks, windows=(24, 5)
    )
    engine = make_engine(
        runner,
        max_model_len=CONTEXT,
        max_num_batched_tokens=batched,
        tokenizer=TOKENIZER,
        clock=uneven_clock(),
        prefix_caching=batched > 2,
        speculator=speculator,
    )
    poison_reused_blocks(engine)
    return engine


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(asks, min_size=1, max_size=4, unique_by=lambda ask: ask.prompt),
    st.sampled_from([2, 7, 512]),
    st.sampled_from([9, 12, 96]),
    st.sampled_from([(None,), (None, None, None, 40), (7,)]),
    st.booleans(),
)
def test_constrained_answers_are_those_of_the_request_alone(
    schedule: list[Ask],
    batched: int,
    num_blocks: int,
    lies: tuple[int | None, ...],
    only_forced: bool,
) -> None:
    alone = [answer_alone(engine_of(), ask) for ask in schedule]
    proposers = [Forced()] if only_forced else [Forced(), knowing(alone, lies)]
    speculator = Speculator(proposers, FixedLength(6), VOCAB_SIZE)
    engine = engine_of(num_blocks, batched, speculator)
    assert answers_together(engine, schedule) == alone
    assert speculator.failures == []


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_forced_text_comes_in_chunks_and_what_is_forced_is_accepted(
    constraint: Constraint,
) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=100, constraint=constraint)
    alone = Harness(engine_of())
    alone.add("a", [50, 51], params)
    alone.run()
    forced = Harness(engine_of(speculator=Speculator([Forced()], FixedLength(24), VOCAB_SIZE)))
    forced.add("a", [50, 51], params)
    forced.run()
    assert forced.answer("a") == alone.answer("a")
    usage = forced.outputs["a"].usage
    assert usage.num_accepted_tokens == usage.num_draft_tokens
    if constraint != CONSTRAINTS[1]:  # numbers of no certain length
        assert forced.num_steps < alone.num_steps


def finished(constraint: Constraint, temperature: float, seed: int) -> RequestOutput:
    params = SamplingParams(temperature=temperature, constraint=constraint, max_tokens=120)
    return answer_alone(engine_of(), Ask((40, 41), params, seed))


@pytest.mark.parametrize("temperature", [0.0, 1.0, 5.0])
def test_answers_match_what_they_are_held_to(temperature: float) -> None:
    reasons: Counter[str | None] = Counter()
    for seed in range(4):
        for constraint in CONSTRAINTS:
            output = finished(constraint, temperature, seed).outputs[0]
            reasons[output.finish_reason] += 1
            if output.finish_reason != "stop":
                continue
            assert output.token_ids[-1] in TOKENIZER.stop_ids
            if constraint.kind == "json_schema":
                jsonschema.validate(json.loads(output.text), json.loads(constraint.text))
            elif constraint.kind == "regex":
                assert re.fullmatch(constraint.text, output.text)
            elif constraint.kind == "lark":
                assert output.text in ("<call>true</call>", "<call>false</call>")
            else:
                assert re.fullmatch("(the (one|other))+", output.text)
    assert reasons["stop"] > reasons["length"]


def test_an_answer_that_is_cut_says_length() -> None:
    output = finished(CONSTRAINTS[2], 0.0, 0).outputs[0]
    assert output.finish_reason == "stop"
    params = SamplingParams(temperature=0.0, constraint=CONSTRAINTS[2], max_tokens=5)
    cut = answer_alone(engine_of(), Ask((40, 41), params)).outputs[0]
    assert cut.finish_reason == "length"
    assert cut.token_ids == output.token_ids[:5]


def test_choices_have_matchers_of_their_own() -> None:
    params = SamplingParams(
        temperature=5.0, n=4, constraint=Constraint.regex("[a-z]{8}[0-9]"), max_tokens=30
    )
    outputs = answer_alone(engine_of(), Ask((40, 41), params)).outputs
    assert all(re.fullmatch("[a-z]{8}[0-9]", output.text) for output in outputs)
    assert len({output.text for output in outputs}) > 1


def test_a_constraint_that_was_not_compiled_is_refused() -> None:
    from edgeserve.engine.live_request import Request
    from edgeserve.errors import InvalidRequestError

    params = replace(SamplingParams(), constraint=CONSTRAINTS[0])
    with pytest.raises(InvalidRequestError, match="compiled"):
        engine_of().add_request(Request("a", None, (5,), params, 0))


def test_a_constraint_past_the_limits_fails_its_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An object is begun with few items of the parser, and goes on with four for each member."""
    monkeypatch.setattr(matcher, "_MAX_ITEMS", 100)
    members = {f"member {number}": {"type": "boolean"} for number in range(100)}
    asked = Constraint.json_schema({"type": "object", "properties": members})
    compiled = ConstraintCompiler(TOKENIZER).compile(asked)
    params = SamplingParams(temperature=1.0, max_tokens=40, constraint=asked)
    bench = Harness(make_engine(FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=64)))
    bench.engine.add_request(Request("many", None, (3, 4), params, 1, constraint=compiled))
    bench.add("other", [5, 6], SamplingParams(temperature=0.0, max_tokens=8))
    bench.run()
    assert isinstance(bench.errors.pop("many"), ConstraintLimitError)
    assert bench.errors == {}
    assert len(bench.outputs["other"].outputs[0].token_ids) == 8
