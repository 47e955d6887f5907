"""Conversations in an order that a chat template takes: what it refuses, or leaves out, is said
another way, where it stood.

Asks the template by letting it render small conversations. A prefix of a conversation is always
rendered as before, or agents would pay for their whole history at every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import cast

from edgeserve.frozen import frozen
from edgeserve.types import Message

Preview = Callable[[Sequence[Message]], str | None]
"""A conversation as the template renders it, without a generation prompt; None if it refuses."""


@frozen
class FittedMessages:
    """Messages as the template takes them, and how they differ from what was given."""

    messages: tuple[Message, ...]
    adjusted: tuple[str, ...]


class MessageOrder:
    """What one template takes. Thread-safe; asks it when it is first needed."""

    def __init__(self, preview: Preview) -> None:
        self._preview = preview

    def fitted(self, messages: Sequence[Message]) -> FittedMessages:
        """Every message is there, in its place. Messages that the template takes stay as given."""
        chat = [_Placed(cast("Mapping[str, object]", m), at) for at, m in enumerate(messages)]
        adjusted: list[str] = []
        num_leading = next((at for at, m in enumerate(chat) if m.role != "system"), len(chat))
        chat = self._leading(chat, num_leading, adjusted)
        if not self._takes_later_system:
            chat = _with_system_in_turns(chat, adjusted)
        chat = self._merged(chat, adjusted)
        return FittedMessages(tuple(cast(Message, m.message) for m in chat), tuple(adjusted))

    def _leading(self, chat: list[_Placed], num_leading: int, adjusted: list[str]) -> list[_Placed]:
        """The system messages at the beginning: as one, or in the first user turn."""
        leading, rest = chat[:num_leading], chat[num_leading:]
        takes = self._takes_system if rest else self._takes_system_alone
        if leading and not takes:
            return _with_system_in_turns(chat, adjusted, num_kept=0)
        if len(leading) > 1 and not self._takes_two_systems:
            leading = _as_one(leading, adjusted)
        return leading + rest

    def _merged(self, chat: list[_Placed], adjusted: list[str]) -> list[_Placed]:
        found: list[_Placed] = []
        for role, run in groupby(chat, key=lambda placed: placed.role):
            alike = list(run)
            if len(alike) > 1 and not self._takes_neighbours(role):
                alike = _as_one(alike, adjusted)
            found += alike
        return found

    # --- what the template takes -----------------------------------------------------------------

    @cached_property
    def _takes_system(self) -> bool:
        return self._takes(("system", "user"))

    @cached_property
    def _takes_system_alone(self) -> bool:
        return self._takes(("system",))

    @cached_property
    def _takes_two_systems(self) -> bool:
        return self._takes(("system", "system", "user"))

    @cached_property
    def _takes_later_system(self) -> bool:
        """In the place where they stand, whoever spoke before and after."""
        roles = ("system", "user", "system", "user", "assistant", "system", "user")
        return self._takes(roles[1:]) and self._takes(roles) and self._takes((*roles, "system"))

    def _takes_neighbours(self, role: str) -> bool:
        """Results of tools always stand together, and system messages have been seen to."""
        if role == "user":
            return self._takes_two_users
        return self._takes_two_assistants if role == "assistant" else True

    @cached_property
    def _takes_two_users(self) -> bool:
        return self._takes(("user", "user")) and self._takes(("user", "assistant", "user", "user"))

    @cached_property
    def _takes_two_assistants(self) -> bool:
        return self._takes(("user", "assistant", "assistant", "user"))

    def _takes(self, roles: Sequence[str]) -> bool:
        """Whether such a conversation is rendered with all that is said, in order."""
        said = [f"edgeserve_needle_{at}" for at in range(len(roles))]
        messages: list[Message] = [
            {"role": role, "content": text} for role, text in zip(roles, said, strict=True)
        ]
        text = self._preview(messages)
        if text is None:
            return False
        places = [text.find(needle) for needle in said]
        return places[0] >= 0 and places == sorted(places) and len(set(places)) == len(places)


@frozen
class _Placed:
    """A message, and where it stood in what was given."""

    message: Mapping[str, object]
    at: int

    @property
    def role(self) -> str:
        return cast(str, self.message["role"])

    @property
    def text(self) -> str:
        content = self.message.get("content")
        if isinstance(content, list):
            parts = cast("list[Mapping[str, object]]", content)
            return "".join(str(part.get("text", "")) for part in parts)
        return content if isinstance(content, str) else ""

    def saying(self, text: str, **fields: object) -> _Placed:
        return _Placed({**self.message, **fields, "content": text}, self.at)


def _with_system_in_turns(
    chat: list[_Placed], adjusted: list[str], num_kept: int | None = None
) -> list[_Placed]:
    """System messages as text of the next user turn; of one of their own where another speaks
    next. Results of tools stay with their calls. The first `num_kept` stay (those that lead)."""
    if num_kept is None:
        num_kept = next((at for at, m in enumerate(chat) if m.role != "system"), len(chat))
    found = chat[:num_kept]
    waiting: list[_Placed] = []
    for placed in chat[num_kept:]:
        if placed.role == "system":
            waiting.append(placed)
            adjusted.append(f"messages[{placed.at}]: system, within a user turn")
        elif placed.role == "user" and waiting:
            blocks = [_block(system) for system in waiting]
            found.append(placed.saying("\n\n".join([*blocks, placed.text])))
            waiting = []
        elif placed.role == "tool":
            found.append(placed)
        else:
            found += _own_turn(waiting)
            found.append(placed)
            waiting = []
    return found + _own_turn(waiting)


def _own_turn(waiting: list[_Placed]) -> list[_Placed]:
    if not waiting:
        return []
    text = "\n\n".join(map(_block, waiting))
    return [_Placed({"role": "user", "content": text}, waiting[0].at)]


def _block(system: _Placed) -> str:
    return f"<system>\n{system.text}\n</system>"


def _as_one(alike: list[_Placed], adjusted: list[str]) -> list[_Placed]:
    """Neighbours of one role as one message: texts, reasoning and calls, each in order."""
    adjusted += [f"messages[{m.at}]: merged with the one before" for m in alike[1:]]
    first = alike[0]
    fields: dict[str, object] = {}
    calls = [call for m in alike for call in cast("list[object]", m.message.get("tool_calls", []))]
    if calls:
        fields["tool_calls"] = calls
    thoughts = [str(m.message["reasoning_content"]) for m in alike if _thinks(m)]
    if thoughts:
        fields["reasoning_content"] = "\n\n".join(thoughts)
    return [first.saying("\n\n".join(m.text for m in alike if m.text), **fields)]


def _thinks(placed: _Placed) -> bool:
    return bool(placed.message.get("reasoning_content"))
