"""What an answer is held to: a schema, calls of tools, or what the caller gives; behind reasoning.

Composes constraints and has them compiled. Knows no engine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import cast

from edgeserve.answer_schema import Parse, held_to
from edgeserve.errors import ConstraintError
from edgeserve.frozen import frozen
from edgeserve.text.answer_reader import AnswerShape
from edgeserve.text.constraint import CompiledConstraint, ConstraintCompiler
from edgeserve.text.end_tag import EndTag
from edgeserve.text.thinking import Thinking
from edgeserve.text.thinking_constraint import ThinkingConstraint
from edgeserve.text.thinking_matcher import ThinkingGate
from edgeserve.text.tokenizer import Tokenizer
from edgeserve.text.tool_descriptions import Tool, ToolChoice
from edgeserve.text.tool_grammar import ToolGrammar, tool_grammar
from edgeserve.types import Constraint, SamplingParams


@frozen
class Held:
    """Params with the constraint that was asked for, the same compiled, and what makes a value of
    the answer. `relaxed` are the paths of what is not enforced."""

    params: SamplingParams
    constraint: CompiledConstraint | ThinkingConstraint | None
    parse: Parse | None
    relaxed: tuple[str, ...] = ()


class AnswerHolder:
    """Of one model. Safe for several threads."""

    def __init__(self, compiler: ConstraintCompiler, tokenizer: Tokenizer) -> None:
        self._compiler = compiler
        self._tokenizer = tokenizer
        self._end_tag = lru_cache(maxsize=4)(partial(_end_tag, tokenizer))

    def text(self, params: SamplingParams, schema: object) -> Held:
        """An answer that is text alone. Raises ConstraintError."""
        params, parse = held_to(params, schema)
        compiled = self._compiled(params.constraint)
        return Held(params, compiled, parse, _told(compiled))

    def chat(
        self,
        params: SamplingParams,
        schema: object,
        shape: AnswerShape | None,
        offered: Sequence[Tool],
        choice: ToolChoice,
        parallel: bool,
        thinking: Thinking,
    ) -> Held:
        """An answer to a chat in which tools were `offered`. Raises ConstraintError."""
        params, parse = held_to(params, schema)
        relaxed: tuple[str, ...] = ()
        owners: tuple[str, ...] = ()
        if offered and shape is not None and shape.form is not None:
            tools, relaxed = self._with_patterns(choice.callable(offered))
            grammar = self._grammar(params.constraint, shape, tools, choice, parallel)
            params = replace(params, constraint=Constraint.lark(grammar.lark, lenient=True))
            relaxed, owners = relaxed + grammar.relaxed, grammar.owners
        compiled = self._compiled_for(params.constraint, owners)
        relaxed += _told(compiled, owners)
        gate = self._gate(shape, thinking)
        if gate is None and thinking.budget and shape is not None and shape.may_reason:
            relaxed += ("reasoning_budget",)
        if gate is None or shape is None or (compiled is None and gate.budget is None):
            return Held(params, compiled, parse, relaxed)
        behind = ThinkingConstraint(gate, compiled, shape.opened)
        return Held(params, behind, parse, relaxed)

    def _grammar(
        self,
        asked: Constraint | None,
        shape: AnswerShape,
        tools: Sequence[Tool],
        choice: ToolChoice,
        parallel: bool,
    ) -> ToolGrammar:
        """Of answers that call these tools, and none else, or say what was `asked` for."""
        assert shape.form is not None
        if asked is not None and asked.kind != "json_schema":
            raise ConstraintError(asked.kind, "cannot be held to beside tools; leave out one")
        if asked is not None:
            self._compiler.compile(asked)  # nothing of it is left out, as may be of a tool's schema
        self._check_strict(tools)
        grammar = tool_grammar(
            shape.form,
            tools,
            required=choice.mode == "required",
            parallel=parallel,
            text_schema=None if asked is None else cast(object, json.loads(asked.text)),
            spell=self._spelled,
        )
        strict = tuple(f"tools.{tool.name}." for tool in tools if tool.strict)
        for path in grammar.relaxed:
            if path.startswith(strict):
                raise ConstraintError(
                    "tools", "cannot be enforced in this model's calls", path=path
                )
        return grammar

    def _with_patterns(self, tools: Sequence[Tool]) -> tuple[Sequence[Tool], tuple[str, ...]]:
        """(tools without patterns that cannot be followed, whose those were)."""
        found: list[Tool] = []
        relaxed: list[str] = []
        for tool in tools:
            if tool.input_pattern is not None:
                try:
                    self._compiler.compile(Constraint.regex(tool.input_pattern))
                except ConstraintError as error:
                    relaxed.append(f"tools.{tool.name}.format.definition ({error.reason})")
                    tool = replace(tool, input_pattern=None)
            found.append(tool)
        return found, tuple(relaxed)

    def _check_strict(self, tools: Sequence[Tool]) -> None:
        for tool in tools:
            if tool.strict:
                try:
                    self._compiler.compile(Constraint.json_schema(tool.parameters))
                except ConstraintError as error:
                    where = f"tools.{tool.name}.parameters{error.path}"
                    raise ConstraintError(
                        "tools", error.reason, path=where, keyword=error.keyword
                    ) from None

    def _compiled(self, asked: Constraint | None) -> CompiledConstraint | None:
        return None if asked is None else self._compiler.compile(asked)

    def _compiled_for(
        self, asked: Constraint | None, owners: Sequence[str]
    ) -> CompiledConstraint | None:
        """The same; errors of a schema in a grammar name its owner."""
        try:
            return self._compiled(asked)
        except ConstraintError as error:
            path = error.path
            for number, owner in enumerate(owners, 1):
                path = path.replace(f"%json {number}#", f"{owner}#", 1)
            if path == error.path:
                raise
            raise ConstraintError("tools", error.reason, path=path, keyword=error.keyword) from None

    def _gate(self, shape: AnswerShape | None, thinking: Thinking) -> ThinkingGate | None:
        """How reasoning ends; None where there is none, or its end cannot be written."""
        if shape is None or shape.tags is None:
            return None
        tokenizer = self._tokenizer
        end = self._end_tag(shape.tags.closes)
        if not end.can_be_written:
            return None
        opens = shape.tags.opens.strip()
        ids = self._encoded(shape.tags.opens)
        is_token = bool(ids) and (len(ids) == 1 or tokenizer.is_control(ids[0]))
        return ThinkingGate(
            ids[0] if is_token else None,
            end,
            tokenizer.vocab_size,
            tokenizer.stop_ids,
            0 if thinking.wanted is False else thinking.budget,
            opens.encode(),
        )

    def _encoded(self, text: str) -> list[int]:
        return _encoded(self._tokenizer, text)

    def _spelled(self, text: str) -> list[str | int]:
        """A text as texts and the ids of control tokens in it."""
        found: list[str | int] = []
        for token_id in filter(self._tokenizer.is_control, self._encoded(text)):
            before, _, text = text.partition(self._tokenizer.token_text(token_id))
            found += [before, token_id]
        return [*found, text]


def _encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, parse_special=True, add_special=False)


def _end_tag(tokenizer: Tokenizer, text: str) -> EndTag:
    encode = partial(_encoded, tokenizer)
    return EndTag(text, encode, tokenizer.token_bytes, tokenizer.vocab_size)


def _told(compiled: CompiledConstraint | None, owners: Sequence[str] = ()) -> tuple[str, ...]:
    """What was relaxed, by its path; a grammar's schemas are named by their `owners`."""
    told = [] if compiled is None else [str(each) for each in compiled.relaxed]
    for number, owner in enumerate(owners, 1):
        told = [each.replace(f"%json {number}#", owner, 1) for each in told]
    return tuple(told)
