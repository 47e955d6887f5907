"""A forward cursor over the first bytes of an open file, read in growing chunks.

Every length is compared with the bytes that remain before anything is allocated or looped over.
Reads with pread and keeps no map, so a file cut under a running process is an error, not a signal.
It knows numbers and strings as GGUF writes them, and nothing of what they mean.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from edgeserve.errors import (
    HeaderTooLargeError,
    InvalidTextError,
    ModelFileError,
    StringLengthError,
    TruncatedHeaderError,
)

MAX_HEADER_BYTES = 128 << 20
"""The largest vocabularies take 20 MB; the bound keeps a sparse file of terabytes out of RAM."""

_FIRST_CHUNK_BYTES = 64 << 10
_LENGTH = struct.Struct("<Q")
_SHOWN_CHARACTERS = 80


def shown(name: str) -> str:
    """A name out of a file, safe and short enough for a message on a terminal."""
    if not name.isprintable():
        name = ascii(name)
    return name if len(name) <= _SHOWN_CHARACTERS else name[: _SHOWN_CHARACTERS - 3] + "..."


class HeaderReader:
    """Reads little-endian values one after another; `position` is the next byte.

    Raises ModelFileErrors that carry `path` and the byte, and OSError if the disk fails.
    """

    __slots__ = ("_descriptor", "_loaded", "path", "position", "size")

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        self.position = 0
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        self._loaded = b""

    @property
    def remaining(self) -> int:
        return self.size - self.position

    def defect(
        self, kind: type[ModelFileError], field: str, reason: str, offset: int
    ) -> ModelFileError:
        """An error about this file, to raise."""
        return kind(field, reason, offset=offset, path=self.path)

    def peek(self, num_bytes: int) -> bytes:
        """Up to `num_bytes` from the position on, fewer at the end of the file; moves nothing."""
        end = min(self.position + num_bytes, self.size)
        self._load(end, "file")
        return self._loaded[self.position : end]

    def uint32(self, field: str) -> int:
        return int.from_bytes(self._take(4, field), "little")

    def uint64(self, field: str) -> int:
        return int.from_bytes(self._take(8, field), "little")

    def string(self, field: str) -> str:
        """A 64-bit length and that many bytes of UTF-8."""
        return self.strings(1, field)[0]

    def strings(self, count: int, field: str) -> tuple[str, ...]:
        """`count` strings, of which the first that is damaged is named `field[index]`."""
        texts: list[str] = []
        try:
            while len(texts) < count:
                self._load_string(_element(field, len(texts), count))
                self._append_loaded_strings(texts, count)
        except UnicodeDecodeError as error:
            # The format says UTF-8. Passing stray bytes on as surrogates would only move the
            # failure to whoever first encodes the text: a tokenizer, a terminal, a JSON answer.
            raise self.defect(
                InvalidTextError,
                _element(field, len(texts), count),
                f"is not UTF-8 (byte {error.start} of the string): the file is damaged",
                self.position,
            ) from None
        return tuple(texts)

    def numbers(self, code: str, count: int, field: str) -> tuple[int | float, ...]:
        """`count` numbers of the struct module's type `code`."""
        start = self.position
        end = start + struct.calcsize(f"<{code}") * count
        self._load(end, field)
        self.position = end
        return struct.unpack_from(f"<{count}{code}", self._loaded, start)

    def _take(self, num_bytes: int, field: str) -> bytes:
        start = self.position
        self._load(start + num_bytes, field)
        self.position = start + num_bytes
        return self._loaded[start : self.position]

    def _append_loaded_strings(self, texts: list[str], count: int) -> None:
        """Goes on until there are `count`, or one is not wholly in memory.

        Opening a file with a vocabulary of 262,144 is mostly this loop: hence the locals.
        """
        loaded = self._loaded
        available = len(loaded)
        length_at = _LENGTH.unpack_from
        append = texts.append
        position = self.position
        try:
            for _ in range(count - len(texts)):
                start = position + 8
                if start > available:
                    break
                (length,) = length_at(loaded, position)
                end = start + length
                if end > available:
                    break
                append(loaded[start:end].decode())
                position = end
        finally:
            self.position = position

    def _load_string(self, field: str) -> None:
        """Have the whole of the string at the position in memory."""
        start = self.position + _LENGTH.size
        self._load(start, field)
        (length,) = _LENGTH.unpack_from(self._loaded, self.position)
        if length > self.size - start:
            raise self.defect(
                StringLengthError,
                field,
                f"a string of {length} bytes, but the file has {self.size - start} bytes left",
                self.position,
            )
        self._load(start + length, field)

    def _load(self, end: int, field: str) -> None:
        """Have the bytes before `end` in memory; doubles what is there, to read rarely."""
        if end <= len(self._loaded):
            return
        if end > self.size:
            raise self.defect(
                TruncatedHeaderError,
                field,
                f"needs {end - self.position} bytes and the file has {self.remaining} left; "
                "it is incomplete, download it again",
                self.position,
            )
        if end > MAX_HEADER_BYTES:
            raise self.defect(
                HeaderTooLargeError,
                field,
                f"the file's description runs past {MAX_HEADER_BYTES >> 20} MiB; "
                "no model needs that, so the file is damaged",
                self.position,
            )
        target = min(max(end, 2 * len(self._loaded), _FIRST_CHUNK_BYTES), self.size)
        while len(self._loaded) < target:
            chunk = os.pread(self._descriptor, target - len(self._loaded), len(self._loaded))
            if not chunk:
                raise self.defect(
                    TruncatedHeaderError, field, "the file was cut while being read", self.position
                )
            self._loaded += chunk


def _element(field: str, index: int, count: int) -> str:
    return field if count == 1 else f"{field}[{index}]"
