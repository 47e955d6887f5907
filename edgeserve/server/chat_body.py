"""The body of `/v1/chat/completions`, read into a ChatTask and what else its answer depends on."""

from __future__ import annotations

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.server.constraint_fields import constraint_of
from edgeserve.server.fields import Fields
from edgeserve.server.messages import conversation_of
from edgeserve.server.sampling import max_tokens_of, params_with, sampling_fields_of
from edgeserve.server.tool_fields import tool_choice_of, tools_of
from edgeserve.server.turn import ChatTask, Thinking

MAX_TOP_LOGPROBS = 20
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")


@frozen
class ChatBody:
    """`num_top_logprobs` None: no logprobs are wanted."""

    task: ChatTask
    streams: bool
    includes_usage: bool
    num_top_logprobs: int | None


def chat_body(body: Fields, *, vocab_size: int) -> ChatBody:
    """Raises InvalidRequestError naming the field."""
    conversation = conversation_of(body.raw("messages"))
    sampling = sampling_fields_of(body, vocab_size=vocab_size)
    num_top = _num_top_logprobs(body)
    max_tokens = max_tokens_of(body, "max_completion_tokens", "max_tokens")
    tools = tools_of(body)
    wish = constraint_of(body)
    parallel = body.flag("parallel_tool_calls")
    task = ChatTask(
        messages=conversation.messages,
        params=params_with(
            sampling,
            max_tokens=max_tokens,
            logprobs=num_top,
            constraint=None if wish is None else wish.constraint,
        ),
        tools=tools,
        tool_choice=tool_choice_of(body, tools),
        parallel_tool_calls=parallel is not False,
        constraint_field=None if wish is None else wish.where,
        thinking=_thinking(body),
        template_variables=body.mapping("chat_template_kwargs"),
        continues=body.flag("continue_final_message"),
        adds_generation_prompt=body.flag("add_generation_prompt"),
        wants_prompt_progress=body.flag("return_progress") or False,
        priority=body.integer("priority") or 0,
        adjusted=conversation.adjusted,
    )
    options = body.object("stream_options")
    includes_usage = options is not None and options.flag("include_usage") is True
    return ChatBody(task, body.flag("stream") or False, includes_usage, num_top)


def _num_top_logprobs(body: Fields) -> int | None:
    """None without `logprobs: true`, where top_logprobs means nothing."""
    wants = body.flag("logprobs")
    if not wants:
        return None
    return body.integer("top_logprobs", 0, MAX_TOP_LOGPROBS) or 0


def _thinking(body: Fields) -> Thinking:
    effort = body.raw("reasoning_effort")
    if effort is not None and effort not in EFFORTS:
        raise InvalidRequestError("reasoning_effort", effort, f"one of {', '.join(EFFORTS)}")
    budget = body.integer("reasoning_budget", -1)
    off = effort == "none" or budget == 0
    return Thinking(
        enabled=False if off else None,
        effort=None if effort in (None, "none") else str(effort),
        budget=None if budget in (None, -1) else budget,
    )
