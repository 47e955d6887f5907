"""What a branch of turns says to a model: the messages of a question.

The screens, `run -c` and `replay` all ask by this, so that the same chat gives the same prompt.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from edgeserve.chats.records import Attachment, Turn

if TYPE_CHECKING:
    from edgeserve.types import Message

_FENCE = re.compile(r"^`{3,}", re.MULTILINE)


def messages_of(
    turns: Sequence[Turn], system_prompt: str = "", dropped: Collection[str] = ()
) -> list[Message]:
    """The turns of a branch, root first, without those whose ids are in `dropped`.

    A system turn is a summary of turns before it: it goes into the one system message, since many
    templates take no other. Turns without text (a question's failed answer) are left out, and two
    messages of one role in a row become one, since templates want roles in turn.
    """
    kept = [turn for turn in turns if turn.id not in dropped]
    system = [system_prompt, *(summary_message(t.text) for t in kept if t.role == "system")]
    said = [(turn.role, content_of(turn)) for turn in kept if turn.role != "system"]
    messages: list[Message] = []
    if any(part.strip() for part in system):
        text = "\n\n".join(part for part in system if part.strip())
        messages.append({"role": "system", "content": text})
    for role, content in said:
        before = messages[-1] if messages else None
        if not content:
            continue
        if before is not None and before["role"] == role:
            before["content"] = f"{before.get('content')}\n\n{content}"
        else:
            messages.append({"role": role, "content": content})
    return messages


def content_of(turn: Turn) -> str:
    """A turn's text with the files attached to it, which come first."""
    files = (_attached(attachment) for attachment in turn.attachments)
    return "\n\n".join(part for part in (*files, turn.text) if part)


def summary_message(text: str) -> str:
    """How a model is told of what it can no longer read itself."""
    return f"Summary of the conversation before what follows:\n{text}" if text.strip() else ""


def dropped_before(turns: Sequence[Turn]) -> tuple[str, ...]:
    """The turns that the newest answer of a branch was made without: the next is, too."""
    for turn in reversed(turns):
        if turn.generation is not None and (turn.role == "assistant" or turn.generation.dropped):
            return turn.generation.dropped
    return ()


def _attached(attachment: Attachment) -> str:
    """In a fence that is longer than any in the file."""
    longest = max((len(run) for run in _FENCE.findall(attachment.text)), default=2)
    fence = "`" * max(3, longest + 1)
    end = "" if attachment.text.endswith("\n") or not attachment.text else "\n"
    return f"{attachment.path}:\n{fence}\n{attachment.text}{end}{fence}"
