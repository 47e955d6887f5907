"""Which segments of one model hold which blocks: the tables of all of them, in memory.

Safe for several threads. What vanishes from disk is forgotten when somebody looks for it; what
cannot be read is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock

from edgeserve.cache.disk_folder import segment_files
from edgeserve.cache.disk_format import (
    SegmentError,
    StoredBlock,
    open_segment,
    read_block,
    read_table,
)

_Key = tuple[int, bytes]


class SegmentTables:
    """The segments in `folder`. Blocks are found by (cache group, hash)."""

    def __init__(self, folder: Path, identity: bytes) -> None:
        self._folder = folder
        self._identity = identity
        self._lock = Lock()
        self._tables: dict[str, list[StoredBlock]] = {}
        self._places: dict[_Key, tuple[str, StoredBlock]] = {}
        self._modified_ns: int | None = None

    @property
    def num_segments(self) -> int:
        return len(self._tables)

    def has(self, group: int, key: bytes) -> bool:
        return (group, key) in self._places

    def add(self, name: str, blocks: list[StoredBlock]) -> None:
        with self._lock:
            self._tables[name] = blocks
            for block in blocks:
                self._places[block.group, block.key] = name, block

    def scan(self) -> None:
        """Learns of segments that came or went, the newest first. Raises OSError."""
        modified_ns = os.stat(self._folder).st_mtime_ns
        if modified_ns == self._modified_ns:
            return
        files = segment_files(self._folder)
        self._modified_ns = modified_ns
        names = {file.path.name for file in files}
        for gone in [name for name in list(self._tables) if name not in names]:
            self._forget(gone)
        for file in sorted(files, key=lambda file: -file.used_ns):
            if file.path.name not in self._tables:
                self._read_table(file.path)

    def read(self, keys: Iterable[_Key]) -> Iterator[bytes | None]:
        """Each block's data in order, up to the first that is not there: None for it."""
        name, descriptor = "", -1
        try:
            for key in keys:
                place = self._places.get(key)
                if place is None:
                    yield None
                    return
                if place[0] != name:
                    if descriptor >= 0:
                        os.close(descriptor)
                    name, descriptor = place[0], self._open(place[0])
                data = self._read_block(name, descriptor, place[1])
                yield data
                if data is None:
                    return
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def lineage(self, keys: Iterable[_Key]) -> list[Path]:
        """The segments that hold these blocks, then those of all that came before them."""
        with self._lock:
            names: dict[str, None] = {}
            waiting = [place[0] for key in keys if (place := self._places.get(key)) is not None]
            for name in waiting:  # grows
                if name in names:
                    continue
                names[name] = None
                befores = {(block.group, block.before) for block in self._tables[name]}
                found = (self._places.get(before) for before in befores)
                waiting.extend({place[0]: None for place in found if place is not None})
            return [self._folder / name for name in names]

    def _read_table(self, path: Path) -> None:
        try:
            descriptor = open_segment(path)
        except OSError:
            return  # gone again, or not to be read
        try:
            self.add(path.name, read_table(descriptor, self._identity))
        except SegmentError:
            path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def _open(self, name: str) -> int:
        """A descriptor; -1, and the segment forgotten, if it is gone."""
        try:
            return open_segment(self._folder / name)
        except OSError:
            self._forget(name)
            return -1

    def _read_block(self, name: str, descriptor: int, block: StoredBlock) -> bytes | None:
        if descriptor < 0:
            return None
        try:
            return read_block(descriptor, block)
        except (SegmentError, OSError):
            self._forget(name)
            (self._folder / name).unlink(missing_ok=True)
            return None

    def _forget(self, name: str) -> None:
        with self._lock:
            for block in self._tables.pop(name, ()):
                place = self._places.get((block.group, block.key))
                if place is not None and place[0] == name:
                    del self._places[block.group, block.key]
