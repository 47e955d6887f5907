"""Parts of Anthropic's answers: content blocks, usage, and why an answer ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from edgeserve.server.turn import ChoiceAnswer, FinishReason
from edgeserve.types import RequestOutput

SIGNATURE = "edgeserve"
"""Of a thinking block: clients keep it, and some drop thoughts that have none. Nobody checks it."""

_STOP_REASONS: Mapping[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}


def usage_of(num_prompt: int, num_cached: int, num_output: int) -> dict[str, object]:
    """Counts in tokens; what was read from the cache is no input here."""
    return {
        "input_tokens": num_prompt - num_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": num_cached,
        "output_tokens": num_output,
    }


def stop_of(finish_reason: FinishReason, output: RequestOutput) -> dict[str, object]:
    """`stop_reason`, and the stop sequence that was met."""
    met = output.outputs[0].stop_reason
    if finish_reason == "stop" and isinstance(met, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": met}
    return {"stop_reason": _STOP_REASONS[finish_reason], "stop_sequence": None}


def blocks_of(choice: ChoiceAnswer) -> Sequence[dict[str, object]]:
    blocks: list[dict[str, object]] = []
    if choice.reasoning:
        thought = {"thinking": choice.reasoning, "signature": SIGNATURE}
        blocks.append({"type": "thinking", **thought})
    if choice.text:
        blocks.append({"type": "text", "text": choice.text})
    for call in choice.tool_calls:
        blocks.append(tool_use(call.call_id, call.name, _input(call.arguments)))
    return blocks


def tool_use(call_id: str, name: str, arguments: Mapping[str, object]) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _input(arguments: str) -> dict[str, object]:
    """A call's arguments as a value; none of a call that was cut short, which is no JSON."""
    try:
        return msgspec.json.decode(arguments, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return {}
