"""The tools of a request: their names, and the schemas of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, cast

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.text.template_messages import plain_data


def _no_parameters() -> dict[str, object]:
    return {"type": "object", "properties": {}}


@frozen
class Tool:
    """One tool. `parameters` is the JSON schema of its arguments; with `strict` every keyword of
    it must be enforced. Where the one argument is `input`, a text, `input_pattern` is a regular
    expression that all of it matches; a model is not told."""

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=_no_parameters)
    strict: bool = False
    input_pattern: str | None = None

    @property
    def held_to(self) -> Mapping[str, object]:
        """The schema that arguments are held to."""
        if self.input_pattern is None:
            return self.parameters
        text = {"type": "string", "pattern": f"^(?:{self.input_pattern})$"}
        return {**self.parameters, "properties": {"input": text}, "additionalProperties": False}

    def as_openai(self) -> dict[str, object]:
        """The description that templates read."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


@frozen
class ToolChoice:
    """Whether tools may or must be called. `names`, where not None, are those that may be."""

    mode: Literal["none", "auto", "required"] = "auto"
    names: tuple[str, ...] | None = None

    def offered(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """The tools that the model shall know of: all, as the prompt stays the same then, or none.

        Which of them it may call is for a constraint."""
        return () if self.mode == "none" else tuple(tools)

    def callable(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """The tools that may be called."""
        names = self.names
        return tuple(tool for tool in self.offered(tools) if names is None or tool.name in names)


def tools_of(descriptions: object, name: str = "tools") -> tuple[Tool, ...]:
    """The tools a request describes in OpenAI's shape, or with `function`'s fields directly.

    Absent and null descriptions and parameters are accepted. Raises InvalidRequestError for what
    is no tool, and for two of one name; `name` is what the list is called.
    """
    if descriptions is None:
        return ()
    if not isinstance(descriptions, Sequence) or isinstance(descriptions, str):
        raise InvalidRequestError(name, descriptions, "a list of tool descriptions")
    items = cast("Sequence[object]", descriptions)
    tools = tuple(_tool(f"{name}[{index}]", item) for index, item in enumerate(items))
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in names:
            raise InvalidRequestError(f"{name}[{index}].name", tool.name, "a name of its own")
        names.add(tool.name)
    return tools


def _tool(where: str, description: object) -> Tool:
    if isinstance(description, Tool):
        return description
    if not isinstance(description, Mapping):
        raise InvalidRequestError(where, description, "an object")
    fields = _fields(plain_data(where, cast(object, description)))
    if fields.get("type", "function") != "function":
        raise InvalidRequestError(f"{where}.type", fields["type"], '"function"')
    function = fields.get("function", fields)
    if not isinstance(function, dict):
        raise InvalidRequestError(f"{where}.function", function, "an object")
    function = cast("dict[str, object]", function)
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidRequestError(f"{where}.function.name", name, "a tool's name")
    text = function.get("description")
    strict = function.get("strict", fields.get("strict"))
    schema = object_schema(f"{where}.function.parameters", function.get("parameters"))
    return Tool(name, text if isinstance(text, str) else "", schema, strict is True)


def object_schema(where: str, schema: object) -> dict[str, object]:
    """A tool's parameters as a JSON schema of an object, whatever was left out of it."""
    if schema is None or schema == {}:
        return _no_parameters()
    if not isinstance(schema, dict):
        raise InvalidRequestError(where, schema, "a JSON schema of an object")
    fields = cast("dict[str, object]", schema)
    if fields.get("type") is None and not {"anyOf", "oneOf", "allOf", "$ref"} & set(fields):
        fields = {"type": "object", **{k: v for k, v in fields.items() if k != "type"}}
    if fields.get("type") == "object" and fields.get("properties") is None:
        fields = {**fields, "properties": dict[str, object]()}
    return fields


_MODES: Mapping[object, Literal["none", "auto", "required"]] = {
    "none": "none",
    "auto": "auto",
    "required": "required",
    "any": "required",
}


def tool_choice_of(choice: object, tools: Sequence[Tool]) -> ToolChoice:
    """A choice as a word, as OpenAI's object forms, or as a ToolChoice; None, or without tools, is
    "auto". Raises InvalidRequestError for other things, and for names that no tool has."""
    if isinstance(choice, ToolChoice):
        found = choice
    elif choice is None or not tools:
        return ToolChoice()
    elif isinstance(choice, str) and choice in _MODES:
        found = ToolChoice(_MODES[choice])
    elif isinstance(choice, Mapping):
        found = _choice_of(cast("Mapping[str, object]", choice))
    else:
        raise InvalidRequestError("tool_choice", choice, f"one of {', '.join(map(str, _MODES))}")
    known = {tool.name for tool in tools}
    for name in found.names or ():
        if name not in known:
            allowed = f"one of the tools {', '.join(sorted(known))}"
            raise InvalidRequestError("tool_choice", name, allowed)
    return found


def _choice_of(choice: Mapping[str, object]) -> ToolChoice:
    kind = choice.get("type")
    if kind in _MODES:
        return ToolChoice(_MODES[kind])
    if kind != "allowed_tools":
        return ToolChoice("required", (_name_in(choice),))
    allowed = _fields(choice.get("allowed_tools")) or choice
    listed = allowed.get("tools")
    if not isinstance(listed, list):
        raise InvalidRequestError("tool_choice.tools", listed, "a list of tools")
    names = tuple(_name_in(item) for item in cast("list[object]", listed))
    return ToolChoice("required" if allowed.get("mode") == "required" else "auto", names)


def _name_in(choice: object) -> str:
    fields = _fields(choice)
    name = (_fields(fields.get("function")) or fields).get("name")
    if not isinstance(name, str):
        raise InvalidRequestError("tool_choice", choice, "an object with a tool's name")
    return name


def _fields(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
