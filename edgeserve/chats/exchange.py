"""Conversations out to files and in again, whatever the form of the file."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from edgeserve.chats.chatgpt_format import from_chatgpt
from edgeserve.chats.json_format import from_json
from edgeserve.chats.markdown_format import from_markdown
from edgeserve.chats.records import Conversation
from edgeserve.chats.store import ChatStore
from edgeserve.errors import ChatImportError, ChatsFileError

MAX_IMPORT_BYTES = 2**30
_SQLITE = b"SQLite format 3\0"


def read_file(path: Path, new_id: Callable[[], str]) -> list[Conversation]:
    """The conversations in a file: JSON or Markdown of ours, or ChatGPT's conversations.json; or
    another file of chats, as one that was kept elsewhere for a time.

    Raises ChatImportError.
    """
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
            raise ChatImportError(str(path), "", "is a pipe or a device, which may have no end")
        size = about.st_size
        if size > MAX_IMPORT_BYTES:
            raise ChatImportError(str(path), "", f"has {size:,} bytes, over {MAX_IMPORT_BYTES:,}")
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                return _of_another_store(path)
        return read(path.read_bytes(), str(path), new_id)
    except OSError as error:
        raise ChatImportError(str(path), "", error.strerror or str(error)) from error
    except ValueError as error:
        raise ChatImportError(str(path), "", "no file can have this name") from error


def _of_another_store(path: Path) -> list[Conversation]:
    """All chats of a copy: the file itself stays as it is, whatever state it is in."""
    with tempfile.TemporaryDirectory(prefix="edgeserve-import-") as folder:
        copy = Path(folder) / "chats.db"
        shutil.copyfile(path, copy)
        with suppress(FileNotFoundError):  # what was not yet written into the file itself
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        try:
            with ChatStore(copy) as store:
                return [store.conversation(chat.id) for chat in reversed(store.chats())]
        except ChatsFileError as error:
            raise ChatImportError(str(path), "", f"is no file of chats: {error.reason}") from error


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
