"""A conversation under ids of its own, beside another that has the ones it came with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from edgeserve.chats.records import Conversation, Turn


def with_new_ids(conversation: Conversation, new_id: Callable[[], str]) -> Conversation:
    """The same, for a store that has something of these ids already."""
    ids = {turn.id: new_id() for turn in conversation.turns}
    chat = replace(conversation.chat, id=new_id(), leaf_id=ids.get(conversation.chat.leaf_id or ""))
    return Conversation(chat, tuple(_renamed(conversation.turns, ids, chat.id)))


def _renamed(turns: Iterable[Turn], ids: dict[str, str], chat_id: str) -> Iterable[Turn]:
    for turn in turns:
        made = turn.generation
        if made is not None:
            made = replace(made, dropped=tuple(ids.get(each, each) for each in made.dropped))
        yield replace(
            turn,
            id=ids[turn.id],
            chat_id=chat_id,
            parent_id=None if turn.parent_id is None else ids[turn.parent_id],
            generation=made,
        )
