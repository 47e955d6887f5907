"""Tool calls in generated text: every family's form, cut anywhere, and what only looks like one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.answer_parts import (
    AnswerPart,
    ContentDelta,
    ReasoningDelta,
    ToolArguments,
    ToolCallBegun,
    ToolCallEnded,
    calls_in,
)
from edgeserve.errors import InvalidRequestError
from edgeserve.text.answer_reader import AnswerReader, AnswerShape
from edgeserve.text.tool_descriptions import Tool, tools_of
from edgeserve.text.tool_formats import GENERIC, ToolFormat, format_of_template

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "units": {"enum": ["C", "F"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
TOOLS = (Tool("get_weather", "Weather.", SCHEMA), Tool("stop"))

# What shows each family's form in its template; the reference's templates are tested whole below.
FAMILIES = {
    "hermes": "<tool_call></tool_call>",
    "qwen3-coder": "<tool_call> <function=x> <parameter=y>",
    "seed": "<seed:tool_call> <function=",
    "glm": "<tool_call> <arg_key>{{ k }}</arg_key>\n<arg_value>",
    "minimax-m2": "<minimax:tool_call> <invoke name=",
    "minimax-m1": "<tool_calls></tool_calls>",
    "apriel": "<tool_calls>[{}]</tool_calls>",
    "nemotron": "<TOOLCALL>",
    "deepseek-r1": "<｜tool▁call▁begin｜> ```json",
    "deepseek-v3": "<｜tool▁call▁begin｜>",
    "deepseek-v3.2": "DSML function_calls",
    "llama": "<|python_tag|>",
    "mistral-list": "[TOOL_CALLS]",
    "mistral": "[TOOL_CALLS] [ARGS]",
    "functionary": "<function=x>{}</function>",
    "kimi": "<|tool_call_begin|> <|tool_call_argument_begin|>",
    "cohere": "<|START_ACTION|>",
    "command-r": "Action:\n```json",
    "apertus": "<|tools_prefix|>",
    "granite": "<|tool_call|>",
    "phi4": "<|tool|>{{ tools }}<|/tool|>",
    "gigachat": "<|function_call|>",
    "gemma4": "<|tool_call>call:",
    "functiongemma": "<start_function_call>",
    "lfm2": "<|tool_call_start|>",
    "minicpm5": '<function name="x"><param name="y">',
    "harmony": "<|channel|> <|call|>",
}
PARIS = {"city": 'Par"is\n', "days": 2}
_JSON = json.dumps(PARIS)
_NAMED = '{"name": "get_weather", "arguments": ' + _JSON + "}"
_STOP = '{"name": "stop", "arguments": {}}'
_DSML = "｜DSML｜"

# (what a model of the family writes for get_weather(PARIS), then stop())
OUTPUTS = {
    "hermes": f"<tool_call>\n{_NAMED}\n</tool_call>\n<tool_call>\n{_STOP}\n</tool_call>",
    "qwen3-coder": (
        '<tool_call>\n<function=get_weather>\n<parameter=city>\nPar"is\n\n</parameter>\n'
        "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=stop>\n</function>\n</tool_call>"
    ),
    "seed": (
        '<seed:tool_call>\n<function=get_weather>\n<parameter=city>Par"is\n</parameter>\n'
        "<parameter=days>2</parameter>\n</function>\n</seed:tool_call>\n"
        "<seed:tool_call>\n<function=stop>\n</function>\n</seed:tool_call>"
    ),
    "glm": (
        '<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Par"is\n</arg_value>\n'
        "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n"
        "<tool_call>stop\n</tool_call>"
    ),
    "minimax-m2": (
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Par"is\n'
        '</parameter>\n<parameter name="days">2</parameter>\n</invoke>\n'
        '<invoke name="stop">\n</invoke>\n</minimax:tool_call>'
    ),
    "minimax-m1": f"<tool_calls>\n{_NAMED}\n{_STOP}\n</tool_calls>",
    "apriel": f"<tool_calls>[{_NAMED}, {_STOP}]</tool_calls>",
    "nemotron": f"<TOOLCALL>[{_NAMED}, {_STOP}]</TOOLCALL>",
    "deepseek-r1": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        f"{_JSON}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>stop\n"
        "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "deepseek-v3": (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{_JSON}"
        "<｜tool▁call▁end｜><｜tool▁call▁begin｜>stop<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>"
    ),
    "deepseek-v3.2": (
        f'<{_DSML}function_calls>\n<{_DSML}invoke name="get_weather">\n'
        f'<{_DSML}parameter name="city" string="true">Par"is\n</{_DSML}parameter>\n'
        f'<{_DSML}parameter name="days" string="false">2</{_DSML}parameter>\n</{_DSML}invoke>\n'
        f'<{_DSML}invoke name="stop">\n</{_DSML}invoke>\n</{_DSML}function_calls>'
    ),
    "llama": (
        '{"name": "get_weather", "parameters": ' + _JSON + '}; {"name": "stop", "parameters": {}}'
    ),
    "mistral-list": f"[TOOL_CALLS][{_NAMED}, {_STOP}]",
    "mistral": f"[TOOL_CALLS]get_weather[CALL_ID]abcdefgh1[ARGS]{_JSON}[TOOL_CALLS]stop[ARGS]{{}}",
    "functionary": (f"<function=get_weather>{_JSON}</function><function=stop>{{}}</function>"),
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        f"<|tool_call_argument_begin|>{_JSON}<|tool_call_end|><|tool_call_begin|>functions.stop:1"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "cohere": (
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": '
        f'{_JSON}}},\n    {{"tool_call_id": "1", "tool_name": "stop", "parameters": {{}}}}\n]'
        "<|END_ACTION|>"
    ),
    "command-r": (
        'Action:\n```json\n[\n    {\n        "tool_name": "get_weather",\n        "parameters": '
        f'{_JSON}\n    }},\n    {{\n        "tool_name": "stop",\n        "parameters": {{}}\n'
        "    }\n]\n```"
    ),
    "apertus": '<|tools_prefix|>[{"get_weather": ' + _JSON + '}, {"stop": {}}]<|tools_suffix|>',
    "granite": f"<|tool_call|>[{_NAMED}, {_STOP}]",
    "phi4": f"<|tool_call|>[{_NAMED}, {_STOP}]<|/tool_call|>",
    "gigachat": f"<|function_call|>{_NAMED}<|function_call|>{_STOP}",
    "gemma4": (
        '<|tool_call>call:get_weather{city:<|"|>Par"is\n<|"|>,days:2}<tool_call|>'
        "<|tool_call>call:stop{}<tool_call|>"
    ),
    "functiongemma": (
        '<start_function_call>call:get_weather{city:<escape>Par"is\n<escape>,days:2}'
        "<end_function_call><start_function_call>call:stop{}<end_function_call>"
    ),
    "lfm2": (
        "<|tool_call_start|>[get_weather(city='Par\"is\\n', days=2), stop()]<|tool_call_end|>"
    ),
    "minicpm5": (
        '<function name="get_weather"><param name="city">Par"is\n</param>'
        '<param name="days">2</param></function>\n<function name="stop"></function>'
    ),
    "harmony": (
        f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{_JSON}"
        "<|call|><|start|>assistant to=functions.stop<|channel|>commentary json<|message|>{}"
    ),
}


def form_of(family: str) -> ToolFormat:
    form = format_of_template(FAMILIES[family])
    assert form.name == family
    return form


def parts_of(
    pieces: Sequence[str],
    form: ToolFormat,
    tools: Sequence[Tool] = TOOLS,
    *,
    calls_only: bool = False,
):
    """What a reader says of these pieces, neighbours of one kind joined."""
    reader = AnswerReader(AnswerShape(form=form, tools=tuple(tools), calls_only=calls_only))
    parts = [part for piece in pieces for part in reader.feed(piece)]
    return joined(parts + reader.finish())


def joined(parts: Sequence[AnswerPart]) -> list[AnswerPart]:
    out: list[AnswerPart] = []
    for part in parts:
        last = out[-1] if out else None
        match part, last:
            case ContentDelta(), ContentDelta():
                out[-1] = ContentDelta(last.text + part.text)
            case ReasoningDelta(), ReasoningDelta():
                out[-1] = ReasoningDelta(last.text + part.text)
            case ToolArguments(), ToolArguments() if part.index == last.index:
                out[-1] = ToolArguments(part.index, last.text + part.text)
            case _:
                out.append(part)
    return out


def text_in(parts: Sequence[AnswerPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, ContentDelta))


def characters(text: str) -> list[str]:
    return list(text)


# --- every family --------------------------------------------------------------------------------


def test_there_is_an_output_of_every_family() -> None:
    assert FAMILIES.keys() == OUTPUTS.keys()


@pytest.mark.parametrize("family", OUTPUTS)
def test_two_calls_are_read_whole_and_piece_by_piece(family: str) -> None:
    form, output = form_of(family), OUTPUTS[family]
    parts = parts_of([output], form)
    assert [(call.name, call.complete) for call in calls_in(parts)] == [
        ("get_weather", True),
        ("stop", True),
    ]
    assert [json.loads(call.arguments) for call in calls_in(parts)] == [PARIS, {}]
    assert text_in(parts) == ""
    assert parts_of(characters(output), form) == parts


@pytest.mark.parametrize("family", OUTPUTS)
def test_a_call_behind_text_leaves_the_text_alone(family: str) -> None:
    if family in {"llama", "harmony"}:  # calls begin the answer, or have a channel of their own
        pytest.skip("the form knows no text before a call")
    said = "I look < it up: {x} [y]."
    parts = parts_of([f"{said}\n\n{OUTPUTS[family]}"], form_of(family))
    assert text_in(parts) == said
    assert len(calls_in(parts)) == 2


@pytest.mark.parametrize("family", OUTPUTS)
def test_a_cut_call_is_told_as_far_as_it_got(family: str) -> None:
    form, output = form_of(family), OUTPUTS[family]
    whole = calls_in(parts_of([output], form))[0].arguments
    for end in range(len(output)):
        parts = parts_of([output[:end]], form)
        calls = calls_in(parts)
        if not calls:
            continue
        assert calls[0].name == "get_weather"
        assert whole.startswith(calls[0].arguments)
        assert text_in(parts) in output  # a tag that was cut, at most
        if not calls[0].complete:
            assert len(calls) == 1


@pytest.mark.parametrize("family", OUTPUTS)
def test_a_cut_answer_that_must_call_has_no_text(family: str) -> None:
    form, output = form_of(family), OUTPUTS[family]
    for end in range(len(output) + 1):
        parts = parts_of([output[:end]], form, calls_only=True)
        assert text_in(parts) == ""
        assert calls_in(parts) == calls_in(parts_of([output[:end]], form))
        assert parts_of(characters(output[:end]), form, calls_only=True) == parts


def test_the_tag_of_a_further_call_that_was_cut_is_no_text() -> None:
    for cut in ("<", "<tool_", "\n<tool_call"):
        for text in (f"<tool_call>{_STOP}</tool_call>{cut}", f"a <tool_call>{_STOP}{cut}"):
            for pieces in ([text], characters(text)):
                parts = parts_of(pieces, form_of("hermes"))
                assert text_in(parts) == ("a" if text.startswith("a") else "")
    said = f"<tool_call>{_STOP}</tool_call>1 <"
    assert text_in(parts_of([said], form_of("hermes"))) == "1 <"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_pieces_do_not_matter(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(sorted(OUTPUTS)))
    form, output = form_of(family), OUTPUTS[family]
    fragments = st.lists(
        st.one_of(
            st.text(max_size=4),
            st.integers(0, len(output)).flatmap(
                lambda start: st.integers(start, len(output)).map(lambda end: output[start:end])
            ),
        ),
        max_size=5,
    )
    text = "".join(data.draw(fragments))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    once = parts_of([text], form)
    assert parts_of(pieces, form) == once
    assert parts_of(characters(text), form) == once


# --- what is no call -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call> is how a call begins.",
        "<tool_call>\nget_weather\n</tool_call>",
        '<tool_call>\n{"city": "Paris"}\n</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>["name"]',
        "a <tool_cal b",
        '{"name": "get_weather", "arguments": {}}',
        "</tool_call>",
        "  \n ",
    ],
)
def test_what_only_looks_like_a_call_is_text(text: str) -> None:
    for pieces in ([text], characters(text)):
        assert parts_of(pieces, form_of("hermes")) == [ContentDelta(text)]


def test_a_bare_object_is_a_call_only_at_the_beginning_and_of_a_known_tool() -> None:
    form = form_of("llama")
    unknown = '{"name": "Bob", "parameters": {"age": 5}}'
    later = 'Here: {"name": "stop", "parameters": {}}'
    assert parts_of([unknown], form) == [ContentDelta(unknown)]
    assert parts_of([later], form) == [ContentDelta(later)]
    tagged = '<|python_tag|>{"name": "stop", "parameters": {"a": 1}}'
    assert calls_in(parts_of([tagged], form))[0].arguments == '{"a": 1}'


def test_text_between_and_behind_calls_is_kept() -> None:
    call = '<tool_call>{"name": "stop", "arguments": {}}</tool_call>'
    parts = parts_of([f"First.\n{call}\n\nThen. {call} Last.\n"], form_of("hermes"))
    assert [type(part).__name__ for part in parts] == [
        "ContentDelta", "ToolCallBegun", "ToolArguments", "ToolCallEnded",
        "ContentDelta", "ToolCallBegun", "ToolArguments", "ToolCallEnded", "ContentDelta",
    ]  # fmt: skip
    assert text_in(parts) == "First.Then.Last.\n"


def test_indices_count_calls_and_arguments_come_piece_by_piece() -> None:
    text = '<tool_call>{"name": "stop", "arguments": {"a": "x y"}}</tool_call>'
    reader = AnswerReader(AnswerShape(form=form_of("hermes"), tools=TOOLS))
    parts = [part for piece in characters(text + text) for part in reader.feed(piece)]
    assert [part.index for part in parts if isinstance(part, ToolCallBegun)] == [0, 1]
    assert sum(isinstance(part, ToolArguments) for part in parts) > 10
    assert [part.index for part in parts if isinstance(part, ToolCallEnded)] == [0, 1]


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"arguments": {"a": 1}, "name": "stop"}', '{"a": 1}'),
        ('{"id": "x", "name": "stop", "parameters": {"a": 1}, "type": "function"}', '{"a": 1}'),
        ('{"name": "stop"}', "{}"),
        ('{"name": "stop", "arguments": null}', "{}"),
        ('{"name": "stop", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"name": "stop", "arguments": {"a": "}{\\"]"}}', '{"a": "}{\\"]"}'),
        ('{"name":"stop","arguments":{"a":[1,{"b":null}]}}', '{"a":[1,{"b":null}]}'),
        ('{"name": "st\\u006fp", "arguments": {"e": "\\ud83d\\ude00"}}', '{"e": "\\ud83d\\ude00"}'),
    ],
)
def test_objects_are_read_in_any_order_and_shape(written: str, arguments: str) -> None:
    text = f"<tool_call>{written}</tool_call>"
    for pieces in ([text], characters(text)):
        parts = parts_of(pieces, form_of("hermes"))
        assert [(call.name, call.arguments) for call in calls_in(parts)] == [("stop", arguments)]
        assert text_in(parts) == ""


def test_half_characters_never_come_out() -> None:
    text = '<tool_call>{"name": "a\\ud800", "arguments": "\\udc00"}</tool_call>'
    call = calls_in(parts_of([text], form_of("hermes")))[0]
    assert (call.name, call.arguments) == ("a\ufffd", "\ufffd")


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("city", "2", "2"),  # the schema says a text
        ("days", "2", 2),
        ("days", "soon", "soon"),
        ("units", "C", "C"),
        ("tags", '["a", "b"]', ["a", "b"]),
        ("other", "True", True),
        ("other", "NaN", "NaN"),
        ("other", '{"a": 1}', {"a": 1}),
        ("city", "a\n<b>\n", "a\n<b>\n"),
    ],
)
def test_element_values_follow_the_schema(key: str, value: str, found: object) -> None:
    text = f"<tool_call><function=get_weather><parameter={key}>\n{value}\n</parameter></function>"
    call = calls_in(parts_of([text], form_of("qwen3-coder")))[0]
    assert json.loads(call.arguments) == {key: found}


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("a='it\\'s', b=\"x\"", {"a": "it's", "b": "x"}),
        ("a=[1, 'x', None], b={'k': True}", {"a": [1, "x", None], "b": {"k": True}}),
        ("a='\\u00e9\\n\\x41', b=-1.5", {"a": "é\nA", "b": -1.5}),
        ("a='\\ud800'", {"a": "\ufffd"}),
        ("a=(1, 2), b=word", {"a": [1, 2], "b": "word"}),
    ],
)
def test_python_literals_become_json(written: str, found: object) -> None:
    text = f"<|tool_call_start|>[stop({written})]<|tool_call_end|>"
    for pieces in ([text], characters(text)):
        call = calls_in(parts_of(pieces, form_of("lfm2")))[0]
        assert call.complete
        assert json.loads(call.arguments) == found


def test_what_is_left_of_a_tag_behind_a_call_that_was_cut_is_no_text() -> None:
    text = "<tool_call>\n<function=stop>\n<parameter=a>\nx\n</parameter>\n</func"
    parts = parts_of([text], form_of("qwen3-coder"))
    assert [(call.arguments, call.complete) for call in calls_in(parts)] == [('{"a": "x"', False)]
    assert text_in(parts) == ""


def test_gemma_literals_nest() -> None:
    text = '<|tool_call>call:stop{a:{b:[<|"|>x, y<|"|>,true],c:null}}<tool_call|>'
    call = calls_in(parts_of([text], form_of("gemma4")))[0]
    assert json.loads(call.arguments) == {"a": {"b": ["x, y", True], "c": None}}


def test_deep_nesting_and_long_arguments_are_read_in_linear_time() -> None:
    deep = "[" * 50_000
    text = '<tool_call>{"name": "stop", "arguments": {"a": ' + deep
    call = calls_in(parts_of([text[i : i + 7] for i in range(0, len(text), 7)], GENERIC))[0]
    assert call.arguments == '{"a": ' + deep
    parts_of(["<|tool_call_start|>[stop(a=" + deep], form_of("lfm2"))
    parts_of(["<tool_call>{" * 5_000], GENERIC)


def test_harmony_tells_reasoning_text_and_calls_apart() -> None:
    text = (
        "<|channel|>analysis<|message|>Hm, <b>.<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>Looking.<|end|><|start|>assistant<|channel|>commentary to=functions.stop "
        '<|constrain|>json<|message|>{"a": 1}'
    )
    for pieces in ([text], characters(text)):
        parts = parts_of(pieces, form_of("harmony"))
        assert parts[:2] == [ReasoningDelta("Hm, <b>."), ContentDelta("Looking.")]
        assert parts[2:4] == [ToolCallBegun(0, "stop"), ToolArguments(0, '{"a": 1}')]
    assert parts_of(["Hello."], form_of("harmony")) == [ContentDelta("Hello.")]


# --- descriptions --------------------------------------------------------------------------------


def test_descriptions_are_read_forgivingly() -> None:
    described = [
        {"type": "function", "function": {"name": "a", "description": None, "parameters": None}},
        {"type": "function", "function": {"name": "b", "parameters": {}, "strict": True}},
        {"name": "c", "parameters": {"properties": {"x": {"type": "string"}}}},
    ]
    a, b, c = tools_of(described)
    assert (a.description, a.parameters) == ("", {"type": "object", "properties": {}})
    assert b.strict
    assert c.parameters == {"type": "object", "properties": {"x": {"type": "string"}}}
    assert tools_of(None) == tools_of([]) == ()


@pytest.mark.parametrize(
    "described",
    ["x", [5], [{"type": "web_search"}], [{"function": {}}], [{"name": "a"}, {"name": "a"}],
     [{"name": "a", "parameters": "x"}]],
)  # fmt: skip
def test_what_is_no_tool_is_refused_by_name(described: object) -> None:
    with pytest.raises(InvalidRequestError, match="tools"):
        tools_of(described)


# --- which template teaches which form -----------------------------------------------------------

TEMPLATES = {
    "Apertus-8B-Instruct": "apertus",
    "Apriel-1.6-15b-Thinker-fixed": "apriel",
    "Bielik-11B-v3.0-Instruct": "hermes",
    "ByteDance-Seed-OSS": "seed",
    "Cohere2MoE": "cohere",
    "CohereForAI-c4ai-command-r-plus-tool_use": "command-r",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "cohere",
    "GLM-4.6": "glm",
    "GLM-4.7-Flash": "glm",
    "GigaChat3-10B-A1.8B": "generic",
    "GigaChat3.1-10B-A1.8B": "gigachat",
    "HuggingFaceTB-SmolLM3-3B": "generic",
    "Kimi-K2-Instruct": "kimi",
    "Kimi-K2-Thinking": "kimi",
    "Kimi-K3": "generic",
    "LFM2-8B-A1B": "lfm2",
    "LFM2.5-8B-A1B": "lfm2",
    "LFM2.5-Instruct": "lfm2",
    "MiMo-VL": "hermes",
    "MiniMax-M1": "minimax-m1",
    "MiniMax-M2": "minimax-m2",
    "MiniMax-M3": "generic",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen3-coder",
    "NVIDIA-Nemotron-Nano-v2": "nemotron",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes",
    "Qwen-QwQ-32B": "hermes",
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes",
    "Qwen3-Coder": "qwen3-coder",
    "Qwen3.5-4B": "qwen3-coder",
    "Reka-Edge": "hermes",
    "Spark2.5": "glm",
    "StepFun3.5-Flash": "qwen3-coder",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek-r1",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek-r1",
    "deepseek-ai-DeepSeek-V3.1": "deepseek-v3",
    "deepseek-ai-DeepSeek-V3.2": "deepseek-v3.2",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "deepseek-v4",
    "deepseek-ai-DeepSeek-V4": "deepseek-v4",
    "fireworks-ai-llama-3-firefunction-v2": "generic",
    "google-gemma-2-2b-it": "generic",
    "google-gemma-4-31B-it-interleaved": "gemma4",
    "google-gemma-4-31B-it": "gemma4",
    "ibm-granite-granite-3.3-2B-Instruct": "granite",
    "ibm-granite-granite-4.0": "hermes",
    "ibm-granite-granite-4.1": "hermes",
    "inclusionai-ling-3.0-flash": "glm",
    "llama-cpp-deepseek-r1": "deepseek-r1",
    "llama-cpp-rwkv-world": "generic",
    "meetkai-functionary-medium-v3.1": "functionary",
    "meetkai-functionary-medium-v3.2": "generic",
    "meta-llama-Llama-3.1-8B-Instruct": "llama",
    "meta-llama-Llama-3.2-3B-Instruct": "llama",
    "meta-llama-Llama-3.3-70B-Instruct": "llama",
    "microsoft-Phi-3.5-mini-instruct": "generic",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral-list",
    "moonshotai-Kimi-K2": "kimi",
    "muse-glimmer": "generic",
    "openai-gpt-oss-120b": "harmony",
    "openbmb-MiniCPM5-1B": "minicpm5",
    "poolside-Laguna-S-2.1": "glm",
    "poolside-Laguna-XS-2.1": "glm",
    "poolside-Laguna-XS.2": "glm",
    "tencent-Hy3": "generic",
    "unsloth-Apriel-1.5": "apriel",
    "unsloth-mistral-Devstral-Small-2507": "mistral",
    "upstage-Solar-Open-100B": "generic",
}


def test_every_template_of_the_reference_maps_to_its_form(reference_source: Path) -> None:
    folder = reference_source / "models" / "templates"
    found = {
        path.stem: format_of_template(path.read_text("utf-8")).name
        for path in folder.glob("*.jinja")
    }
    assert found == TEMPLATES
