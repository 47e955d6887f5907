"""Blocks of one model that outlive the process: written behind, found again after a restart.

Its two threads do all the work on disk. Whatever goes wrong there turns the store off with one
line in the log; nobody who asks it gets an error.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event

from edgeserve.cache.disk_folder import DAILY_BYTES, DiskFolder
from edgeserve.cache.disk_format import NewBlock, segment_bytes, segment_of
from edgeserve.cache.disk_reader import DiskReader, Key, Reading
from edgeserve.cache.disk_segments import SegmentTables
from edgeserve.cache.disk_writer import DiskWriter
from edgeserve.home_process import HomeProcess

_SEGMENTS_IN_BOUND = 8
_RESCAN_SECONDS = 1.0


class DiskStore:
    """`identity`, 16 bytes, tells apart what makes other keys and values; `about` is for people.
    At most `bound_bytes` lie in `folder`, whose other models' blocks go first if unused longest.
    """

    def __init__(
        self,
        folder: DiskFolder,
        identity: bytes,
        about: Mapping[str, str],
        *,
        bound_bytes: int,
        daily_bytes: int = DAILY_BYTES,
    ) -> None:
        self._folder = folder
        self._identity = identity
        self._about = about
        self._bound_bytes = bound_bytes
        self._daily_bytes = daily_bytes
        self._tables = SegmentTables(folder.root / identity.hex(), identity)
        self._off = Event()
        self._limit_told = False
        self._scanned = 0.0
        self._home = HomeProcess()
        self._reader = DiskReader(self._open, self._tables.read, self.turn_off)
        self._writer = DiskWriter(self._write, self._touch, bound_bytes // _SEGMENTS_IN_BOUND)
        # Also at exit, for an engine that nobody closed.
        weakref.finalize(self, _close, self._reader, self._writer, self._home)

    @property
    def is_on(self) -> bool:
        return not self._off.is_set()

    def wait_ready(self, seconds: float) -> bool:
        """Whether it is known by then what lies on disk."""
        return self._reader.is_ready.wait(seconds)

    def has(self, group: int, key: bytes) -> bool:
        """Whether a block can be read."""
        return self.is_on and self._tables.has(group, key)

    def refresh(self) -> None:
        """Learns what other processes wrote, once a second at most."""
        if not self.is_on or time.monotonic() - self._scanned < _RESCAN_SECONDS:
            return
        self._guarded(self._scan)

    def read(self, keys: Sequence[Key], block_bytes: int) -> Reading:
        """Starts to read blocks, of about so many bytes each."""
        reading = Reading(keys, block_bytes)
        self._reader.start(reading)
        return reading

    def wants(self, group: int, key: bytes) -> bool:
        """Whether a block is neither stored nor about to be."""
        return (
            self.is_on
            and not self._tables.has(group, key)
            and not self._writer.is_pending(group, key)
        )

    @property
    def has_room(self) -> bool:
        """Whether blocks can be added. The bound for what waits is in memory, not on disk."""
        return self._writer.has_room

    def wait_for_room(self, seconds: float) -> bool:
        return self._writer.wait_for_room(seconds)

    def add(self, block: NewBlock) -> None:
        """To be written within a second, if the disk keeps up."""
        self._writer.add(block)

    def add_used(self, keys: Sequence[Key]) -> None:
        """These blocks, and those before them, were of use: others are to go before them."""
        if self.is_on:
            self._writer.add_used(keys)

    def turn_off(self, reason: object) -> None:
        """For good; one line says why."""
        if not self._off.is_set():
            self._off.set()
            self._warn(f"no prompts are kept on disk any more: {reason}; everything else goes on")

    def close(self, seconds: float) -> None:
        """Writes what is pending, for so long at most. Twice is fine."""
        _close(self._reader, self._writer, self._home, seconds)

    def _open(self) -> None:
        def make_and_scan() -> None:
            self._folder.open_model(self._identity.hex(), self._about)
            self._scan()

        self._guarded(make_and_scan)

    def _scan(self) -> None:
        self._scanned = time.monotonic()
        self._tables.scan()

    def _write(self, blocks: Sequence[NewBlock]) -> None:
        self._guarded(lambda: self._write_segment(blocks))

    def _write_segment(self, blocks: Sequence[NewBlock]) -> None:
        num_bytes = segment_bytes(blocks)
        table, stored = segment_of(self._identity, blocks)
        folder = self._folder.open_model(self._identity.hex(), self._about)
        with self._folder.locked() as is_ours:
            if not is_ours or self._is_past_limit(num_bytes):
                return
            if not self._folder.make_room(num_bytes, self._bound_bytes):
                return
            self._folder.open_model(self._identity.hex(), self._about)  # room may have taken it
            name = self._folder.write_segment(folder, table, blocks)
            self._folder.add_written(num_bytes)
        self._tables.add(name, stored)
        before = self._tables.lineage(_befores(blocks))
        self._folder.touch(list(dict.fromkeys([folder / name, *before])))

    def _is_past_limit(self, num_bytes: int) -> bool:
        is_past = self._folder.written_today() + num_bytes > self._daily_bytes
        if is_past and not self._limit_told:
            self._warn("no more prompts are kept on disk today: the day's limit is reached")
        self._limit_told = is_past
        return is_past

    def _touch(self, keys: Sequence[Key]) -> None:
        self._guarded(lambda: self._folder.touch(self._tables.lineage(keys)))

    def _warn(self, message: str) -> None:
        import logging  # takes long, and this is rare

        logging.getLogger(__name__).warning("%s: %s", self._folder.root, message)

    def _guarded(self, work: Callable[[], None]) -> None:
        """The edge to the disk: its errors, of whatever kind, end here."""
        if not self.is_on:
            return
        try:
            work()
        except Exception as error:
            self.turn_off(error)


def _befores(blocks: Sequence[NewBlock]) -> Iterator[Key]:
    return ((block.group, block.before) for block in blocks)


def _close(reader: DiskReader, writer: DiskWriter, home: HomeProcess, seconds: float = 2.0) -> None:
    if home.is_here:
        reader.close()
        writer.close(seconds)
