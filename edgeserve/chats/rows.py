"""Records to rows of the tables, and back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from edgeserve.chats.records import Attachment, Chat, Generation, Turn, TurnState

CHAT_COLUMNS = (
    "id, title, titled_by_hand, created_at, updated_at, pinned, model, system_prompt, settings, "
    "leaf_id, draft, deleted_at"
)
TURN_COLUMNS = (
    "id, chat_id, parent_id, role, text, reasoning, state, error, attachments, generation, "
    "created_at"
)

_GENERATION_FIELDS = frozenset(field.name for field in fields(Generation))


class RowError(sqlite3.DatabaseError):
    """A row that SQLite read and that makes no sense: damage which it has no way to see."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(f"a row makes no sense: {reason}")
        self.sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def clean(text: str) -> str:
    """Text that has UTF-8: half a surrogate pair, which some terminals paste, has none."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def chat_row(chat: Chat) -> tuple[object, ...]:
    return (
        chat.id,
        clean(chat.title),
        int(chat.titled_by_hand),
        chat.created_at,
        chat.updated_at,
        int(chat.pinned),
        clean(chat.model),
        clean(chat.system_prompt),
        settings_json(chat.settings),
        chat.leaf_id,
        clean(chat.draft),
        chat.deleted_at,
    )


def chat_of(row: Sequence[Any], tags: Iterable[str]) -> Chat:
    """Raises RowError."""
    try:
        return Chat(
            id=row[0],
            title=row[1],
            titled_by_hand=bool(row[2]),
            created_at=row[3],
            updated_at=row[4],
            pinned=bool(row[5]),
            tags=tuple(tags),
            model=row[6],
            system_prompt=row[7],
            settings=dict(json.loads(row[8])),
            leaf_id=row[9],
            draft=row[10],
            deleted_at=row[11],
        )
    except (TypeError, ValueError) as error:
        raise RowError(error) from error


def turn_row(turn: Turn) -> tuple[object, ...]:
    return (
        turn.id,
        turn.chat_id,
        turn.parent_id,
        turn.role,
        clean(turn.text),
        clean(turn.reasoning),
        turn.state.value,
        clean(turn.error),
        json.dumps([[clean(each.path), clean(each.text)] for each in turn.attachments]),
        generation_json(turn.generation),
        turn.created_at,
    )


def turn_of(row: Sequence[Any]) -> Turn:
    """Raises RowError."""
    try:
        return Turn(
            id=row[0],
            chat_id=row[1],
            parent_id=row[2],
            role=row[3],
            text=row[4],
            reasoning=row[5],
            state=TurnState(row[6]),
            error=row[7],
            attachments=tuple(Attachment(path, text) for path, text in json.loads(row[8])),
            generation=_generation_of(row[9]),
            created_at=row[10],
        )
    except (TypeError, ValueError) as error:
        raise RowError(error) from error


def settings_json(settings: Mapping[str, object]) -> str:
    return json.dumps(dict(settings), sort_keys=True)


def generation_json(generation: Generation | None) -> str | None:
    return None if generation is None else json.dumps(asdict(generation))


def _generation_of(text: str | None) -> Generation | None:
    if text is None:
        return None
    # A newer program may have written fields that this one does not know.
    known = {name: value for name, value in json.loads(text).items() if name in _GENERATION_FIELDS}
    for name in ("token_ids", "dropped"):
        known[name] = tuple(known.get(name, ()))
    return Generation(**known)
