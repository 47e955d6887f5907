"""A turn that plays a script: tools and thoughts, which a tiny model never comes to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from edgeserve.server import exchange
from edgeserve.server.turn import (
    ChatTask,
    ChoiceFinished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolArguments,
    ToolCallBegun,
    TurnEvent,
    TurnFinished,
)
from edgeserve.types import CompletionOutput, RequestOutput, Timings, Usage

THOUGHT: list[TurnEvent] = [ReasoningDelta(0, "let me "), ReasoningDelta(0, "see")]
SAID: list[TurnEvent] = [TextDelta(0, "it "), TextDelta(0, "rains")]
CALLED: list[TurnEvent] = [
    ToolCallBegun(0, 0, "call_1", "weather"),
    ToolArguments(0, 0, '{"city": '),
    ToolArguments(0, 0, '"Köln"}'),
    ToolCallBegun(0, 1, "call_2", "clock"),
    ToolArguments(0, 1, "{}"),
]


def ended(
    reason: FinishReason, *, stop: str | None = None, reasoning_tokens: int = 0
) -> list[TurnEvent]:
    """The end of a turn of 10 prompt tokens, 4 of them cached, and 6 of output."""
    kept = "length" if reason == "length" else "stop"
    choice = CompletionOutput(0, "", (1,) * 6, kept, stop_reason=stop)
    usage = Usage(prompt_tokens=10, completion_tokens=6, cached_tokens=4)
    output = RequestOutput("request-1", None, (1,) * 10, (choice,), usage, Timings(0, 1, 2, 3, 4))
    return [ChoiceFinished(0, reason), TurnFinished(output, reasoning_tokens)]


class ScriptedTurn:
    """A Turn. An exception in the script is raised where it stands, a number is silence, in s."""

    adjusted: tuple[str, ...] = ()
    relaxed: tuple[str, ...] = ()
    num_prompt_tokens = 10
    output = None

    def __init__(self, script: Sequence[TurnEvent | Exception | float]) -> None:
        self._script = script

    async def __aiter__(self) -> AsyncIterator[TurnEvent]:
        for event in self._script:
            if isinstance(event, Exception):
                raise event
            if isinstance(event, float):
                await asyncio.sleep(event)
            else:
                yield event

    async def aclose(self) -> None: ...


@contextmanager
def scripted(*script: Sequence[TurnEvent | Exception | float]) -> Iterator[list[ChatTask]]:
    """Servers of this process play the script for every task; the tasks they were given."""
    asked: list[ChatTask] = []

    async def open_turn(_server: Any, _served: Any, task: ChatTask) -> ScriptedTurn:
        asked.append(task)
        return ScriptedTurn([event for part in script for event in part])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "open_turn", open_turn)
        yield asked


def named_events(body: str) -> list[tuple[str, str]]:
    """(name, data) of a stream's events; comments are none."""
    found: list[tuple[str, str]] = []
    for block in body.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in lines:
            found.append((lines.get("event", ""), lines["data"]))
    return found
