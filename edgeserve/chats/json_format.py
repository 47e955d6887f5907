"""Conversations as JSON: the whole tree, and how each answer came about, so that a replay can
compare. The format has a version; what it does not know is an error, never left out in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import msgspec

from edgeserve.chats.records import (
    Attachment,
    Chat,
    Conversation,
    Generation,
    Role,
    Turn,
    TurnState,
)
from edgeserve.errors import ChatImportError

FORMAT = "edgeserve chats"
VERSION = 1


_Setting = bool | int | float | str | None
"""No value in a value: one that is nested deeply could be read, and not be written again."""


class _Entry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value of the file. Fields at their defaults are left out."""


class AttachmentEntry(_Entry):
    path: str
    text: str


class GenerationEntry(_Entry):
    model: str
    fingerprint: str = ""
    settings: dict[str, _Setting] = msgspec.field(default_factory=dict[str, _Setting])
    system_prompt: str = ""
    seed: int | None = None
    token_ids: tuple[int, ...] = ()
    finish_reason: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    answer_tokens: int | None = None
    reasoning_tokens: int = 0
    first_token_ms: float | None = None
    tokens_per_s: float | None = None
    miss: str = ""
    dropped: tuple[str, ...] = ()


class TurnEntry(_Entry):
    id: str
    parent_id: str | None
    role: Role
    text: str
    reasoning: str = ""
    state: TurnState = TurnState.COMPLETE
    error: str = ""
    attachments: tuple[AttachmentEntry, ...] = ()
    generation: GenerationEntry | None = None
    created_at: float = 0.0


class ChatEntry(_Entry):
    id: str
    turns: tuple[TurnEntry, ...]
    title: str = ""
    titled_by_hand: bool = False
    created_at: float = 0.0
    updated_at: float = 0.0
    pinned: bool = False
    tags: tuple[str, ...] = ()
    model: str = ""
    system_prompt: str = ""
    settings: dict[str, _Setting] = msgspec.field(default_factory=dict[str, _Setting])
    leaf_id: str | None = None
    draft: str = ""


class ChatFile(_Entry):
    format: str
    version: int
    chats: tuple[ChatEntry, ...]


class _Head(msgspec.Struct):
    """What says whether the rest can be read."""

    format: str = ""
    version: int = 0


def to_json(conversations: list[Conversation]) -> bytes:
    """The same conversations give the same bytes."""
    chats = tuple(_chat_entry(each) for each in conversations)
    file = ChatFile(format=FORMAT, version=VERSION, chats=chats)
    return msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n"


def from_json(data: bytes, name: str) -> list[Conversation]:
    """Raises ChatImportError with the place as a JSON path."""
    head = decoded(data, name, _Head)
    if head.format != FORMAT:
        raise ChatImportError(name, "$.format", f'must be "{FORMAT}"')
    if head.version > VERSION:
        reason = f"version {head.version} is of a newer edgeserve; this one reads up to {VERSION}"
        raise ChatImportError(name, "$.version", reason)
    file = decoded(data, name, ChatFile)
    require_trees(file, name)
    return [_conversation(entry) for entry in file.chats]


def decoded(data: bytes, name: str, kind: Callable[..., Any]) -> Any:
    """The data as a type that msgspec knows. Raises ChatImportError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `")
        raise ChatImportError(name, place.rstrip("`") or "$", reason) from error
    except msgspec.DecodeError as error:
        raise ChatImportError(name, "", str(error)) from error
    except RecursionError as error:
        raise ChatImportError(name, "", "is nested too deeply") from error


def require_trees(file: ChatFile, name: str) -> None:
    """Ids are there once, and a parent stands before its children, so that nothing is its own."""
    chat_ids: set[str] = set()
    turn_ids: set[str] = set()
    for at, chat in enumerate(file.chats):
        own: set[str] = set()
        place = f"$.chats[{at}]"
        _require_new(name, f"{place}.id", chat.id, chat_ids)
        for number, turn in enumerate(chat.turns):
            where = f"{place}.turns[{number}]"
            _require_new(name, f"{where}.id", turn.id, turn_ids)
            if turn.parent_id is not None and turn.parent_id not in own:
                reason = f'"{turn.parent_id}" is no turn of this chat that stands before'
                raise ChatImportError(name, f"{where}.parent_id", reason)
            own.add(turn.id)
        if chat.leaf_id is not None and chat.leaf_id not in own:
            reason = f'"{chat.leaf_id}" is no turn of this chat'
            raise ChatImportError(name, f"{place}.leaf_id", reason)


def _require_new(name: str, place: str, id: str, seen: set[str]) -> None:
    if not id:
        raise ChatImportError(name, place, "is empty")
    if id in seen:
        raise ChatImportError(name, place, f'"{id}" is there twice')
    seen.add(id)


def _chat_entry(conversation: Conversation) -> ChatEntry:
    fields = asdict(conversation.chat)
    del fields["deleted_at"]
    return ChatEntry(**fields, turns=tuple(_turn_entry(turn) for turn in conversation.turns))


def _turn_entry(turn: Turn) -> TurnEntry:
    generation = turn.generation
    return TurnEntry(
        id=turn.id,
        parent_id=turn.parent_id,
        role=turn.role,
        text=turn.text,
        reasoning=turn.reasoning,
        state=turn.state,
        error=turn.error,
        attachments=tuple(AttachmentEntry(**asdict(each)) for each in turn.attachments),
        generation=None if generation is None else GenerationEntry(**asdict(generation)),
        created_at=turn.created_at,
    )


def _conversation(entry: ChatEntry) -> Conversation:
    fields = msgspec.structs.asdict(entry)
    del fields["turns"]
    turns = tuple(_turn(each, entry.id) for each in entry.turns)
    return Conversation(Chat(**fields), turns)


def _turn(entry: TurnEntry, chat_id: str) -> Turn:
    state = TurnState.INTERRUPTED if entry.state is TurnState.STREAMING else entry.state
    made = entry.generation
    return Turn(
        id=entry.id,
        chat_id=chat_id,
        parent_id=entry.parent_id,
        role=entry.role,
        text=entry.text,
        reasoning=entry.reasoning,
        state=state,
        error=entry.error,
        attachments=tuple(Attachment(each.path, each.text) for each in entry.attachments),
        generation=None if made is None else Generation(**msgspec.structs.asdict(made)),
        created_at=entry.created_at,
    )
