"""Tools over a model of random weights: whatever it would say, what comes is what was asked for."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from edgeserve import LLM, AsyncLLM
from edgeserve.errors import ConstraintError
from edgeserve.requests import ChatFields
from edgeserve.text.end_tag import EndTag
from edgeserve.text.thinking import Thinking
from edgeserve.text.thinking_matcher import Masks, ThinkingGate, ThinkingMatcher
from edgeserve.text.tool_descriptions import Tool
from edgeserve.types import RequestOutput, SamplingParams, ToolCallBegun, calls_in

from .tiny_models import write_tiny_model

SCHEMA = {
    "type": "object",
    "properties": {
        "unit": {"enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 9},
        "is it": {"type": "boolean"},
    },
    "required": ["unit", "is it"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "stop", "parameters": NOTHING}},
]
SCHEMAS = {"weather": SCHEMA, "stop": NOTHING}
_BODY = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)
TEMPLATES = {
    "generic": _BODY.replace("{{ tools | tojson }}", ""),
    "llama": _BODY + "{# <|python_tag|> #}",
    "mistral": _BODY + "{# [TOOL_CALLS] [ARGS] #}",
    "qwen3-coder": _BODY + "{# <tool_call> <function= <parameter= #}",
    "gemma4": _BODY + "{# <|tool_call>call: #}",
    "lfm2": _BODY + "{# <|tool_call_start|> #}",
}


@pytest.fixture(scope="module", params=sorted(TEMPLATES))
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path, "llama", context=2048, chat_template=TEMPLATES[request.param])
    with LLM(str(path), num_threads=1, disk_cache=0) as opened:
        yield opened


def ask(llm: LLM, seed: int, **fields: object) -> RequestOutput:
    return llm.chat("the inn", temperature=5.0, seed=seed, max_tokens=120, tools=TOOLS, **fields)


def check_calls(output: RequestOutput) -> None:
    for call in output.tool_calls:
        assert call.name in SCHEMAS
        if call.complete:
            jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
    if output.outputs[0].finish_reason == "stop":
        assert all(call.complete for call in output.tool_calls)


def test_a_call_that_must_come_comes_and_fits_its_schema(llm: LLM) -> None:
    for seed in range(4):
        output = ask(llm, seed, tool_choice="required")
        assert output.tool_calls
        assert output.text == ""
        check_calls(output)


def test_wherever_a_call_that_must_come_is_cut_no_text_is_left_and_none_was_streamed(
    llm: LLM,
) -> None:
    for max_tokens in range(1, 40, 3):
        asked = {"temperature": 5.0, "seed": 1, "max_tokens": max_tokens, "tools": TOOLS}
        stream = llm.stream("the inn", tool_choice="required", **asked)
        chunks = list(stream)
        assert stream.output is not None
        assert (stream.output.text, "".join(chunk.text for chunk in chunks)) == ("", "")
        parts = [part for chunk in chunks for part in chunk.parts]
        assert calls_in(parts) == stream.output.tool_calls


def test_one_call_where_only_one_is_wanted(llm: LLM) -> None:
    for seed in range(3):
        output = ask(llm, seed, tool_choice="any", parallel_tool_calls=False)
        assert len(output.tool_calls) == 1
        assert output.outputs[0].finish_reason == "stop"
        check_calls(output)


def test_the_named_tool_is_called(llm: LLM) -> None:
    for name in SCHEMAS:
        named = {"type": "function", "function": {"name": name}}
        output = ask(llm, 1, tool_choice=named, parallel_tool_calls=False)
        assert [call.name for call in output.tool_calls] == [name]


def test_a_free_answer_is_text_or_calls_that_fit(llm: LLM) -> None:
    for seed in range(3):
        check_calls(ask(llm, seed))
    assert ask(llm, 1, tool_choice="none").tool_calls == ()


def test_a_stream_tells_what_the_whole_answer_holds(llm: LLM) -> None:
    whole = ask(llm, 2, tool_choice="required")
    with llm.stream(
        "the inn", temperature=5.0, seed=2, max_tokens=120, tools=TOOLS, tool_choice="required"
    ) as stream:
        parts = [part for chunk in stream for part in chunk.parts]
    assert stream.output is not None
    assert stream.output.tool_calls == whole.tool_calls
    assert [p.name for p in parts if isinstance(p, ToolCallBegun)] == [
        call.name for call in whole.tool_calls
    ]


FREE_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
INPUT = r"(?:/<[ab]\n\"){2,3}\\"


def patterned(pattern: str) -> Tool:
    return Tool("patch", "Free text.", FREE_TEXT, input_pattern=pattern)


def writes_literals(llm: LLM) -> bool:
    """Texts as Python escapes them: a pattern of the text is none of how it is written."""
    return llm._requests.template.source == TEMPLATES["lfm2"]  # pyright: ignore[reportPrivateUsage]


def test_a_tool_of_one_text_is_held_to_its_pattern(llm: LLM) -> None:
    if writes_literals(llm):
        pytest.skip("named as relaxed, which the next test looks at")
    for seed in range(3):
        fields = {"temperature": 5.0, "seed": seed, "max_tokens": 250}
        output = llm.chat("x", tools=[patterned(INPUT)], tool_choice="required", **fields)
        call = output.tool_calls[0]
        assert call.complete
        assert re.fullmatch(INPUT, json.loads(call.arguments)["input"])


def test_a_pattern_that_is_not_enforced_is_named(llm: LLM) -> None:
    for pattern, told in (("a+", writes_literals(llm)), ("(?=x)y", True), ("(", True)):
        asked = ChatFields([patterned(pattern)], "required")
        request = llm._requests.chat("x", SamplingParams(), asked=asked)  # pyright: ignore[reportPrivateUsage]
        assert bool(request.relaxed) == told
        assert all(path.startswith("tools.patch.") for path in request.relaxed)


# --- one form is enough ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generic(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return str(write_tiny_model(path, "llama", context=4096, chat_template=TEMPLATES["generic"]))


def tool(name: str, pattern: str, *, strict: bool = False) -> dict[str, object]:
    properties = {"code": {"type": "string", "pattern": pattern}}
    parameters = {"type": "object", "properties": properties, "required": ["code"]}
    return {
        "type": "function",
        "function": {"name": name, "parameters": parameters, "strict": strict},
    }


def test_one_pattern_that_nobody_can_enforce_is_left_out_and_named(generic: str) -> None:
    tools = [tool(f"t{n}", "^[a-z]{2}$") for n in range(19)] + [tool("odd", "^(?=x)y$")]
    with LLM(generic, num_threads=1, disk_cache=0) as llm:
        fields = ChatFields(tools, "required", parallel_tool_calls=False)
        request = llm._requests.chat("x", SamplingParams(), asked=fields)  # pyright: ignore[reportPrivateUsage]
        assert len(request.relaxed) == 1
        assert request.relaxed[0].startswith("tools.odd.parameters/properties/code/pattern")
        strict = [*tools[:-1], tool("odd", "^(?=x)y$", strict=True)]
        with pytest.raises(ConstraintError, match=r"tools\.odd|odd\.parameters"):
            llm.chat("x", tools=strict)


def test_a_schema_beside_tools_holds_the_text(generic: str) -> None:
    with LLM(generic, num_threads=1, disk_cache=0) as llm:
        for seed in range(3):
            output = llm.chat(
                "x", schema={"enum": [1, 2]}, tools=TOOLS, temperature=5.0, seed=seed, max_tokens=90
            )
            assert output.tool_calls or output.parsed in (1, 2)
        with pytest.raises(ConstraintError, match="beside tools"):
            llm.chat("x", tools=TOOLS, constraint=constraint_of_regex())


def test_a_schema_beside_tools_is_held_to_whole_or_refused(generic: str) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    with LLM(generic, num_threads=1, disk_cache=0) as llm, pytest.raises(ConstraintError) as caught:
        llm.chat("the inn", max_tokens=5, tools=TOOLS, schema=schema)
    assert caught.value.keyword == "uniqueItems"


def test_a_tool_whose_arguments_have_no_end_is_named(generic: str) -> None:
    endless = {"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}
    tools = [*TOOLS, {"type": "function", "function": {"name": "deep", "parameters": endless}}]
    with LLM(generic, num_threads=1, disk_cache=0) as llm, pytest.raises(ConstraintError) as caught:
        llm.chat("the inn", max_tokens=5, tools=tools)
    assert caught.value.kind == "tools"
    assert caught.value.path.startswith("tools.deep.parameters#")


def constraint_of_regex() -> object:
    from edgeserve import Constraint

    return Constraint.regex("a+")


def test_async_answers_are_the_same(generic: str) -> None:
    fields = {"temperature": 5.0, "seed": 3, "max_tokens": 90}

    async def asked() -> RequestOutput:
        async with await AsyncLLM.create(generic, num_threads=1, disk_cache=0) as llm:
            return await llm.chat("the inn", tools=TOOLS, tool_choice="required", **fields)

    with LLM(generic, num_threads=1, disk_cache=0) as llm:
        here = llm.chat("the inn", tools=TOOLS, tool_choice="required", **fields)
    there = asyncio.run(asked())
    assert there.tool_calls == here.tool_calls != ()


# --- reasoning before what is held ----------------------------------------------------------------

OPEN, CLOSE, END, WANTED = 1, 2, 3, 4
SIZE = 40


class Only:
    """A matcher that wants WANTED again and again."""

    failure = None

    def __init__(self) -> None:
        self.accepted: list[int] = []

    def fork(self) -> Only:
        return Only()

    def masks(self, ahead: object) -> Masks:
        return [bits(WANTED)] * (len(ahead) + 1)  # type: ignore[arg-type]

    def num_allowed(self, tokens: list[int]) -> int:
        return next((at for at, token in enumerate(tokens) if token != WANTED), len(tokens))

    def forced(self) -> list[int]:
        return [WANTED]

    def accept(self, token_id: int) -> None:
        self.accepted.append(token_id)


def bits(*ids: int) -> np.ndarray:
    allowed = np.zeros(64, np.bool_)
    allowed[list(ids)] = True
    return np.packbits(allowed, bitorder="little").view(np.uint32)


def ids_in(mask: np.ndarray) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


EVERYTHING = set(range(SIZE))


def matcher(*, opened: bool, budget: int | None = None, free: bool = False) -> ThinkingMatcher:
    end = EndTag("</t>", lambda _: [CLOSE], lambda _: b"", SIZE)
    gate = ThinkingGate(OPEN, end, SIZE, frozenset({END}), budget)
    return ThinkingMatcher.at_beginning(gate, None if free else Only(), opened=opened)


def test_reasoning_is_free_and_the_answer_behind_it_is_held() -> None:
    held = matcher(opened=True)
    masks = held.masks([7, CLOSE, WANTED])
    assert [ids_in(mask) for mask in masks] == [
        EVERYTHING - {END},
        EVERYTHING - {END},
        {WANTED},
        {WANTED},
    ]
    assert held.num_allowed([7, 8, CLOSE, WANTED, 9]) == 4
    assert held.num_allowed([7, END]) == 1
    for token_id in (7, CLOSE, WANTED):
        held.accept(token_id)
    assert held.forced() == [WANTED]


def test_an_answer_may_begin_with_reasoning_or_without() -> None:
    held = matcher(opened=False)
    assert ids_in(held.masks([])[0]) == {OPEN, WANTED}
    assert [ids_in(m) for m in held.masks([OPEN])] == [{OPEN, WANTED}, EVERYTHING - {END}]
    assert held.num_allowed([OPEN, 9, CLOSE, WANTED]) == 4
    fork = held.fork()
    fork.accept(WANTED)
    assert ids_in(fork.masks([])[0]) == {WANTED}
    assert ids_in(held.masks([])[0]) == {OPEN, WANTED}


def test_a_budget_ends_reasoning_at_its_token() -> None:
    held = matcher(opened=True, budget=2, free=True)
    assert held.forced() == []
    assert [ids_in(m) for m in held.masks([7, 8, CLOSE])] == [
        EVERYTHING,
        EVERYTHING,
        {CLOSE},
        EVERYTHING,
    ]
    assert held.num_allowed([7, 8, 9]) == 2
    for token_id in (7, 8):
        held.accept(token_id)
    assert held.forced() == [CLOSE]
    none = matcher(opened=True, budget=0)
    assert none.forced() == [CLOSE]
    closed = matcher(opened=False, budget=0)
    assert ids_in(closed.masks([])[0]) == {WANTED}


# Reasoning whose tags are text: tokens of several characters, of which some go on behind a tag.

TEXTS = ["", *"<>/think", "</", "think", ">\n", ">4", "k>", "<think>", "so", " "]
SPELT = {text: token_id for token_id, text in enumerate(TEXTS)}


def spelled(*texts: str) -> list[int]:
    return [SPELT[text] for text in texts]


def by_text(
    *, opened: bool, budget: int | None = None, inner: Only | None = None
) -> ThinkingMatcher:
    def encode(text: str) -> list[int]:
        found: list[int] = []
        while text:
            longest = max((t for t in TEXTS if t and text.startswith(t)), key=len)
            found.append(SPELT[longest])
            text = text.removeprefix(longest)
        return found

    end = EndTag("</think>", encode, lambda at: TEXTS[at].encode() if at < len(TEXTS) else b"", 40)
    gate = ThinkingGate(None, end, SIZE, frozenset({39}), budget, b"<think>")
    return ThinkingMatcher.at_beginning(gate, inner, opened=opened)


def test_a_budget_ends_reasoning_by_a_tag_of_several_tokens() -> None:
    held = by_text(opened=True, budget=1)
    tag = spelled("</", "think", ">")
    assert [ids_in(m) for m in held.masks([SPELT["so"], *tag])] == [
        EVERYTHING,
        *({token_id} for token_id in tag),
        EVERYTHING,
    ]
    assert held.num_allowed([SPELT["so"], *tag, SPELT["so"]]) == 5
    assert held.num_allowed(spelled("so", "</", "t")) == 2
    held.accept(SPELT["so"])
    assert held.forced() == tag
    held.accept(tag[0])
    assert held.forced() == tag[1:]
    for token_id in tag[1:]:
        held.accept(token_id)
    assert (held.forced(), ids_in(held.masks([])[0])) == ([], EVERYTHING)


def test_a_tag_that_has_begun_when_the_budget_is_spent_is_completed() -> None:
    held = by_text(opened=True, budget=3)
    for token_id in spelled("so", "</", "t"):
        held.accept(token_id)
    assert "".join(TEXTS[at] for at in held.forced()) == "hink>"


def test_a_tag_is_known_however_it_is_spelled() -> None:
    for ways in (
        ("</", "think", ">"),
        ("<", "/", "t", "h", "i", "n", "k", ">\n"),
        ("</", "t", "h"),
    ):
        held = by_text(opened=True, budget=90, inner=Only())
        for text in ("<", "<", "so", *ways):
            held.accept(SPELT[text])
        ended = ways[-1].startswith(">")
        assert held.forced() == ([WANTED] if ended else [])
        if not ended:  # its end may not hold the answer's beginning
            held.accept(SPELT["i"])
            held.accept(SPELT["n"])
            assert ids_in(held.masks([])[0]) == EVERYTHING - {39}
            held.accept(SPELT["k"])
            assert ids_in(held.masks([])[0]) == EVERYTHING - {39, SPELT[">4"]}
            assert held.num_allowed([SPELT[">4"]]) == 0
            assert held.num_allowed([SPELT[">\n"], WANTED]) == 2


def test_reasoning_that_a_free_answer_opens_by_text_is_bounded() -> None:
    for ways in (("<think>",), (" ", "<", "think", ">"), ("<", "t", "h", "i", "n", "k", ">\n")):
        held = by_text(opened=False, budget=1)
        for text in (*ways, "so"):
            assert held.forced() == []
            held.accept(SPELT[text])
        assert held.forced() == spelled("</", "think", ">")
    for token_id in spelled("<", "so", "<think>"):
        (free := by_text(opened=False, budget=1)).accept(token_id)
        assert free.forced() == []


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """Whose vocabulary has no token for the tags, and whose prompts open reasoning."""
    template = _BODY.replace("assistant {%", "assistant <think>{%") + "{# </think> #}"
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path, "llama", context=2048, chat_template=template)
    with LLM(str(path), num_threads=1, disk_cache=0) as opened:
        assert len(opened.tokenize("</think>", add_special=False)) > 1
        yield opened


def test_an_engine_keeps_a_budget_whose_tag_is_text(thinker: LLM) -> None:
    tag = thinker.tokenize("</think>", add_special=False)
    for budget in (0, 3):
        for seed in range(3):
            output = thinker.chat(
                "x", thinking=Thinking(budget=budget), temperature=5.0, seed=seed, max_tokens=40
            )
            ids = list(output.outputs[0].token_ids)
            assert ids[budget : budget + len(tag)] == tag
            assert output.reasoning == thinker.detokenize(ids[:budget]).strip()


def test_what_is_asked_for_comes_behind_reasoning_whose_tag_is_text(thinker: LLM) -> None:
    for seed in range(3):
        output = thinker.chat(
            "x",
            thinking=Thinking(budget=4),
            schema={"enum": ["a", "b"]},
            temperature=5.0,
            seed=seed,
            max_tokens=60,
        )
        assert output.parsed in ("a", "b")


def test_a_budget_that_cannot_be_kept_is_named(tmp_path: Path) -> None:
    template = _BODY + "{# <|channel|> <|call|> #}"
    path = write_tiny_model(tmp_path / "t.gguf", "llama", context=512, chat_template=template)
    with LLM(str(path), num_threads=1, disk_cache=0) as llm:
        for budget, relaxed in ((5, ("reasoning_budget",)), (None, ())):
            fields = ChatFields(thinking=Thinking(budget=budget))
            request = llm._requests.chat("x", SamplingParams(), asked=fields)  # pyright: ignore[reportPrivateUsage]
            assert request.relaxed == relaxed
