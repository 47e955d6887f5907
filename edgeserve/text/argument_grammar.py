"""Grammars of a tool's arguments where they are not one JSON value: elements, and literals.

What of a schema these grammars leave open is told by its path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from edgeserve.text.lark_writer import LarkWriter, either, join
from edgeserve.text.text_scanner import json_text
from edgeserve.text.tool_descriptions import Tool
from edgeserve.text.tool_formats import LiteralFormat, TaggedFormat

Schema = Mapping[str, object]

_ENFORCED = frozenset({"type", "enum", "const", "properties", "required", "items"})
_ANNOTATIONS = frozenset(
    [
        "title",
        "description",
        "default",
        "examples",
        "$schema",
        "$id",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
    ]
)
_SHARED = ("$defs", "definitions")
_KEY = r"/[A-Za-z_][A-Za-z0-9_.-]*/"
_PYTHON_TEXT = r"/'([^'\\\n]|\\['\\nrt])*'/"
_MAX_DEPTH = 16


class ArgumentGrammar:
    """Writes arguments of tools into a grammar. `relaxed` are the paths of what was left open."""

    def __init__(self, lark: LarkWriter) -> None:
        self._lark = lark
        self.relaxed: list[str] = []

    # --- elements ------------------------------------------------------------------------------

    def elements(self, form: TaggedFormat, tool: Tool) -> str:
        """An element per argument, in the schema's order."""
        properties, required = _properties(tool.parameters)
        if properties is None:
            self.relaxed.append(argument_path(tool))
            return f"({self._element(form, _KEY, {}, tool, '')})*"
        pieces: list[str] = []
        for key, schema in properties.items():
            element = self._element(form, self._lark.text(key), schema, tool, key)
            pieces.append(element if key in required else f"({element})?")
        return join(*pieces)

    def _element(self, form: TaggedFormat, key: str, schema: Schema, tool: Tool, name: str) -> str:
        lark, pad = self._lark, "\n" if form.padded else ""
        ends = f"{pad}{form.after_value}"
        texts = _texts_of(schema)
        is_text = bool(texts) or schema.get("type") == "string" or not schema
        kind = "text" if is_text else "json"
        ending = next(text for text, of in form.after_key if of in (None, kind))
        opening = f"{form.line_break}{form.value_open}" if form.value_open else ""
        if texts:
            value = join(either([lark.text(text) for text in texts]), lark.text(ends))
        elif tool.input_pattern is not None:
            value = lark.until(ends, lark.rule(_regex(tool.input_pattern), terminal=True))
        elif is_text:
            self._note(argument_path(tool, name), schema)
            value = lark.until(ends)
        else:
            shared = {key: tool.parameters[key] for key in _SHARED if key in tool.parameters}
            owner = argument_path(tool, name)
            value = join(lark.json({**shared, **schema}, owner), lark.text(ends))
        before = join(lark.text(form.before_key), key, lark.text(f"{ending}{opening}{pad}"))
        return lark.rule(join(before, value, lark.text(form.line_break)))

    # --- literals ------------------------------------------------------------------------------

    def literals(self, form: LiteralFormat, tool: Tool) -> str:
        """Keys and values between the brackets, in the schema's order."""
        lark, is_raw = self._lark, len(form.quote) > 1
        if tool.input_pattern is not None and is_raw:
            text = lark.until(form.quote, lark.rule(_regex(tool.input_pattern), terminal=True))
            return join(lark.text(f"input{form.assign}{form.quote}"), text)
        return self._fields(form, tool.held_to, argument_path(tool), 0)

    def _fields(self, form: LiteralFormat, schema: Schema, path: str, depth: int) -> str:
        """`key=value` for each property; those that need not be come behind those that must."""
        lark = self._lark
        properties, required = _properties(schema)
        if properties is None:
            self.relaxed.append(path)
            return ""
        items = {
            key: lark.rule(
                join(
                    lark.text(f"{key}{form.assign}"),
                    self._literal(form, value, f"{path}.{key}", depth + 1),
                )
            )
            for key, value in properties.items()
        }
        separator = lark.text(form.separator)
        must = [items[key] for key in items if key in required]
        may = [items[key] for key in items if key not in required]
        head = f" {separator} ".join(must)
        if not may:
            return head
        if must:
            return join(head, *(f"({separator} {item})?" for item in may))
        # None, or any of them in order: the first that comes has no separator before it.
        options = [
            join(item, *(f"({separator} {later})?" for later in may[at + 1 :]))
            for at, item in enumerate(may)
        ]
        return f"({' | '.join(options)})?"

    def _literal(self, form: LiteralFormat, schema: Schema, path: str, depth: int) -> str:
        lark, is_python = self._lark, len(form.quote) == 1
        texts = _texts_of(schema)
        if texts:
            return either([self._quoted(form, text) for text in texts])
        kind = schema.get("type") if depth <= _MAX_DEPTH else None
        if kind in ("integer", "number") or (kind == "boolean" and not is_python):
            return lark.rule(lark.json(schema, path))
        self._note(path, schema)
        match kind:
            case "boolean":
                return '("True" | "False")'
            case "null":
                return '"None"' if is_python else '"null"'
            case "array":
                items = schema.get("items")
                item = self._literal(form, _schema(items), f"{path}.items", depth + 1)
                more = f"({lark.text(form.separator)} {item})*"
                return lark.rule(f'"[" ({item} {more})? "]"')
            case "object" if not is_python:
                return lark.rule(join('"{"', self._fields(form, schema, path, depth), '"}"'))
            case "string":
                return self._any_text(form)
            case _:
                self.relaxed.append(path)
                return self._any_text(form)

    def _any_text(self, form: LiteralFormat) -> str:
        lark = self._lark
        if len(form.quote) == 1:
            return lark.rule(_PYTHON_TEXT, terminal=True)
        return lark.rule(join(lark.text(form.quote), lark.until(form.quote)))

    def _quoted(self, form: LiteralFormat, text: str) -> str:
        written = repr(text) if len(form.quote) == 1 else f"{form.quote}{text}{form.quote}"
        return self._lark.text(written)

    def _note(self, path: str, schema: Schema) -> None:
        self.relaxed += [
            f"{path}.{keyword}"
            for keyword in schema
            if keyword not in _ENFORCED and keyword not in _ANNOTATIONS
        ]


def _regex(pattern: str) -> str:
    """A regular expression as Lark has it, on one line."""
    closed = re.sub(r"\\.|/", lambda found: r"\/" if found[0] == "/" else found[0], pattern)
    return f"/{closed}/".replace("\n", r"\n")


def argument_path(tool: Tool, name: str = "") -> str:
    """Where a tool's arguments are, or one of them."""
    return f"tools.{tool.name}.parameters{f'.{name}' if name else ''}"


def _properties(schema: Schema) -> tuple[Mapping[str, Schema] | None, Sequence[str]]:
    """(the schemas of an object's members, which must be there); None if it does not say."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return None, ()
    items = cast("dict[str, object]", properties).items()
    names = cast("list[str]", required) if isinstance(required, list) else []
    return {key: _schema(value) for key, value in items}, names


def _schema(value: object) -> Schema:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _texts_of(schema: Schema) -> list[str]:
    """The texts that a schema lists, where it lists texts and nothing else."""
    options = schema.get("enum", [schema["const"]] if "const" in schema else None)
    listed = cast("list[object]", options) if isinstance(options, list) else []
    texts = [option for option in listed if isinstance(option, str)]
    return texts if len(texts) == len(listed) else []


def json_name(name: str) -> str:
    """A name as JSON."""
    return f'"{json_text(name)}"'
