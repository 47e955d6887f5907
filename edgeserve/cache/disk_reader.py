"""Blocks on their way from disk to memory, read by a thread while others compute."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Thread

Key = tuple[int, bytes]
"""(cache group, hash)."""
_AHEAD_BYTES = 32 * 2**20
_POLL_SECONDS = 0.1


class Reading:
    """The blocks of `keys` in their order, as they come."""

    def __init__(self, keys: Sequence[Key], block_bytes: int) -> None:
        self.keys = keys
        self._blocks: queue.Queue[bytes | None]
        self._blocks = queue.Queue(max(2, _AHEAD_BYTES // max(1, block_bytes)))
        self._arrived: list[bytes | None] = []
        self._cancelled = Event()

    def wait(self, seconds: float) -> bool:
        """Whether `next` has an answer by then."""
        if not self._arrived:
            with contextlib.suppress(queue.Empty):
                self._arrived.append(self._blocks.get(seconds > 0, max(0.0, seconds)))
        return bool(self._arrived)

    def next(self) -> bytes | None:
        """The next block's data, or None for one that is not there: then nothing follows."""
        return self._arrived.pop()

    def cancel(self) -> None:
        self._cancelled.set()

    def fill(self, blocks: Iterator[bytes | None]) -> None:
        """Of the thread that reads. Waits for room unless nobody wants the rest."""
        for data in blocks:
            while not self._cancelled.is_set():
                try:
                    self._blocks.put(data, timeout=_POLL_SECONDS)
                    break
                except queue.Full:
                    continue
            if self._cancelled.is_set():
                return


class DiskReader:
    """A thread that does `first`, and then one reading after another. `failed` hears of errors."""

    def __init__(
        self,
        first: Callable[[], None],
        read: Callable[[Sequence[Key]], Iterator[bytes | None]],
        failed: Callable[[Exception], None],
    ) -> None:
        self._first = first
        self._read = read
        self._failed = failed
        self.is_ready = Event()
        """Set once `first` is done."""
        self._readings: queue.SimpleQueue[Reading | None] = queue.SimpleQueue()
        Thread(target=self._run, name="edgeserve-disk-reader", daemon=True).start()

    def start(self, reading: Reading) -> None:
        self._readings.put(reading)

    def close(self) -> None:
        """Never waits; the thread ends by itself."""
        self._readings.put(None)

    def _run(self) -> None:
        try:
            self._first()
        finally:
            self.is_ready.set()
        while (reading := self._readings.get()) is not None:
            try:
                reading.fill(self._read(reading.keys))
            except Exception as error:  # such as no memory
                self._failed(error)
                reading.fill(iter([None]))
