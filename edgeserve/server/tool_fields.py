"""OpenAI's tools and the choice among them, read into neutral values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeserve.errors import InvalidRequestError
from edgeserve.server.fields import Fields, fields_of
from edgeserve.server.turn import Tool, ToolChoice
from edgeserve.text.tool_descriptions import tools_of as described_tools

_CHOICES: Mapping[str, ToolChoice] = {
    "none": ToolChoice("none"),
    "auto": ToolChoice("auto"),
    "required": ToolChoice("required"),
    "any": ToolChoice("required"),
}


def tools_of(body: Fields) -> tuple[Tool, ...]:
    """`tools`, or the legacy `functions`."""
    name = "tools" if body.items("tools") else "functions"
    return described_tools(body.items(name), name)


def tool_choice_of(body: Fields, tools: Sequence[Tool]) -> ToolChoice:
    """`tool_choice`, or the legacy `function_call`. Without tools there is none."""
    name = "tool_choice" if body.has("tool_choice") else "function_call"
    value = body.raw(name)
    if not tools or value is None:
        return ToolChoice()
    if isinstance(value, str):
        if value not in _CHOICES:
            raise InvalidRequestError(name, value, f"one of {', '.join(_CHOICES)}, or an object")
        return _CHOICES[value]
    return _checked(_chosen(fields_of(value, name)), tools, name)


def _chosen(choice: Fields) -> ToolChoice:
    """An object: OpenAI's, Responses', `allowed_tools`, or the legacy {"name": …}."""
    kind = choice.raw("type")
    if kind == "allowed_tools":
        allowed = choice.object("allowed_tools") or choice
        mode = allowed.one_of("mode", ("auto", "required")) or "auto"
        names = [_name(tool) for tool in allowed.objects("tools") or ()]
        return ToolChoice("required" if mode == "required" else "auto", tuple(names))
    if isinstance(kind, str) and kind in _CHOICES:
        return _CHOICES[kind]
    return ToolChoice("required", (_name(choice),))


def _name(choice: Fields) -> str:
    holder = choice.object("function") or choice
    name = holder.text("name")
    if not name:
        raise InvalidRequestError(holder.path("name"), name, "a tool's name")
    return name


def _checked(choice: ToolChoice, tools: Sequence[Tool], field: str) -> ToolChoice:
    known = {tool.name for tool in tools}
    for name in choice.names or ():
        if name not in known:
            raise InvalidRequestError(field, name, f"one of the tools {', '.join(sorted(known))}")
    return choice
