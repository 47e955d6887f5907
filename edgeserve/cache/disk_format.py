"""A segment: a file of some blocks' keys and values, behind a table that says which they are.

Bytes and open files only. Which folder, who wants the blocks and when they go is for others.

    magic, number of blocks                        16 bytes
    of each block: group, checksum, size, key, key before      80 bytes
    digest of all that, and of whose blocks they are           16 bytes
    the blocks, one after another
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

_MAGIC = b"ESKV0001"
_START = struct.Struct("<8sQ")
_ROW = struct.Struct("<IIQ32s32s")
_DIGEST_BYTES = 16


# A FIFO that was put there would be waited for, and a link followed.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


class SegmentError(Exception):
    """What lies there is no segment of ours, or no longer whole."""


class NewBlock(NamedTuple):
    """A block to be stored. `key` is its hash in the prefix index, `before` its predecessor's."""

    group: int
    key: bytes
    before: bytes
    data: bytes


class StoredBlock(NamedTuple):
    """A block in a segment: its bytes are `num_bytes` from `offset` on."""

    group: int
    key: bytes
    before: bytes
    offset: int
    num_bytes: int
    checksum: int


def segment_of(identity: bytes, blocks: Sequence[NewBlock]) -> tuple[bytes, list[StoredBlock]]:
    """What comes before the blocks' data in a segment, and where each block will lie."""
    rows = [
        _ROW.pack(block.group, zlib.crc32(block.data), len(block.data), block.key, block.before)
        for block in blocks
    ]
    table = _START.pack(_MAGIC, len(blocks)) + b"".join(rows)
    table += _digest(identity, table)
    return table, _placed(table[_START.size : -_DIGEST_BYTES], len(table))


def segment_bytes(blocks: Sequence[NewBlock]) -> int:
    """Size of the file that holds them."""
    table = _START.size + _ROW.size * len(blocks) + _DIGEST_BYTES
    return table + sum(len(block.data) for block in blocks)


def open_segment(path: Path) -> int:
    """A descriptor. Raises OSError."""
    return os.open(path, _OPEN_FLAGS)


def read_count(descriptor: int) -> int:
    """Blocks in an open segment, as its first bytes say. Raises SegmentError, OSError."""
    start = os.pread(descriptor, _START.size, 0)
    if len(start) != _START.size or not start.startswith(_MAGIC):
        raise SegmentError("no segment of this version")
    return int(_START.unpack(start)[1])


def read_table(descriptor: int, identity: bytes) -> list[StoredBlock]:
    """The blocks of an open segment. Raises SegmentError, OSError."""
    size = os.fstat(descriptor).st_size
    count = read_count(descriptor)
    num_bytes = _START.size + _ROW.size * count + _DIGEST_BYTES
    if num_bytes > size:
        raise SegmentError(f"{count} blocks in {size} bytes")
    table = os.pread(descriptor, num_bytes, 0)
    if len(table) != num_bytes or table[-_DIGEST_BYTES:] != _digest(
        identity, table[:-_DIGEST_BYTES]
    ):
        raise SegmentError("the table is damaged, or another model's")
    blocks = _placed(table[_START.size : -_DIGEST_BYTES], num_bytes)
    if size != num_bytes + sum(block.num_bytes for block in blocks):
        raise SegmentError("the file is cut")
    return blocks


def read_block(descriptor: int, block: StoredBlock) -> bytes:
    """A block's data. Raises SegmentError if it is not what was stored, OSError."""
    data = os.pread(descriptor, block.num_bytes, block.offset)
    if len(data) != block.num_bytes or zlib.crc32(data) != block.checksum:
        raise SegmentError("a block is damaged")
    return data


def _digest(identity: bytes, table: bytes) -> bytes:
    return blake2b(identity + table, digest_size=_DIGEST_BYTES).digest()


def _placed(rows: bytes, offset: int) -> list[StoredBlock]:
    blocks: list[StoredBlock] = []
    for group, checksum, num_bytes, key, before in _ROW.iter_unpack(rows):
        blocks.append(StoredBlock(group, key, before, offset, num_bytes, checksum))
        offset += num_bytes
    return blocks
