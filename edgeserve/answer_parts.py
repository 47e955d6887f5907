"""What an answer is made of, piece by piece: reasoning, text, calls of tools.

Values that cross layers; `types` gives them to everybody.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgeserve.frozen import frozen


@frozen
class ReasoningDelta:
    """More of what the model thinks before it answers."""

    text: str


@frozen
class ContentDelta:
    """More of the answer's text."""

    text: str


@frozen
class ToolCallBegun:
    """The answer calls a tool; `index` counts the calls of one answer from 0."""

    index: int
    name: str


@frozen
class ToolArguments:
    """More of the JSON text of a call's arguments. All pieces together are one object, unless the
    answer was cut, or the model wrote something else."""

    index: int
    text: str


@frozen
class ToolCallEnded:
    """A call's arguments are whole. A call that was cut never ends."""

    index: int


AnswerPart = ReasoningDelta | ContentDelta | ToolCallBegun | ToolArguments | ToolCallEnded


@frozen
class ToolCall:
    """A call as a whole. `arguments` is JSON text; `complete` is false where the answer was cut."""

    name: str
    arguments: str
    complete: bool = True


def calls_in(parts: Iterable[AnswerPart]) -> tuple[ToolCall, ...]:
    """The calls that an answer's parts add up to."""
    names: dict[int, str] = {}
    texts: dict[int, list[str]] = {}
    ended: set[int] = set()
    for part in parts:
        match part:
            case ToolCallBegun():
                names[part.index] = part.name
                texts[part.index] = []
            case ToolArguments():
                texts[part.index].append(part.text)
            case ToolCallEnded():
                ended.add(part.index)
            case _:
                pass
    return tuple(
        ToolCall(name, "".join(texts[index]), index in ended) for index, name in names.items()
    )
