"""The grammar that an answer with tools must follow, in llguidance's Lark, for every form of calls.

Owns which calls may come, how many, and what of an answer is free. Compiles nothing:
text/constraint.py does. Reasoning before the answer is not the grammar's.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgeserve.frozen import frozen
from edgeserve.text.argument_grammar import ArgumentGrammar, argument_path, json_name
from edgeserve.text.lark_writer import LarkWriter, Spell, as_text, either, join
from edgeserve.text.tool_descriptions import Tool
from edgeserve.text.tool_formats import (
    HarmonyFormat,
    LiteralFormat,
    NamedFormat,
    ObjectFormat,
    TaggedFormat,
    ToolFormat,
)

_TextFormat = ObjectFormat | NamedFormat | TaggedFormat | LiteralFormat


@frozen
class ToolGrammar:
    """A Lark grammar of a whole answer. `relaxed` are the paths of what it leaves open by itself,
    `owners` say what each of its `%json` parts describes, in order."""

    lark: str
    relaxed: tuple[str, ...]
    owners: tuple[str, ...]


def tool_grammar(
    form: ToolFormat,
    tools: Sequence[Tool],
    *,
    required: bool,
    parallel: bool,
    text_schema: object = None,
    spell: Spell = as_text,
) -> ToolGrammar:
    """The grammar of answers that may call `tools`, or, where `required`, do nothing else.

    Without `parallel` there is one call at most. In an answer that need not call, text is free
    until a call is opened, and from there on the call is held to its tool; with a `text_schema`
    it is JSON that the schema describes.
    """
    lark = LarkWriter(spell)
    arguments = ArgumentGrammar(lark)
    if not tools:
        said = "TEXT" if text_schema is None else lark.rule(lark.json(text_schema, "json_schema"))
        return ToolGrammar(lark.grammar(said), (), tuple(lark.owners))
    if isinstance(form, HarmonyFormat):
        start = _harmony(lark, tools, required=required)
    else:
        call = lark.rule(either([_call(lark, arguments, form, tool) for tool in tools]))
        if required or text_schema is not None:
            start = _calls(lark, form, call, parallel)
        else:
            start = _text_and_calls(lark, form, call, parallel)
        if text_schema is not None and not required:
            start = f"{lark.rule(lark.json(text_schema, 'json_schema'))} | {start}"
    return ToolGrammar(lark.grammar(start), tuple(arguments.relaxed), tuple(lark.owners))


def _calls(lark: LarkWriter, form: _TextFormat, call: str, parallel: bool) -> str:
    """Calls and nothing else."""
    return join(lark.text(form.frame.opens), _in_frame(lark, form, call, parallel))


def _in_frame(lark: LarkWriter, form: _TextFormat, call: str, parallel: bool) -> str:
    """One call or several, behind what opens them."""
    frame = form.frame
    one = join(lark.text(frame.call_open), call, lark.text(frame.call_close))
    separator, closes = frame.separator, frame.closes
    if not parallel:
        return join(one, lark.text(closes))
    if separator and closes.startswith(separator):  # a lexer that sees both would take the longer
        each = join(one, lark.text(separator))
        return join(f"({each})+", lark.text(closes.removeprefix(separator)))
    return join(one, f"({join(lark.text(separator), one)})*", lark.text(closes))


def _text_and_calls(lark: LarkWriter, form: _TextFormat, call: str, parallel: bool) -> str:
    """Text, in which what announces calls is followed by calls."""
    frame = form.frame
    if isinstance(form, ObjectFormat) and form.bare:
        # An answer that begins as an object is a call: nothing else tells the two apart.
        text = lark.rule(r"/([^{](.|\n)*)?/", terminal=True)
        return f"{text} | {_calls(lark, form, call, parallel)}"
    opening = frame.opens or frame.call_open
    trigger = frame.triggers[0]
    head, rest = lark.until(trigger), lark.text(opening.removeprefix(trigger))
    if frame.opens:
        return f"TEXT | {join(head, rest, _in_frame(lark, form, call, parallel))}"
    calls = join(head, rest, call, lark.text(frame.call_close))
    return f"({calls})* TEXT" if parallel else f"TEXT | {calls}"


def _call(lark: LarkWriter, arguments: ArgumentGrammar, form: _TextFormat, tool: Tool) -> str:
    """One tool's call, within what stands around every call."""

    def schema() -> str:
        return lark.json(tool.held_to, argument_path(tool))

    match form:
        case ObjectFormat():
            name = f"{form.before_name}{json_name(tool.name)}{form.before_arguments}"
            parts = (
                lark.text(name),
                schema(),
                lark.text(form.after_arguments),
            )
        case NamedFormat():
            parts = (
                *_name(lark, form, tool),
                schema(),
            )
        case TaggedFormat():
            name = f"{form.before_name}{tool.name}{form.after_name}"
            parts = (
                lark.text(name),
                arguments.elements(form, tool),
                lark.text(form.after_arguments),
            )
        case LiteralFormat():
            opens, closes = form.brackets
            parts = (
                lark.text(f"{tool.name}{opens}"),
                arguments.literals(form, tool),
                lark.text(closes),
            )
    return lark.rule(join(*parts))


def _name(lark: LarkWriter, form: NamedFormat, tool: Tool) -> tuple[str, ...]:
    """A tool's name up to its arguments, with the call's number where the form has one."""
    if not form.number_mark:
        return (lark.text(f"{tool.name}{form.before_arguments}"),)
    number = lark.rule("/[0-9]{1,4}/", terminal=True)
    return lark.text(f"{tool.name}{form.number_mark}"), number, lark.text(form.before_arguments)


def _harmony(lark: LarkWriter, tools: Sequence[Tool], *, required: bool) -> str:
    """A message of reasoning if any, then a call or, where it need not be one, the answer."""
    thinks = join(
        lark.text("<|channel|>analysis<|message|>"), lark.until("<|end|>"),
        lark.text("<|start|>assistant"),
    )  # fmt: skip
    calls = [
        lark.rule(
            join(
                lark.text(
                    f"<|channel|>commentary to=functions.{tool.name} <|constrain|>json<|message|>"
                ),
                lark.json(tool.held_to, argument_path(tool)),
            )
        )
        for tool in tools
    ]
    answer = [] if required else [lark.rule(join(lark.text("<|channel|>final<|message|>"), "TEXT"))]
    return f"({lark.rule(thinks)})? {either([*calls, *answer])}"
