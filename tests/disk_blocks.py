"""Blocks to be stored on disk; and, as a program, a process that stores some.

    python -m tests.disk_blocks FOLDER NAME COUNT BOUND

keeps prefixes NAME 0, NAME 1, … one after the other, and says so of each.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from pathlib import Path

from edgeserve.cache.disk_folder import DiskFolder
from edgeserve.cache.disk_format import NewBlock
from edgeserve.cache.disk_store import DiskStore

IDENTITY = bytes(range(16))
BLOCK_BYTES = 1000


def chain(name: str, length: int, first: int = 0) -> list[NewBlock]:
    """Blocks `first`, … of a prefix, whose hashes and data its name decides."""

    def key(at: int) -> bytes:
        return blake2b(f"{name} {at}".encode(), digest_size=32).digest()

    return [
        NewBlock(0, key(at + 1), key(at), (key(at) * 32)[:BLOCK_BYTES])
        for at in range(first, first + length)
    ]


def keep(root: Path, name: str, count: int, bound: int) -> None:
    for at in range(count):
        store = DiskStore(DiskFolder(root), IDENTITY, {}, bound_bytes=bound)
        for block in chain(f"{name} {at}", 3):
            store.add(block)
        store.close(10)
        print(at, flush=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
