"""Reasoning in generated text: tags opened by prompt or answer, cut anywhere, and mere text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.answer_parts import AnswerPart, ContentDelta, ReasoningDelta, calls_in
from edgeserve.text.answer_reader import AnswerReader, AnswerShape
from edgeserve.text.reasoning import ReasoningTags, opens_reasoning, reasoning_tags
from edgeserve.text.tool_descriptions import Tool
from edgeserve.text.tool_formats import GENERIC

THINK = ReasoningTags("<think>", "</think>")


def split(
    pieces: Sequence[str], tags: ReasoningTags = THINK, *, opened: bool = False
) -> tuple[str, str]:
    """(reasoning, text) of an answer."""
    reader = AnswerReader(AnswerShape(tags, opened))
    parts = [part for piece in pieces for part in reader.feed(piece)] + reader.finish()
    return said(parts, ReasoningDelta), said(parts, ContentDelta)


def said(parts: Sequence[AnswerPart], kind: type) -> str:
    return "".join(part.text for part in parts if isinstance(part, kind))


@pytest.mark.parametrize(
    ("text", "opened", "reasoning", "answer"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", False, "Hm.", "Yes."),
        ("Hm.\n</think>\n\nYes.", True, "Hm.", "Yes."),  # only closed: the prompt opened it
        ("<think>\nHm.</think>Yes.", True, "Hm.", "Yes."),  # the model opens it again
        ("\n<think>Hm.", False, "Hm.", ""),  # cut
        ("Hm, ", True, "Hm,", ""),
        ("<think>\n\n</think>\n\nYes. ", False, "", "Yes. "),
        ("Yes.", False, "", "Yes."),
        ("  Yes.", False, "", "  Yes."),
        ("<thin", False, "", "<thin"),
        ("Tags: <think>x</think>", False, "", "Tags: <think>x</think>"),
        ("Yes.</think>", False, "", "Yes.</think>"),
        ("a</think>b</think><think>c", True, "a", "b</think><think>c"),
        ("a </ think> b </thin</think>c", True, "a </ think> b </thin", "c"),
        ("", False, "", ""),
        ("", True, "", ""),
    ],
)
def test_reasoning_and_answer_come_apart(
    text: str, opened: bool, reasoning: str, answer: str
) -> None:
    assert split([text], opened=opened) == (reasoning, answer)
    assert split(list(text), opened=opened) == (reasoning, answer)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.booleans())
def test_pieces_do_not_matter(data: st.DataObject, opened: bool) -> None:
    fragments = st.lists(
        st.sampled_from(["<think>", "</think>", "<", "/", "think", " ", "\n", "a"])
    )
    text = "".join(data.draw(fragments))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
    assert split(pieces, opened=opened) == split([text], opened=opened)


@pytest.mark.parametrize(
    ("template", "tags"),
    [
        ("{% if '</think>' in content %}", THINK),
        ("[THINK]x[/THINK]", ReasoningTags("[THINK]", "[/THINK]")),
        ("<|channel>thought", ReasoningTags("<|channel>thought\n", "<channel|>")),
        ("<seed:think>", ReasoningTags("<seed:think>", "</seed:think>")),
        ("<|im_start|>assistant", None),
    ],
)
def test_tags_follow_the_template(template: str, tags: ReasoningTags | None) -> None:
    assert reasoning_tags(template) == tags


def test_gemma_thinks_in_a_channel() -> None:
    tags = reasoning_tags("<|channel>thought")
    assert tags is not None
    assert split(["<|channel>thought\nHm.\n<channel|>Yes."], tags) == ("Hm.", "Yes.")


def test_only_the_end_of_a_prompt_opens_reasoning() -> None:
    assert opens_reasoning("<|im_start|>assistant\n<think>\n", THINK)
    assert not opens_reasoning("What is <think>?<|im_end|>\n<|im_start|>assistant\n", THINK)
    assert not opens_reasoning("assistant\n<think>\n\n</think>\n\n", THINK)
    assert not opens_reasoning("<think>", None)


def test_calls_are_looked_for_in_the_answer_only() -> None:
    call = '<tool_call>{"name": "stop", "arguments": {}}</tool_call>'
    reader = AnswerReader(AnswerShape(THINK, True, GENERIC, (Tool("stop"),)))
    parts = [*reader.feed(f"I may {call}"), *reader.feed(f"</think>\n{call}"), *reader.finish()]
    assert said(parts, ReasoningDelta) == f"I may {call}"
    assert len(calls_in(parts)) == 1
    assert said(parts, ContentDelta) == ""


def test_whether_an_answer_is_within_reasoning_is_known_at_any_time() -> None:
    reader = AnswerReader(AnswerShape(THINK))
    states: list[bool] = []
    for piece in ["<thi", "nk>", "Hm.</thi", "nk>", "Yes."]:
        reader.feed(piece)
        states.append(reader.in_reasoning)
    assert states == [False, True, True, False, False]
