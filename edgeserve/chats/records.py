"""What is kept of a conversation: a tree of turns, and which of its branches is shown."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Literal

from edgeserve.frozen import frozen

Role = Literal["user", "assistant", "system"]


class TurnState(str, Enum):
    """How a turn ended. STREAMING is one that is being written now, by whoever holds it; found so
    after its writer is gone, it becomes INTERRUPTED."""

    COMPLETE = "complete"
    STREAMING = "streaming"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@frozen
class Attachment:
    """A text file that went into a message: its path as it was given, and its text then."""

    path: str
    text: str


@frozen(kw_only=True)
class Generation:
    """How an answer came about: enough to make it again and compare. Counts are of tokens.

    `settings` are ChatSettings' fields that were set, `context` what a "full" answer dropped of the
    turns before (ids), `miss` why no more of the prompt was cached.
    """

    model: str
    fingerprint: str = ""
    settings: dict[str, object] = field(default_factory=dict[str, object])
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


@frozen(kw_only=True)
class Turn:
    """One message. Turns with the same `parent_id` are branches of one place, oldest first."""

    id: str
    chat_id: str
    parent_id: str | None
    role: Role
    text: str
    reasoning: str = ""
    state: TurnState = TurnState.COMPLETE
    error: str = ""
    attachments: tuple[Attachment, ...] = ()
    generation: Generation | None = None
    created_at: float = 0.0


@frozen(kw_only=True)
class Chat:
    """A conversation without its turns. Times are seconds since 1970.

    `leaf_id` is the last turn of the branch that is shown; `draft` what stands in its composer.
    `settings` are ChatSettings' fields that were set. `titled_by_hand` keeps a title from being
    made anew. A chat with `deleted_at` is gone for everybody but an undo.
    """

    id: str
    title: str = ""
    titled_by_hand: bool = False
    created_at: float = 0.0
    updated_at: float = 0.0
    pinned: bool = False
    tags: tuple[str, ...] = ()
    model: str = ""
    system_prompt: str = ""
    settings: dict[str, object] = field(default_factory=dict[str, object])
    leaf_id: str | None = None
    draft: str = ""
    deleted_at: float | None = None


@frozen
class Conversation:
    """A chat with all its turns, in the order in which they were added: what is exported."""

    chat: Chat
    turns: tuple[Turn, ...]


@frozen
class Hit:
    """A turn (or title) that a search found. `snippet` has what matched between `marks`."""

    chat: Chat
    turn_id: str | None
    snippet: str
    marks: tuple[tuple[int, int], ...] = ()
