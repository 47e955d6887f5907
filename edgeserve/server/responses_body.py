"""The body of `/v1/responses`, read into a ChatTask and what else its answer depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.server.chat_body import EFFORTS, MAX_TOP_LOGPROBS
from edgeserve.server.constraint_fields import Wish
from edgeserve.server.fields import Fields
from edgeserve.server.responses_items import conversation_of
from edgeserve.server.responses_store import ResponseStore
from edgeserve.server.responses_tools import ResponsesTools, responses_tools
from edgeserve.server.sampling import max_tokens_of, params_with, sampling_fields_of
from edgeserve.server.turn import ChatTask, Thinking
from edgeserve.types import Constraint

_SEALED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"
_NOT_HERE = {
    "background": "false: answers are made while the client waits",
    "conversation": "left out: use previous_response_id, or send the whole history",
    "prompt": "left out: no prompts are kept here",
}


@frozen
class ResponsesBody:
    """`items` is the whole conversation as it was sent, earlier responses included. `echo` is what
    a response repeats of its request."""

    task: ChatTask
    streams: bool
    items: tuple[object, ...]
    echo: Mapping[str, object]
    tools: ResponsesTools
    stores: bool
    seals: bool
    num_top_logprobs: int | None


def responses_body(body: Fields, store: ResponseStore, *, vocab_size: int) -> ResponsesBody:
    """Raises InvalidRequestError naming the field, and ApiError for a response that is not kept."""
    for name, allowed in _NOT_HERE.items():
        if body.raw(name):
            raise InvalidRequestError(name, body.raw(name), allowed)
    items = _items(body, store)
    conversation = conversation_of(body.text("instructions"), items)
    tools = responses_tools(body)
    sampling = sampling_fields_of(body, vocab_size=vocab_size)
    if sampling.pop("n", 1) != 1:
        body.ignore("n")
    include = _include(body)
    num_top = body.integer("top_logprobs", 0, MAX_TOP_LOGPROBS)
    num_top = (num_top or 0) if _LOGPROBS in include else (num_top or None)
    max_tokens = max_tokens_of(body, "max_output_tokens")
    wish = _wish(body)
    task = ChatTask(
        messages=conversation.messages,
        params=params_with(
            sampling,
            max_tokens=max_tokens,
            logprobs=num_top,
            constraint=None if wish is None else wish.constraint,
        ),
        tools=tools.tools,
        tool_choice=tools.choice,
        parallel_tool_calls=body.flag("parallel_tool_calls") is not False,
        constraint_field=None if wish is None else wish.where,
        thinking=_thinking(body),
        template_variables=body.mapping("chat_template_kwargs"),
        adjusted=conversation.adjusted + tools.adjusted,
    )
    stores = body.flag("store") is not False
    streams = body.flag("stream") or False
    body.raw("stream_options")
    echo = _echo(body, stores)
    seals = _SEALED in include
    return ResponsesBody(task, streams, items, echo, tools, stores, seals, num_top)


def _items(body: Fields, store: ResponseStore) -> tuple[object, ...]:
    """Of the response before and of this request; references stand for what is kept."""
    value = body.raw("input")
    previous = body.text("previous_response_id")
    earlier = () if previous is None else store.get(previous, "previous_response_id").items
    if isinstance(value, str):
        own: Sequence[object] = ({"role": "user", "content": value},)
    else:
        own = body.items("input") or ()
    found = [*earlier, *(_resolved(item, store) for item in own)]
    if not found:
        raise InvalidRequestError("input", value, "a string, or a list of at least one item")
    return tuple(found)


def _resolved(item: object, store: ResponseStore) -> object:
    if not isinstance(item, dict):
        return item
    fields = cast("dict[str, object]", item)
    item_id = fields.get("id")
    is_reference = fields.get("type") == "item_reference" or set(fields) == {"id"}
    return store.item(item_id) if is_reference and isinstance(item_id, str) else fields


def _include(body: Fields) -> frozenset[str]:
    found: set[str] = set()
    for at, name in enumerate(body.items("include") or ()):
        if not isinstance(name, str):
            raise InvalidRequestError(f"include[{at}]", name, "a string")
        found.add(name)
        if name not in (_SEALED, _LOGPROBS):
            body.ignore(f"include[{at}] ({name})")
    return frozenset(found)


def _wish(body: Fields) -> Wish | None:
    text = body.object("text")
    if text is None:
        return None
    if text.has("verbosity"):
        body.ignore("text.verbosity")
    form = text.object("format")
    kind = None if form is None else form.one_of("type", ("text", "json_object", "json_schema"))
    if form is None or kind in (None, "text"):
        return None
    if kind == "json_object":
        return Wish(Constraint.json_object(), form.path("type"))
    schema = form.mapping("schema")
    if schema is None:
        raise InvalidRequestError(form.path("schema"), None, "a JSON schema")
    return Wish(Constraint.json_schema(schema), form.path("schema"))


def _thinking(body: Fields) -> Thinking:
    reasoning = body.object("reasoning")
    if reasoning is None:
        return Thinking()
    for name in ("summary", "generate_summary"):
        if reasoning.has(name):
            body.ignore(reasoning.path(name))
    effort = reasoning.one_of("effort", EFFORTS)
    return Thinking(enabled=False) if effort == "none" else Thinking(effort=effort)


def _echo(body: Fields, stores: bool) -> Mapping[str, object]:
    return {
        "instructions": body.raw("instructions"),
        "max_output_tokens": body.raw("max_output_tokens"),
        "metadata": body.mapping("metadata") or {},
        "parallel_tool_calls": body.flag("parallel_tool_calls") is not False,
        "previous_response_id": body.raw("previous_response_id"),
        "reasoning": {"effort": None, "summary": None, **(body.mapping("reasoning") or {})},
        "store": stores,
        "temperature": body.raw("temperature"),
        "text": {"format": {"type": "text"}, **(body.mapping("text") or {})},
        "tool_choice": body.raw("tool_choice") or "auto",
        "tools": body.items("tools") or [],
        "top_logprobs": body.raw("top_logprobs") or 0,
        "top_p": body.raw("top_p"),
        "truncation": "disabled",
    }
