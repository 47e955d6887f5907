"""Conversations out to files and in again, whatever the form of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgeserve.chats.chatgpt_format import from_chatgpt
from edgeserve.chats.json_format import from_json
from edgeserve.chats.markdown_format import from_markdown
from edgeserve.chats.records import Conversation
from edgeserve.errors import ChatImportError

MAX_IMPORT_BYTES = 2**30


def read_file(path: Path, new_id: Callable[[], str]) -> list[Conversation]:
    """The conversations in a file: JSON or Markdown of ours, or ChatGPT's conversations.json.

    Raises ChatImportError.
    """
    try:
        size = path.stat().st_size
        if size > MAX_IMPORT_BYTES:
            raise ChatImportError(str(path), "", f"has {size:,} bytes, over {MAX_IMPORT_BYTES:,}")
        return read(path.read_bytes(), str(path), new_id)
    except OSError as error:
        raise ChatImportError(str(path), "", error.strerror or str(error)) from error


def read(data: bytes, name: str, new_id: Callable[[], str]) -> list[Conversation]:
    """Raises ChatImportError; `name` is what it calls the data."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    begin = data[:100].lstrip()[:1]
    if begin == b"{":
        return from_json(data, name)
    if begin == b"[":
        return from_chatgpt(data, name, new_id)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise ChatImportError(name, f"line {line}", "is not UTF-8 text") from error
    return [from_markdown(text, name, new_id)]
