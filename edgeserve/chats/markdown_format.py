"""A branch of a conversation as Markdown: to be read, and to be read back.

Comments, which no viewer shows, say where a turn and each of its parts begin. A line of a text that
looks like one gets a backslash, as Markdown would have it anyway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

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
from edgeserve.frozen import frozen

_VERSION = 1
_MARKER = re.compile(r"<!-- edgeserve (chat|turn|reasoning|attachment|text)(?: (\{.*\}))? -->")
_LOOKS_LIKE_MARKER = re.compile(r"\\*<!-- edgeserve ")
_ESCAPED = re.compile(r"\\+<!-- edgeserve ")
_DETAILS, _END_DETAILS = "<details><summary>Reasoning</summary>", "</details>"
_NAMES: dict[Role, str] = {"user": "You", "assistant": "Assistant", "system": "System"}


class _ChatFields(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    title: str = ""
    created_at: float = 0.0
    model: str = ""
    system_prompt: str = ""
    tags: tuple[str, ...] = ()


class _TurnFields(msgspec.Struct, forbid_unknown_fields=True):
    role: Role
    model: str | None = None
    state: TurnState = TurnState.COMPLETE
    error: str = ""
    created_at: float = 0.0


class _AttachmentFields(msgspec.Struct, forbid_unknown_fields=True):
    path: str


@frozen
class _Section:
    """A comment and the lines up to the next. `line` counts from 1."""

    kind: str
    fields: str
    lines: Sequence[str]
    line: int


# --- out -----------------------------------------------------------------------------------------


def to_markdown(chat: Chat, turns: Iterable[Turn]) -> str:
    """One branch: its turns from first to last."""
    fields: dict[str, object] = {
        "version": _VERSION,
        "title": chat.title,
        "created_at": chat.created_at,
        "model": chat.model,
        "system_prompt": chat.system_prompt,
        "tags": list(chat.tags),
    }
    lines = [_marker("chat", fields), f"# {chat.title or 'Chat'}", ""]
    for turn in turns:
        lines += _turn_lines(turn)
    return "\n".join(lines)


def _turn_lines(turn: Turn) -> list[str]:
    made_by = turn.generation.model if turn.generation is not None else None
    fields: dict[str, object] = {"role": turn.role, "created_at": turn.created_at}
    if made_by is not None:
        fields["model"] = made_by
    if turn.state is not TurnState.COMPLETE:
        fields["state"] = turn.state.value
    if turn.error:
        fields["error"] = turn.error
    lines = [_marker("turn", fields), f"## {made_by or _NAMES[turn.role]}", ""]
    for each in turn.attachments:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", each.text)), default=0))
        shown = " ".join(each.path.split())
        lines += [_marker("attachment", {"path": each.path}), f"**{shown}**", ""]
        lines += [fence, *_escaped(each.text), fence, ""]
    if turn.reasoning:
        lines += [_marker("reasoning"), _DETAILS, "", *_escaped(turn.reasoning), ""]
        lines += [_END_DETAILS, ""]
    return [*lines, _marker("text"), *_escaped(turn.text), ""]


def _marker(kind: str, fields: dict[str, object] | None = None) -> str:
    if fields is None:
        return f"<!-- edgeserve {kind} -->"
    text = json.dumps(fields, ensure_ascii=False)
    text = text.replace("<", r"\u003c").replace(">", r"\u003e")  # or it might end the comment
    return f"<!-- edgeserve {kind} {text} -->"


def _escaped(text: str) -> list[str]:
    return ["\\" + line if _LOOKS_LIKE_MARKER.match(line) else line for line in text.split("\n")]


# --- in ------------------------------------------------------------------------------------------


def from_markdown(text: str, name: str, new_id: Callable[[], str]) -> Conversation:
    """What `to_markdown` wrote, also after changes by hand. Raises ChatImportError naming the
    line."""
    sections = _sections(text)
    if not sections or sections[0].kind != "chat":
        raise ChatImportError(name, "line 1", "no chat that edgeserve exported begins here")
    head = cast(_ChatFields, _fields(sections[0], name, _ChatFields))
    if head.version > _VERSION:
        reason = f"version {head.version} is of a newer edgeserve; this one reads up to {_VERSION}"
        raise ChatImportError(name, f"line {sections[0].line}", reason)
    chat_id = new_id()
    turns: list[Turn] = []
    for parts in _turn_groups(sections[1:], name):
        parent = turns[-1].id if turns else None
        turns.append(_turn(parts, name, new_id(), chat_id, parent))
    chat = Chat(
        id=chat_id,
        title=head.title,
        created_at=head.created_at,
        updated_at=turns[-1].created_at if turns else head.created_at,
        tags=head.tags,
        model=head.model,
        system_prompt=head.system_prompt,
        leaf_id=turns[-1].id if turns else None,
    )
    return Conversation(chat, tuple(turns))


def _sections(text: str) -> list[_Section]:
    lines = text.split("\n")
    if all(line.endswith("\r") for line in lines[:-1]):  # an editor on Windows was here
        lines = [line.removesuffix("\r") for line in lines]
    starts = [(at, found) for at, line in enumerate(lines) if (found := _MARKER.fullmatch(line))]
    ends = [*(at for at, _ in starts[1:]), len(lines)]
    return [
        _Section(found[1], found[2] or "{}", lines[at + 1 : end], at + 1)
        for (at, found), end in zip(starts, ends, strict=False)  # an end too many where none starts
    ]


def _turn_groups(sections: Sequence[_Section], name: str) -> list[list[_Section]]:
    groups: list[list[_Section]] = []
    for section in sections:
        if section.kind == "turn":
            groups.append([section])
        elif section.kind == "chat" or not groups:
            raise ChatImportError(name, f"line {section.line}", f"no {section.kind} may begin here")
        else:
            groups[-1].append(section)
    return groups


def _turn(
    parts: Sequence[_Section], name: str, turn_id: str, chat_id: str, parent_id: str | None
) -> Turn:
    fields = cast(_TurnFields, _fields(parts[0], name, _TurnFields))
    texts: dict[str, str] = {}
    attachments: list[Attachment] = []
    for part in parts[1:]:
        if part.kind == "attachment":
            path = cast(_AttachmentFields, _fields(part, name, _AttachmentFields)).path
            attachments.append(Attachment(path, _attached(part, name)))
        elif part.kind in texts:
            raise ChatImportError(name, f"line {part.line}", f"a second {part.kind} of one turn")
        else:
            texts[part.kind] = _body(part)
    if "text" not in texts:
        raise ChatImportError(name, f"line {parts[0].line}", "the turn has no text")
    streaming = fields.state is TurnState.STREAMING
    return Turn(
        id=turn_id,
        chat_id=chat_id,
        parent_id=parent_id,
        role=fields.role,
        text=texts["text"],
        reasoning=texts.get("reasoning", ""),
        state=TurnState.INTERRUPTED if streaming else fields.state,
        error=fields.error,
        attachments=tuple(attachments),
        generation=None if fields.model is None else Generation(model=fields.model),
        created_at=fields.created_at,
    )


def _fields(section: _Section, name: str, kind: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.json.decode(section.fields.encode(), type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ChatImportError(name, f"line {section.line}", str(error)) from error


def _body(section: _Section) -> str:
    lines = list(section.lines)
    if section.kind == "reasoning":
        lines = lines[lines[:1] == [_DETAILS] :]
        lines = lines[lines[:1] == [""] :]
        for last in ("", _END_DETAILS):
            lines = lines[: len(lines) - (lines[-1:] == [last])]
    return _unescaped(lines[: len(lines) - (lines[-1:] == [""])])


def _attached(section: _Section, name: str) -> str:
    """What stands between the two fences."""
    lines = section.lines
    fences = [at for at, line in enumerate(lines) if re.fullmatch("`{3,}", line)]
    if not fences or lines[fences[0]] != lines[fences[-1]] or len(fences) < 2:
        raise ChatImportError(name, f"line {section.line}", "the attachment has no two fences")
    return _unescaped(lines[fences[0] + 1 : fences[-1]])


def _unescaped(lines: Sequence[str]) -> str:
    return "\n".join(line[1:] if _ESCAPED.match(line) else line for line in lines)
