"""The tools of OpenAI's Responses and the choice among them, read into neutral values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgeserve.errors import ConstraintError, InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.server.fields import Fields, fields_of
from edgeserve.server.turn import Tool, ToolChoice
from edgeserve.text.tool_descriptions import tools_of as described_tools

_FREE_TEXT: Mapping[str, object] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
"""The arguments of a custom tool, as a model is told of them."""


@frozen
class ResponsesTools:
    """`custom` are the names of tools whose one argument is free text, and `spaces` the namespaces
    of those that have one, with their names there: a model is told of both as one name."""

    tools: tuple[Tool, ...]
    custom: frozenset[str]
    spaces: Mapping[str, tuple[str, str]]
    choice: ToolChoice
    adjusted: tuple[str, ...] = ()


def full_name(namespace: str, name: str) -> str:
    return f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}__{name}"


def responses_tools(body: Fields) -> ResponsesTools:
    """Tools that would run at OpenAI's are left out, and listed as ignored."""
    reader = _Tools(body)
    given = body.objects("tools") or ()
    for tool in given:
        if tool.raw("type") == "namespace":
            reader.take_namespace(tool)
        else:
            reader.take(tool)
    tools = described_tools(reader.found)
    choice = _choice(body, tools) if given else _no_choice(body)
    custom, adjusted = frozenset(reader.custom), tuple(reader.adjusted)
    return ResponsesTools(tools, custom, reader.spaces, choice, adjusted)


class _Tools:
    """Tools as they are read."""

    def __init__(self, body: Fields) -> None:
        self._body = body
        self.found: list[Tool] = []
        self.custom: set[str] = set()
        self.spaces: dict[str, tuple[str, str]] = {}
        self.adjusted: list[str] = []

    def take_namespace(self, given: Fields) -> None:
        namespace = _name(given)
        for tool in given.objects("tools") or ():
            self.take(tool, namespace)

    def take(self, tool: Fields, namespace: str | None = None) -> None:
        kind = tool.text("type") or "function"
        if kind not in ("function", "custom"):
            self._body.ignore(f"{tool.path('type')} ({kind})")
            return
        described = _function(tool) if kind == "function" else _custom(tool, self.adjusted)
        if namespace is not None:
            short = described.name
            described = replace(described, name=full_name(namespace, short))
            self.spaces[described.name] = (namespace, short)
        if kind == "custom":
            self.custom.add(described.name)
        self.found.append(described)


def _function(tool: Fields) -> Tool:
    described = {
        "name": _name(tool),
        "description": tool.text("description"),
        "parameters": tool.mapping("parameters"),
        "strict": tool.flag("strict"),
    }
    return described_tools([described])[0]


def _custom(tool: Fields, adjusted: list[str]) -> Tool:
    description = tool.text("description") or ""
    form = tool.object("format")
    pattern = None
    if form is not None and form.one_of("type", ("text", "grammar")) == "grammar":
        syntax = form.one_of("syntax", ("lark", "regex")) or "lark"
        definition = form.text("definition") or ""
        description += f"\nThe input follows this {syntax} grammar:\n{definition}"
        from edgeserve.text.lark_pattern import pattern_of_lark  # its tables take 4 ms to build

        try:
            pattern = definition if syntax == "regex" else pattern_of_lark(definition)
        except ConstraintError as error:
            where = form.path("definition")
            adjusted.append(f"{where}: told to the model, not enforced: {error.reason}")
    return Tool(_name(tool), description, _FREE_TEXT, input_pattern=pattern)


def _name(tool: Fields) -> str:
    name = tool.text("name")
    if not name or not name.strip():
        raise InvalidRequestError(tool.path("name"), name, "a tool's name")
    return name


def _no_choice(body: Fields) -> ToolChoice:
    body.raw("tool_choice")  # it was understood: there is nothing to choose from
    return ToolChoice()


def _choice(body: Fields, tools: Sequence[Tool]) -> ToolChoice:
    value = body.raw("tool_choice")
    is_mode = value is None or isinstance(value, str)
    choice = _mode(value) if is_mode else _named(fields_of(value, "tool_choice"))
    known = [tool.name for tool in tools]
    for name in choice.names or ():
        if name not in known:
            raise InvalidRequestError("tool_choice", name, f"one of the tools {', '.join(known)}")
    if choice.mode == "required" and (not tools or choice.names == ()):
        raise InvalidRequestError("tool_choice", value, "auto: none of these tools can run here")
    return choice


def _mode(value: object) -> ToolChoice:
    match value:
        case None | "auto":
            return ToolChoice()
        case "none":
            return ToolChoice("none")
        case "required" | "any":
            return ToolChoice("required")
        case _:
            raise InvalidRequestError("tool_choice", value, "none, auto, required or an object")


def _named(choice: Fields) -> ToolChoice:
    kind = choice.raw("type")
    if kind == "allowed_tools":
        holder = choice.object("allowed_tools") or choice
        mode = holder.one_of("mode", ("auto", "required")) or "auto"
        allowed = holder.objects("tools") or ()
        own = [tool for tool in allowed if tool.raw("type") in (None, "function", "custom")]
        names = tuple(_name(tool.object("function") or tool) for tool in own)
        return ToolChoice("required" if mode == "required" else "auto", names)
    if kind in ("function", "custom"):
        return ToolChoice("required", (_name(choice.object("function") or choice),))
    if kind in ("none", "auto", "required", "any"):
        return _mode(kind)
    raise InvalidRequestError(
        choice.path("type"), kind, "function or custom: other tools do not run here"
    )
