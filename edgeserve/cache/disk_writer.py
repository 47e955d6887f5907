"""Blocks on their way from memory to disk, gathered and written by a thread behind the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread, current_thread

from edgeserve.cache.disk_format import NewBlock

Key = tuple[int, bytes]
"""(cache group, hash)."""
_PENDING_BYTES = 64 * 2**20
# A file costs half a millisecond, a block in it a third of one (SmolLM2): so some at once, but
# soon enough to be there two seconds after they were computed.
_BATCH_BYTES = 16 * 2**20
_GATHER_SECONDS = 0.75


class DiskWriter:
    """A thread that hands what it was given to `write`, in batches of at most `batch_bytes`, and
    to `touch` which blocks were used. Holds 64 MiB at most; what it has no room for is refused."""

    def __init__(
        self,
        write: Callable[[Sequence[NewBlock]], None],
        touch: Callable[[Sequence[Key]], None],
        batch_bytes: int,
    ) -> None:
        self._write = write
        self._touch = touch
        self._batch_bytes = min(_BATCH_BYTES, batch_bytes)
        self._changed = Condition()
        self._blocks: deque[NewBlock] = deque()
        self._keys: set[Key] = set()
        self._num_bytes = 0
        self._used: list[Key] = []
        self._is_closing = False
        self._thread = Thread(target=self._run, name="edgeserve-disk-writer", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        return self._num_bytes < _PENDING_BYTES

    def is_pending(self, group: int, key: bytes) -> bool:
        return (group, key) in self._keys

    def add(self, block: NewBlock) -> None:
        with self._changed:
            self._blocks.append(block)
            self._keys.add((block.group, block.key))
            self._num_bytes += len(block.data)
            self._changed.notify_all()

    def add_used(self, keys: Sequence[Key]) -> None:
        with self._changed:
            self._used.extend(keys)
            self._changed.notify_all()

    def wait_for_room(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.has_room, seconds)

    def close(self, seconds: float) -> None:
        """Writes what is pending, for so long at most. Twice is fine."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._blocks or self._used or self._is_closing)
                self._changed.wait_for(self._is_enough, _GATHER_SECONDS)
                batch, used = self._take_batch(), list(dict.fromkeys(self._used))
                self._used.clear()
                if not batch and not used:
                    return
            if batch:
                self._write(batch)
            if used:
                self._touch(used)
            with self._changed:
                self._keys -= {(block.group, block.key) for block in batch}
                self._num_bytes -= sum(len(block.data) for block in batch)
                self._changed.notify_all()

    def _is_enough(self) -> bool:
        return self._is_closing or self._num_bytes >= self._batch_bytes

    def _take_batch(self) -> list[NewBlock]:
        batch: list[NewBlock] = []
        num_bytes = 0
        while self._blocks:
            num_bytes += len(self._blocks[0].data)
            if batch and num_bytes > self._batch_bytes:
                break
            batch.append(self._blocks.popleft())
        return batch
