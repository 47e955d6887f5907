"""Writes tool calls and results as text, for templates that do not write them themselves.

The inverse of the readers in *_calls.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from edgeserve.text.text_scanner import json_text
from edgeserve.text.tool_descriptions import Tool
from edgeserve.text.tool_formats import (
    GENERIC,
    HarmonyFormat,
    LiteralFormat,
    NamedFormat,
    ObjectFormat,
    TaggedFormat,
    ToolFormat,
)

_PREAMBLE = """\
You may call functions to help with the user's query. The functions, as JSON schemas:
<tools>
{tools}
</tools>
To call one, answer with its name and arguments as a JSON object within <tool_call> tags, one pair \
of tags for each call:
<tool_call>
{{"name": "function-name", "arguments": {{"argument": "value"}}}}
</tool_call>
Results come back within <tool_response> tags."""


def generic_preamble(tools: Sequence[Tool]) -> str:
    """What tells a model of tools whose template does not: each tool as JSON on a line."""
    lines = (
        json.dumps(
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            ensure_ascii=False,
        )
        for tool in tools
    )
    return _PREAMBLE.format(tools="\n".join(lines))


def generic_result(content: str) -> str:
    """A tool's result, as the preamble announces it."""
    return f"<tool_response>\n{content}\n</tool_response>"


def written_calls(form: ToolFormat, calls: Sequence[tuple[str, Mapping[str, object]]]) -> str:
    """Calls as a model of the family writes them, each a name and arguments."""
    if isinstance(form, HarmonyFormat):  # its calls are messages of their own, not text
        form = GENERIC
    frame = form.frame
    each = (
        f"{frame.call_open}{_call(form, *call, number)}{frame.call_close}"
        for number, call in enumerate(calls)
    )
    return f"{frame.opens}{frame.separator.join(each)}{frame.closes}"


def _call(
    form: ObjectFormat | NamedFormat | TaggedFormat | LiteralFormat,
    name: str,
    arguments: Mapping[str, object],
    number: int,
) -> str:
    match form:
        case ObjectFormat():
            return (
                f'{form.before_name}"{json_text(name)}"{form.before_arguments}{_json(arguments)}'
                f"{form.after_arguments}"
            )
        case NamedFormat():
            numbered = f"{name}{form.number_mark}{number}" if form.number_mark else name
            return f"{numbered}{form.before_arguments}{_json(arguments)}"
        case TaggedFormat():
            return _tagged(form, name, arguments)
        case LiteralFormat():
            items = (f"{k}{form.assign}{_literal(form, v)}" for k, v in arguments.items())
            opens, closes = form.brackets
            return f"{name}{opens}{form.separator.join(items)}{closes}"


def _tagged(form: TaggedFormat, name: str, arguments: Mapping[str, object]) -> str:
    pad = "\n" if form.padded else ""
    pieces: list[str] = []
    for key, value in arguments.items():
        kind = "text" if isinstance(value, str) else "json"
        ending = next(text for text, of in form.after_key if of in (None, kind))
        text = value if isinstance(value, str) else _json(value)
        opens = f"{form.line_break}{form.value_open}" if form.value_open else ""
        pieces.append(
            f"{form.before_key}{key}{ending}{opens}{pad}{text}{pad}{form.after_value}"
            f"{form.line_break}"
        )
    return f"{form.before_name}{name}{form.after_name}{''.join(pieces)}{form.after_arguments}"


def _literal(form: LiteralFormat, value: object) -> str:
    if len(form.quote) == 1:
        return repr(value)
    if isinstance(value, str):
        return f"{form.quote}{value}{form.quote}"
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return "{" + ",".join(f"{key}:{_literal(form, item)}" for key, item in items) + "}"
    if isinstance(value, Sequence):
        items = cast("Sequence[object]", value)
        return "[" + ",".join(_literal(form, item) for item in items) + "]"
    return _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
