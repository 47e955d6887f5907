"""The names that a shared library exports, read from ELF, Mach-O and PE files of any system."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

_MACHO_EXPORTS_TRIE = 0x80000033
_MACHO_DYLD_INFO = (0x22, 0x80000022)


def exported_names(path: Path) -> set[str]:
    """Names as C has them. Raises ValueError for a file of another kind."""
    data = path.read_bytes()
    if data.startswith(b"\x7fELF"):
        return _elf_names(path)
    if data.startswith(b"\xcf\xfa\xed\xfe"):
        return {name.removeprefix("_") for name in _macho_names(data)}
    if data.startswith(b"MZ"):
        return set(_pe_names(data))
    raise ValueError(f"{path}: begins with {data[:4]!r}")


def _elf_names(path: Path) -> set[str]:
    nm = shutil.which("nm") or "nm"
    listed = subprocess.run(
        [nm, "--dynamic", "--defined-only", "--format=posix", path],
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.split()[0] for line in listed.stdout.splitlines()}


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("ascii")


def _macho_names(data: bytes) -> Iterator[str]:
    """From the export trie (Apple's mach-o/loader.h)."""
    at, (count,) = 32, struct.unpack_from("<I", data, 16)
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        if command == _MACHO_EXPORTS_TRIE:
            offset, length = struct.unpack_from("<II", data, at + 8)
            yield from _trie_names(data[offset : offset + length], 0, "")
        elif command in _MACHO_DYLD_INFO:
            offset, length = struct.unpack_from("<II", data, at + 40)
            yield from _trie_names(data[offset : offset + length], 0, "")
        at += size


def _trie_names(trie: bytes, at: int, prefix: str) -> Iterator[str]:
    size, at = _uleb128(trie, at)
    if size:
        yield prefix
    at += size
    num_children, at = trie[at], at + 1
    for _ in range(num_children):
        edge = _text(trie, at)
        child, at = _uleb128(trie, at + len(edge) + 1)
        yield from _trie_names(trie, child, prefix + edge)


def _uleb128(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _pe_names(data: bytes) -> Iterator[str]:
    """From the export directory (Microsoft's PE format)."""
    (header,) = struct.unpack_from("<I", data, 0x3C)
    num_sections, optional_size = struct.unpack_from("<2xH12xH", data, header + 4)
    optional = header + 24
    sections = [
        struct.unpack_from("<IIII", data, optional + optional_size + 40 * i + 8)
        for i in range(num_sections)
    ]

    def place(address: int) -> int:
        for virtual_size, virtual_address, _, offset in sections:
            if virtual_address <= address < virtual_address + virtual_size:
                return address - virtual_address + offset
        raise ValueError(f"address {address:#x} is in no section")

    (exports,) = struct.unpack_from("<I", data, optional + 112)
    directory = place(exports)
    (num_names,) = struct.unpack_from("<I", data, directory + 24)
    (names,) = struct.unpack_from("<I", data, directory + 32)
    for i in range(num_names):
        (name,) = struct.unpack_from("<I", data, place(names) + 4 * i)
        yield _text(data, place(name))
