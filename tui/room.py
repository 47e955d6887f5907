"""Room in the context: whether a question fits, and which turns would have to go so that it does.

Knows sizes only; that it is the user who decides is conversation.py's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from edgeserve.chats.records import Turn
from edgeserve.frozen import frozen

_LEAST_ANSWER_TOKENS = 256
_FREED_SHARE = 4
"""What is dropped leaves a quarter of the context free, or the next question would ask again."""


@frozen
class Room:
    """A question that does not fit: it and the shortest useful answer need `needed_tokens` of
    `context_tokens`. Without the turns `oldest` it fits; none where even that is not enough."""

    needed_tokens: int
    context_tokens: int
    oldest: tuple[str, ...]


def least_answer(context_tokens: int, max_tokens: int | None) -> int:
    """How many tokens an answer wants to have at least before a context counts as full."""
    least = min(_LEAST_ANSWER_TOKENS, context_tokens // 8)
    return least if max_tokens is None else min(least, max_tokens)


async def room_for(
    turns: Sequence[Turn],
    dropped: Sequence[str],
    context_tokens: int,
    answer_tokens: int,
    size_without: Callable[[Sequence[str]], Awaitable[int | None]],
) -> Room | None:
    """None where the question at the end of `turns` fits, or nobody can tell.

    `size_without` counts its tokens without those turns. Whole exchanges are dropped, a question
    with its answers, by halving the interval: some ten counts for a long chat.
    """
    tokens = await size_without(dropped)
    if tokens is None or tokens + answer_tokens <= context_tokens:
        return None
    wanted = context_tokens - max(answer_tokens, context_tokens // _FREED_SHARE)
    groups = _exchanges(turns, dropped)
    fitting = await _fewest(groups, dropped, wanted, size_without)
    if fitting is None:  # so long a question that a quarter cannot stay free
        fitting = await _fewest(groups, dropped, context_tokens - answer_tokens, size_without)
    return Room(tokens + answer_tokens, context_tokens, fitting or ())


def _exchanges(turns: Sequence[Turn], dropped: Sequence[str]) -> list[tuple[str, ...]]:
    """The turns that may go, oldest first: all but the last question."""
    groups: list[list[str]] = []
    for turn in turns[:-1]:
        if turn.id in dropped:
            continue
        if turn.role == "user" or not groups:
            groups.append([])
        groups[-1].append(turn.id)
    return [tuple(group) for group in groups]


async def _fewest(
    groups: Sequence[tuple[str, ...]],
    dropped: Sequence[str],
    wanted: int,
    size_without: Callable[[Sequence[str]], Awaitable[int | None]],
) -> tuple[str, ...] | None:
    def without(count: int) -> tuple[str, ...]:
        return (*dropped, *(turn_id for group in groups[:count] for turn_id in group))

    least, most = 1, len(groups)
    if not groups or (await size_without(without(most)) or 0) > wanted:
        return None
    while least < most:
        middle = (least + most) // 2
        if (await size_without(without(middle)) or 0) <= wanted:
            most = middle
        else:
            least = middle + 1
    return without(least)
