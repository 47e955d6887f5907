"""From a branch of turns to what a client is asked, and what that would cost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from edgeserve.chats.messages import content_of, messages_of
from edgeserve.chats.records import Chat, Turn
from edgeserve.tui.chat_settings import usable
from edgeserve.tui.client import ChatSettings, Question

if TYPE_CHECKING:
    from edgeserve.types import Message

SizeWithout = Callable[[Sequence[str]], Awaitable[int | None]]
"""How many tokens a question has without those turns; None where nobody can tell."""

ALTERNATIVES = 5
_SUMMARY_TOKENS = 400
_SUMMARY = (
    "Summarise the conversation above in at most 200 words, for yourself to go on from: what was "
    "asked, found and decided, names and figures that still matter. Write only the summary."
)


def question_of(
    chat: Chat, branch: Sequence[Turn], dropped: Sequence[str], *, continues: bool = False
) -> Question:
    messages = messages_of(branch, chat.system_prompt, dropped)
    return Question(messages, settings_of(chat), continues, ALTERNATIVES)


def settings_of(chat: Chat) -> ChatSettings:
    """Those of a chat that this version can use."""
    return ChatSettings(**usable(chat.settings))


def summary_question(gone: Sequence[Turn], summarised: Sequence[str]) -> Question:
    """Asks for a summary of turns; a summary among them stands for those in `summarised`."""
    messages = messages_of(gone, "", summarised)
    asked: Message = {"role": "user", "content": _SUMMARY}
    if messages and messages[-1]["role"] == "user":
        asked["content"] = f"{messages.pop().get('content')}\n\n{_SUMMARY}"
    settings = ChatSettings(temperature=0.0, max_tokens=_SUMMARY_TOKENS, thinking=False)
    return Question([*messages, asked], settings)


def estimate(branch: Sequence[Turn], system_prompt: str, num_tokens: int) -> SizeWithout:
    """By characters, from what the whole was said to have."""
    lengths = {turn.id: len(content_of(turn)) for turn in branch}
    per_character = num_tokens / max(1, len(system_prompt) + sum(lengths.values()))

    async def size_without(dropped: Sequence[str]) -> int | None:
        kept = sum(length for turn_id, length in lengths.items() if turn_id not in dropped)
        return round((len(system_prompt) + kept) * per_character)

    return size_without
