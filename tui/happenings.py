"""What a conversation or a model being loaded tells whoever draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeserve.chats.records import Turn
from edgeserve.errors import EdgeServeError
from edgeserve.frozen import frozen
from edgeserve.tui.client import PromptReading, TokenFact
from edgeserve.tui.room import Room

if TYPE_CHECKING:
    from edgeserve.chats.salvage import Salvage


@frozen
class BranchShown:
    """The chat, its branch or what is dropped of it is another now."""


@frozen
class TextCame:
    """More of an answer under way."""

    turn_id: str
    text: str
    is_reasoning: bool
    tokens: tuple[TokenFact, ...]


@frozen
class PromptRead:
    """More of the prompt was read for the answer of the chat that is shown."""

    reading: PromptReading


@frozen
class AnswerOver:
    """An answer has ended, however it did; `turn` is what was kept of it. None where it never
    began: it was given up while it waited, or `error` says what kept it from beginning."""

    turn: Turn | None
    error: EdgeServeError | None = None


@frozen
class RoomAsked:
    """The context is full: `decide` of the conversation is awaited."""

    room: Room


@frozen
class NotKept:
    """Something could not be written; it is tried again until it is."""

    error: EdgeServeError


@frozen
class KeptAgain:
    """Everything that could not be written before is on disk now."""


@frozen
class Repaired:
    """The file of chats was found damaged, and what could be read of it is in a new one."""

    salvage: Salvage


@frozen
class ModelChanged:
    """A model began to load, got further, is ready, or failed: look at the ModelSwitch."""


@frozen
class ChatsChanged:
    """The list of chats: a title, an order, a chat more or less."""


Happening = (
    BranchShown
    | TextCame
    | PromptRead
    | AnswerOver
    | RoomAsked
    | NotKept
    | KeptAgain
    | Repaired
    | ModelChanged
    | ChatsChanged
)
