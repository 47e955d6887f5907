"""The grammars of answers with tools: what each allows, which is what its parser reads."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from edgeserve.answer_parts import ContentDelta, calls_in
from edgeserve.text.answer_reader import AnswerReader, AnswerShape
from edgeserve.text.tool_descriptions import Tool
from edgeserve.text.tool_formats import GENERIC, HARMONY_MARKS, HarmonyFormat, ToolFormat
from edgeserve.text.tool_grammar import tool_grammar
from edgeserve.text.tool_writing import written_calls
from tests.test_tool_calls import FAMILIES, form_of

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "units": {"enum": ["C", "F"]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (Tool("get_weather", "Weather.", SCHEMA), Tool("stop"))
FORMS = sorted(set(FAMILIES) - {"harmony"})
PARIS = {"city": "Paris", "days": 2, "units": "C"}


class _Bytes:
    """A vocabulary of bytes, and harmony's marks as control tokens."""

    eos_token_id = 0
    bos_token_id = None
    special_token_ids: Sequence[int] = ()
    tokens = [b"\xff<eos>", *(b"\xff" + mark.encode() for mark in HARMONY_MARKS)] + [
        bytes([value]) for value in range(255)
    ]

    def __call__(self, text: str | bytes) -> list[int]:
        data = text if isinstance(text, bytes) else text.encode()
        return [value + 1 + len(HARMONY_MARKS) for value in data]


VOCABULARY = _Bytes()
TOKENIZER = LLTokenizer(TokenizerWrapper(VOCABULARY), n_vocab=len(_Bytes.tokens), eos_token=[0])


def spell_marks(text: str) -> list[str | int]:
    """Harmony's marks as the control tokens that they are."""
    pieces: list[str | int] = []
    while text:
        found = [(at, mark) for mark in HARMONY_MARKS if (at := text.find(mark)) >= 0]
        at, mark = min(found, default=(len(text), ""))
        pieces += [text[:at], *([1 + HARMONY_MARKS.index(mark)] if mark else [])]
        text = text[at + len(mark) :]
    return pieces


def allows(form: ToolFormat, text: str, tools: Sequence[Tool] = TOOLS, **how: bool) -> bool:
    """Whether the grammar takes the text as a whole answer."""
    options = {"required": False, "parallel": True, **how}
    is_harmony = isinstance(form, HarmonyFormat)
    spelled = {"spell": spell_marks} if is_harmony else {}
    grammar = tool_grammar(form, tools, **options, **spelled)
    matcher = LLMatcher(TOKENIZER, LLMatcher.grammar_from_lark(grammar.lark), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    pieces = spell_marks(text) if is_harmony else [text]
    ids = [i for p in pieces for i in ([p] if isinstance(p, int) else VOCABULARY(p))]
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@pytest.mark.parametrize("family", FORMS)
def test_a_familys_own_calls_are_allowed_and_read_back(family: str) -> None:
    form = form_of(family)
    text = written_calls(form, [("get_weather", PARIS), ("stop", {})])
    for required in (True, False):
        assert allows(form, text, required=required)
    reader = AnswerReader(AnswerShape(form=form, tools=TOOLS))
    parts = reader.feed(text) + reader.finish()
    assert [(c.name, json.loads(c.arguments)) for c in calls_in(parts)] == [
        ("get_weather", PARIS),
        ("stop", {}),
    ]
    assert not any(isinstance(part, ContentDelta) for part in parts)


@pytest.mark.parametrize("family", FORMS)
def test_text_is_free_until_a_call_opens_and_then_held_to_the_tools(family: str) -> None:
    form = form_of(family)
    unknown = written_calls(form, [("launch", {})])
    wrong = written_calls(form, [("get_weather", {"days": "soon"})])
    assert allows(form, "Hello, <world> [x] 😀\n")
    assert allows(form, "")
    assert not allows(form, unknown)
    assert not allows(form, wrong)
    assert not allows(form, "Hello", required=True)
    assert not allows(form, "", required=True)
    assert not allows(form, unknown, required=True)


@pytest.mark.parametrize("family", FORMS)
def test_without_parallel_calls_there_is_one(family: str) -> None:
    form = form_of(family)
    one = written_calls(form, [("stop", {})])
    two = written_calls(form, [("stop", {}), ("stop", {})])
    for required in (True, False):
        assert allows(form, one, required=required, parallel=False)
        assert not allows(form, two, required=required, parallel=False)


def test_a_call_may_follow_text_and_text_a_call() -> None:
    call = written_calls(GENERIC, [("stop", {})])
    assert allows(GENERIC, f"I stop.\n{call}\nDone.")
    assert not allows(GENERIC, f"I stop.\n{call}", required=True)


def test_harmony_thinks_then_answers_or_calls() -> None:
    thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    call = (
        "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city": "Paris"}'
    )
    final = "<|channel|>final<|message|>Hello."
    form = HarmonyFormat()
    assert all(allows(form, text) for text in (call, final, thought + call, thought + final))
    assert allows(form, thought + call, required=True)
    assert not allows(form, thought + final, required=True)
    assert not allows(form, "Hello.")


@pytest.mark.parametrize(
    "description",
    ['says "hi"', "two\nlines", "root ::= x", "😀 %json { start: TEXT", "</tool_call> {{ x }}"],
)
def test_descriptions_change_no_grammar(description: str) -> None:
    plain = tool_grammar(GENERIC, [Tool("stop", "plain")], required=True, parallel=True)
    odd = tool_grammar(GENERIC, [Tool("stop", description)], required=True, parallel=True)
    assert odd == plain


def test_names_and_descriptions_inside_schemas_do_no_harm() -> None:
    schema = {
        "type": "object",
        "properties": {'a"b\n': {"type": "string", "description": 'root ::= "x"\n%json {'}},
        "required": ['a"b\n'],
    }
    tool = Tool('odd "name"', "", schema)
    text = written_calls(GENERIC, [('odd "name"', {'a"b\n': "x"})])
    assert allows(GENERIC, text, [tool], required=True)


def test_what_a_form_cannot_hold_arguments_to_is_named() -> None:
    schema = {
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": "^[a-z]+$", "description": "x"}},
    }
    tool = Tool("run", "", schema)
    found = tool_grammar(form_of("qwen3-coder"), [tool], required=True, parallel=True)
    assert found.relaxed == ("tools.run.parameters.code.pattern",)
    assert tool_grammar(GENERIC, [tool], required=True, parallel=True).relaxed == ()
