"""Text files that go into a message: `@path` in what was typed, and text too long to be typed."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from edgeserve.chats.records import Attachment
from edgeserve.errors import AttachmentError
from edgeserve.typed_paths import is_there, path_of

MAX_BYTES = 4_000_000
_MAX_LISTED = 2_000
_MAX_OFFERED = 50
_FILE = r"""(?:/|\./|\.\./|~/).*|.*\.(?:
        bash|bat|bib|c|cc|cfg|cmake|conf|cpp|cs|css|csv|cxx|diff|docx|go|gradle|h|hpp|htm|html|hxx|
        ini|ipynb|java|jpeg|jpg|js|json|jsonl|jsx|kt|log|lua|m|md|mjs|patch|pdf|php|pl|png|proto|
        ps1|py|pyi|r|rb|rs|rst|scala|sh|sql|svelte|svg|swift|tex|toml|ts|tsv|tsx|txt|vue|xml|ya?ml|
        zig|zsh
    )"""
"""What is meant as a file: without such an end, a word after an @ is a decorator, a package or a
person as likely."""

_WORD = re.compile(r"""(?<!\S)@(?:"([^"\n]+)"|(\S+))""")
_BEING_TYPED = re.compile(r"""(?<!\S)@("?)([^"\n]*)$""")


@cache
def _file() -> re.Pattern[str]:
    return re.compile(_FILE, re.IGNORECASE | re.VERBOSE)


def read_attachment(path: str, folder: Path) -> Attachment:
    """A file as it is now, named as it was given. Raises AttachmentError."""
    place = folder / path_of(path)
    try:
        about = place.stat()
        if stat.S_ISDIR(about.st_mode):
            raise AttachmentError(path, "a folder: name a file in it")
        if not stat.S_ISREG(about.st_mode):  # which might never be read to its end
            raise AttachmentError(path, "a pipe or a device: name a file")
        if about.st_size > MAX_BYTES:
            raise AttachmentError(path, f"{about.st_size:,} bytes, of at most {MAX_BYTES:,}")
        with place.open("rb") as file:  # it may be longer than it says: those in /proc are
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise AttachmentError(path, error.strerror or str(error)) from None
    except ValueError:
        raise AttachmentError(path, "no file can have this name") from None
    if len(raw) > MAX_BYTES:
        raise AttachmentError(path, f"more than {MAX_BYTES:,} bytes")
    if b"\0" in raw:
        raise AttachmentError(path, "a binary file; only text can be attached")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise AttachmentError(path, "not UTF-8 text; only text can be attached") from None
    return Attachment(path, text.replace("\r\n", "\n"))


def attachments_in(text: str, folder: Path) -> list[Attachment]:
    """The files that a text names by `@path`; a name that is no file's is left to mean itself.
    Raises AttachmentError for one that cannot be attached."""
    found: dict[str, Attachment] = {}
    for quoted, plain in _WORD.findall(text):
        name = quoted or _name(plain, folder)
        if name and name not in found and is_there(folder / path_of(name)):
            found[name] = read_attachment(name, folder)
    return list(found.values())


def missing_in(text: str, folder: Path) -> list[str]:
    """Names after an @ that can only be meant as files, and are none's."""
    found: list[str] = []
    for quoted, plain in _WORD.findall(text):
        name = quoted or _name(plain, folder)
        is_meant = _file().fullmatch(name) and name not in found
        if is_meant and not is_there(folder / path_of(name)):
            found.append(name)
    return found


def _name(plain: str, folder: Path) -> str:
    """What follows an @, without the comma or full stop after it where the file has none."""
    bare = plain.rstrip(".,;:!?)]}'")
    return plain if is_there(folder / path_of(plain)) else bare


def path_being_typed(text: str) -> str | None:
    """What stands between an @ and the cursor at the end of `text`; None where there is no @."""
    found = _BEING_TYPED.search(text)
    if found is None or (not found[1] and " " in found[2]):
        return None
    return found[2]


def completions(typed: str, folder: Path) -> Sequence[str]:
    """Paths that go on from what was typed, folders with a slash at their end, by name.

    Hidden files only where a dot was typed. Reads one folder, and no more than its first entries.
    """
    head, tail = os.path.split(typed)
    place = folder / path_of(head or ".")
    names: list[str] = []
    try:
        with os.scandir(place) as entries:
            for count, entry in enumerate(entries):
                if count >= _MAX_LISTED:
                    break
                if not entry.name.lower().startswith(tail.lower()):
                    continue
                if entry.name.startswith(".") and not tail.startswith("."):
                    continue
                names.append(entry.name + ("/" if entry.is_dir() else ""))
    except (OSError, ValueError):
        return ()
    return [os.path.join(head, name) if head else name for name in sorted(names)[:_MAX_OFFERED]]


def as_typed(path: str) -> str:
    """How a path stands in a message."""
    if " " not in path:
        return f"@{path}"
    return f'@"{path}' if path.endswith("/") else f'@"{path}"'
