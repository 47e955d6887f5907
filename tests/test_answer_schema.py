"""schema= and constraint= in the Python API: what is asked by class or by schema, and `.parsed`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, field_validator

from edgeserve import LLM, AsyncLLM, Constraint
from edgeserve.errors import ConstraintError, InvalidRequestError, OutputParseError

from .tiny_models import write_tiny_model


class Person(BaseModel):
    name: str
    kind: int | None


class Never(BaseModel, extra="forbid"):
    yes: bool

    @field_validator("yes")
    @classmethod
    def never(cls, value: bool) -> bool:
        raise ValueError(f"{value} is not what I want")


YES = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"],
       "additionalProperties": False}  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_model(tmp_path_factory.mktemp("m") / "tiny.gguf", "llama", context=256))


@pytest.fixture(scope="module")
def llm(path: str) -> Iterator[LLM]:
    with LLM(path) as opened:
        yield opened


def test_a_class_is_what_comes_back(llm: LLM) -> None:
    for seed in range(8):
        output = llm.chat("Who?", schema=Person, temperature=5.0, seed=seed, max_tokens=150)
        if output.outputs[0].finish_reason == "stop":
            assert isinstance(output.parsed, Person)
            assert output.parsed == Person.model_validate_json(output.text)
            return
    pytest.fail("no answer ended")


def test_a_schema_gives_what_json_holds(llm: LLM) -> None:
    outputs = llm.generate(["a", "b"], schema=YES, temperature=1.0, seed=1, n=2, max_tokens=60)
    for output in outputs:
        for choice in output.outputs:
            assert choice.parsed == json.loads(choice.text)
            assert choice.parsed["yes"] in (True, False)


def test_a_constraint_of_json_is_parsed_and_others_are_text(llm: LLM) -> None:
    held = Constraint.json_schema(YES)
    assert llm.chat("x", constraint=held, max_tokens=60).parsed["yes"] in (True, False)
    output = llm.chat("x", constraint=Constraint.regex("(yes|no)!"), max_tokens=60)
    assert output.text in ("yes!", "no!")
    assert output.parsed is None


def test_what_is_cut_is_not_parsed(llm: LLM) -> None:
    output = llm.chat("x", schema=YES, max_tokens=3)
    assert (output.outputs[0].finish_reason, output.parsed) == ("length", None)


def test_a_class_that_refuses_its_own_schema_says_so_when_asked(llm: LLM) -> None:
    output = llm.chat("x", schema=Never, max_tokens=60)
    assert json.loads(output.text)["yes"] in (True, False)
    with pytest.raises(OutputParseError, match="not what I want") as caught:
        _ = output.parsed
    assert caught.value.text == output.text


def test_streams_end_with_the_value(llm: LLM) -> None:
    with llm.stream("x", schema=YES, max_tokens=60) as stream:
        text = "".join(chunk.text for chunk in stream)
    assert stream.output is not None
    assert stream.output.parsed == json.loads(text)


def test_speculation_changes_nothing(llm: LLM, path: str) -> None:
    with LLM(path, speculation="off") as plain:
        for seed in range(3):
            asked = {"schema": Person, "temperature": 1.0, "seed": seed, "max_tokens": 80}
            a, b = (one.chat("Who?", logprobs=2, **asked) for one in (llm, plain))  # type: ignore[arg-type]
            assert a.outputs == b.outputs
            assert b.usage.num_draft_tokens == 0 < a.usage.num_draft_tokens


def test_async_answers_are_the_same(llm: LLM, path: str) -> None:
    async def ask() -> list[object]:
        async with await AsyncLLM.create(path) as made:
            whole = await made.chat("x", schema=YES, max_tokens=60, seed=2)
            raw = await made.generate("x", schema=YES, max_tokens=60, seed=2)
            async with made.stream("x", schema=YES, max_tokens=60, seed=2) as stream:
                async for _ in stream:
                    pass
            assert stream.output is not None
            return [whole.parsed, raw.parsed, stream.output.parsed]

    whole = llm.chat("x", schema=YES, max_tokens=60, seed=2)
    raw = llm.generate("x", schema=YES, max_tokens=60, seed=2)[0]
    assert asyncio.run(ask()) == [whole.parsed, raw.parsed, whole.parsed]


def test_wrong_schemas_are_refused_before_anything_is_computed(llm: LLM) -> None:
    for call in (llm.generate, llm.chat, llm.stream):
        with pytest.raises(ConstraintError, match="#/not"):
            call("x", schema={"not": {}})
        with pytest.raises(ConstraintError, match="mapping"):
            call("x", schema=3)
        with pytest.raises(InvalidRequestError, match="schema"):
            call("x", schema=YES, constraint=Constraint.json_object())


def test_who_asks_for_no_schema_loads_no_library(path: str) -> None:
    code = (
        "import sys; from edgeserve import LLM\n"
        f"with LLM({path!r}) as llm: llm.chat('x', max_tokens=2)\n"
        "assert not {'llguidance', 'pydantic', 'jsonschema'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)
