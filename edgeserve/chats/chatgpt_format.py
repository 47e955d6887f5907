"""The conversations.json of ChatGPT's export: its tree of messages, those that have words.

Messages of tools, and hidden ones, are left out; what followed them follows what was before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from edgeserve.chats.json_format import decoded
from edgeserve.chats.records import Chat, Conversation, Generation, Role, Turn


class _Author(msgspec.Struct):
    role: str = ""


class _Content(msgspec.Struct):
    content_type: str = ""
    parts: list[object] | None = None
    text: str | None = None


class _Metadata(msgspec.Struct):
    model_slug: str | None = None
    is_visually_hidden_from_conversation: bool | None = None


class _Message(msgspec.Struct):
    author: _Author
    content: _Content
    create_time: float | None = None
    metadata: _Metadata | None = None


class _Node(msgspec.Struct):
    message: _Message | None = None
    parent: str | None = None
    children: list[str] | None = None


class _Exported(msgspec.Struct):
    mapping: dict[str, _Node]
    title: str | None = None
    create_time: float | None = None
    update_time: float | None = None
    current_node: str | None = None


_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant"}


def from_chatgpt(data: bytes, name: str, new_id: Callable[[], str]) -> list[Conversation]:
    """Raises ChatImportError with the place as a JSON path."""
    return [_conversation(each, new_id) for each in decoded(data, name, list[_Exported])]


def _conversation(exported: _Exported, new_id: Callable[[], str]) -> Conversation:
    chat_id = new_id()
    turns: list[Turn] = []
    kept: dict[str, str | None] = {}  # the turn that a node became, or the one before it
    for node_id in _from_the_roots(exported.mapping):
        node = exported.mapping[node_id]
        before = kept.get(node.parent) if node.parent is not None else None
        turn = _turn(node.message, new_id, chat_id, before)
        kept[node_id] = before if turn is None else turn.id
        if turn is not None:
            turns.append(turn)
    created = exported.create_time or 0.0
    leaf = kept.get(exported.current_node or "")
    chat = Chat(
        id=chat_id,
        title=exported.title or "",
        created_at=created,
        updated_at=exported.update_time or created,
        leaf_id=leaf or (turns[-1].id if turns else None),
    )
    return Conversation(chat, tuple(turns))


def _from_the_roots(mapping: Mapping[str, _Node]) -> list[str]:
    """Each node once, after its parent; what hangs on nothing that is there is a root itself."""
    children: dict[str | None, list[str]] = {}
    for node_id, node in mapping.items():
        parent = node.parent if node.parent in mapping else None
        children.setdefault(parent, []).append(node_id)
    for node_id, node in mapping.items():  # the order of branches is the parent's to say
        order = {child: at for at, child in enumerate(node.children or ())}
        children.get(node_id, []).sort(key=lambda child, order=order: order.get(child, len(order)))
    found: list[str] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        node_id = waiting.pop()
        found.append(node_id)
        waiting.extend(reversed(children.get(node_id, [])))
    return found


def _turn(
    message: _Message | None, new_id: Callable[[], str], chat_id: str, parent_id: str | None
) -> Turn | None:
    if message is None or message.author.role not in _ROLES:
        return None
    about = message.metadata or _Metadata()
    text = _text(message.content)
    if not text.strip() or about.is_visually_hidden_from_conversation:
        return None
    role = _ROLES[message.author.role]
    model = about.model_slug if role == "assistant" else None
    return Turn(
        id=new_id(),
        chat_id=chat_id,
        parent_id=parent_id,
        role=role,
        text=text,
        generation=None if model is None else Generation(model=model),
        created_at=message.create_time or 0.0,
    )


def _text(content: _Content) -> str:
    if content.content_type == "code" and content.text:
        return f"```\n{content.text}\n```"
    if content.content_type not in ("text", "multimodal_text"):
        return ""
    return "\n\n".join(part for part in content.parts or () if isinstance(part, str) and part)
