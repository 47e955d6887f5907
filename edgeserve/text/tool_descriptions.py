"""The tools of a request: their names, and the schemas of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import cast

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.text.template_messages import plain_data


def _no_parameters() -> dict[str, object]:
    return {"type": "object", "properties": {}}


@frozen
class Tool:
    """One tool. `parameters` is the JSON schema of its arguments; with `strict` every keyword of
    it must be enforced."""

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=_no_parameters)
    strict: bool = False

    def as_openai(self) -> dict[str, object]:
        """The description that templates read."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


def tools_of(descriptions: object) -> tuple[Tool, ...]:
    """The tools a request describes in OpenAI's shape, or with `function`'s fields directly.

    Absent and null descriptions and parameters are accepted. Raises InvalidRequestError for what
    is no tool, and for two of one name.
    """
    if descriptions is None:
        return ()
    if not isinstance(descriptions, Sequence) or isinstance(descriptions, str):
        raise InvalidRequestError("tools", descriptions, "a list of tool descriptions")
    items = cast("Sequence[object]", descriptions)
    tools = tuple(_tool(f"tools[{index}]", item) for index, item in enumerate(items))
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in names:
            raise InvalidRequestError(f"tools[{index}].name", tool.name, "a name of its own")
        names.add(tool.name)
    return tools


def _tool(where: str, description: object) -> Tool:
    if isinstance(description, Tool):
        return description
    if not isinstance(description, Mapping):
        raise InvalidRequestError(where, description, "an object")
    fields = cast("dict[str, object]", plain_data(where, cast(object, description)))
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
    schema = _parameters(f"{where}.function.parameters", function.get("parameters"))
    return Tool(name, text if isinstance(text, str) else "", schema, strict is True)


def _parameters(where: str, schema: object) -> dict[str, object]:
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
