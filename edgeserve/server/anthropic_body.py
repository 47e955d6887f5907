"""The body of `/v1/messages`, read into a ChatTask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.server.anthropic_blocks import conversation_of
from edgeserve.server.constraint_fields import Wish
from edgeserve.server.fields import Fields
from edgeserve.server.sampling import MAX_STOPS, max_tokens_of, params_with, sampling_fields_of
from edgeserve.server.turn import ChatTask, Thinking, Tool, ToolChoice
from edgeserve.text.tool_descriptions import tools_of as described_tools
from edgeserve.types import Constraint

_MODES: Mapping[str, Literal["none", "auto", "required"]] = {
    "none": "none",
    "auto": "auto",
    "any": "required",
    "tool": "required",
}
_EFFORTS = ("low", "medium", "high", "xhigh", "max")


@frozen
class AnthropicBody:
    """What is asked."""

    task: ChatTask
    streams: bool


def anthropic_body(body: Fields, *, vocab_size: int) -> AnthropicBody:
    """Raises InvalidRequestError naming the field."""
    conversation = conversation_of(body)
    streams = body.flag("stream") or False
    sampling = sampling_fields_of(body, vocab_size=vocab_size)
    if sampling.pop("n", 1) != 1:
        body.ignore("n")
    stops = _stops(body)
    if stops:
        sampling["stop"] = stops
    tools = _tools(body)
    choice, parallel = _choice(body, tools)
    effort, wish = _output_config(body)
    task = ChatTask(
        messages=conversation.messages,
        params=params_with(
            sampling,
            max_tokens=max_tokens_of(body, "max_tokens"),
            constraint=None if wish is None else wish.constraint,
        ),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        constraint_field=None if wish is None else wish.where,
        thinking=_thinking(body, effort),
        template_variables=body.mapping("chat_template_kwargs"),
        wants_prompt_progress=streams,
        adjusted=conversation.adjusted,
    )
    return AnthropicBody(task, streams)


def _stops(body: Fields) -> Sequence[str]:
    stops: list[str] = []
    given = body.items("stop_sequences") or ()
    if len(given) > MAX_STOPS:
        raise InvalidRequestError("stop_sequences", len(given), f"at most {MAX_STOPS} strings")
    for at, item in enumerate(given):
        if not isinstance(item, str):
            raise InvalidRequestError(f"stop_sequences[{at}]", item, "a string")
        if not item:
            body.ignore(f"stop_sequences[{at}]")
        else:
            stops.append(item)
    return stops


def _tools(body: Fields) -> tuple[Tool, ...]:
    """Those that the client runs by itself from a schema; others are left out, and listed."""
    described: list[Tool] = []
    for at, tool in enumerate(body.objects("tools") or ()):
        kind = tool.text("type")
        if kind not in (None, "custom") and not tool.has("input_schema"):
            body.ignore(f"tools[{at}] ({kind})")
            continue
        name = tool.text("name")
        if not name or not name.strip():
            raise InvalidRequestError(tool.path("name"), name, "a tool's name")
        described += described_tools([_as_function(tool, name)])
    return described_tools(described)


def _as_function(tool: Fields, name: str) -> Mapping[str, object]:
    return {
        "name": name,
        "description": tool.text("description"),
        "parameters": tool.mapping("input_schema"),
        "strict": tool.flag("strict"),
    }


def _choice(body: Fields, tools: Sequence[Tool]) -> tuple[ToolChoice, bool]:
    """The choice, and whether several calls may be made at once."""
    choice = body.object("tool_choice")
    if choice is None:
        return ToolChoice(), True
    kind = choice.one_of("type", tuple(_MODES)) or "auto"
    parallel = choice.flag("disable_parallel_tool_use") is not True
    name = choice.text("name")
    if not tools and not body.items("tools"):
        return ToolChoice(), parallel
    if kind == "tool":
        known = [tool.name for tool in tools]
        if name is None or name not in known:
            allowed = f"one of the tools {', '.join(sorted(known))}"
            raise InvalidRequestError(choice.path("name"), name, allowed)
        return ToolChoice("required", (name,)), parallel
    if not tools and kind == "any":
        raise InvalidRequestError(
            choice.path("type"), kind, "auto: none of these tools can run here"
        )
    return ToolChoice(_MODES[kind]), parallel


def _output_config(body: Fields) -> tuple[str | None, Wish | None]:
    """How hard to try, and the schema of the answer; `output_format` is its older name."""
    config = body.object("output_config")
    effort = None if config is None else config.one_of("effort", _EFFORTS)
    form = None if config is None else config.object("format")
    form = form or body.object("output_format")
    if form is None:
        return effort, None
    form.one_of("type", ("json_schema",))
    schema = form.mapping("schema")
    if schema is None:
        raise InvalidRequestError(form.path("schema"), None, "a JSON schema")
    return effort, Wish(Constraint.json_schema(schema), form.path("schema"))


def _thinking(body: Fields, effort: str | None) -> Thinking:
    """Off where it was not asked for, as Anthropic has it; adaptive leaves it to the model."""
    thinking = body.object("thinking")
    kind = None if thinking is None else thinking.one_of("type", _THINKING)
    if thinking is None or kind in (None, "disabled"):
        return Thinking(enabled=False, effort=effort)
    budget = thinking.integer("budget_tokens", 0)
    return Thinking(True if kind == "enabled" else None, effort, budget)


_THINKING = ("enabled", "disabled", "adaptive")
