"""Brings blocks that only the disk store has back into the pool, before a sequence starts.

The store's thread reads them while others compute; the engine's thread copies some before each
step. Sequences wait in the queue meanwhile, at most while something moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass

from edgeserve.cache.block_tables import BlockTables
from edgeserve.cache.disk_reader import Reading
from edgeserve.cache.disk_store import DiskStore
from edgeserve.cache.kv_cache import KVCache
from edgeserve.engine.sequence import Sequence
from edgeserve.runner.batch import BLOCK_SIZE
from edgeserve.runner.runner import Runner

_BITE_BYTES = 8 * 2**20
"""What is copied before a step: 2 ms."""
_WAIT_SECONDS = 0.02
_PATIENCE_SECONDS = 2.0
"""Without anything moving. Then what is missing is computed."""


@dataclass(slots=True)
class _Restore:
    """The blocks that a sequence waits for, and the tables that hold those which it has got."""

    sequence: Sequence
    lacking: list[tuple[int, int]]
    tables: BlockTables
    reading: Reading
    moved_at: float
    num_done: int = 0
    has_ended: bool = False

    def end(self) -> None:
        self.has_ended = True
        self.reading.cancel()


class Restorer:
    """`clock` gives seconds."""

    def __init__(
        self,
        cache: KVCache,
        runner: Runner,
        store: DiskStore,
        clock: Callable[[], float],
    ) -> None:
        self._cache = cache
        self._runner = runner
        self._store = store
        self._clock = clock
        self._opened_at = clock()
        self._restores: dict[Sequence, _Restore] = {}
        self._followed: dict[Sequence, _Restore] = {}
        # They gave way, and start with what they find.
        self._settled: set[Sequence] = set()

    @property
    def tables(self) -> list[BlockTables]:
        """Those that hold blocks beside the sequences' own."""
        return [restore.tables for restore in self._restores.values()]

    def num_findable(self, hashes: Items[bytes], token_ids: Items[int]) -> int:
        """How many tokens of a prefix are in memory or on disk, as far as is known by now."""
        store = self._store
        if not store.is_on or not store.wait_ready(0.0):
            return 0
        store.refresh()
        return self._cache.find(hashes, token_ids, store.has)[0] * BLOCK_SIZE

    def awaits(self, sequence: Sequence) -> bool:
        """Whether blocks that it can use are on their way."""
        if not self._store.is_on or sequence in self._settled:
            return False
        restore = self._restores.get(sequence) or self._followed.get(sequence)
        if restore is None:
            return self._begin(sequence)
        if self._clock() - restore.moved_at > _PATIENCE_SECONDS:
            restore.end()
        if restore.has_ended and restore.sequence is not sequence:
            del self._followed[sequence]
            return self._begin(sequence)
        return not restore.has_ended

    def started(self, sequence: Sequence) -> None:
        """It has taken what it found: notes that this was of use, and lets go of the rest."""
        self.forget(sequence)
        found = sequence.block_tables.num_indexed
        if found:
            groups = range(len(sequence.block_tables.groups))
            last = sequence.prefix_hashes[found]
            self._store.add_used([(group, last) for group in groups])

    def forget(self, sequence: Sequence) -> None:
        """It waits no longer; the next time is another. What was restored can be found still."""
        self._settled.discard(sequence)
        self._followed.pop(sequence, None)
        restore = self._restores.pop(sequence, None)
        if restore is not None:
            restore.end()
            self._cache.release(restore.tables)

    def give_way(self) -> bool:
        """Lets go of all blocks, for those who run lack some. Whether there were any."""
        waiting = list(self._restores)
        for sequence in waiting:
            self.forget(sequence)
            self._settled.add(sequence)
        return bool(waiting)

    def fill_some(self) -> None:
        """Before a step: copies what has been read, some megabytes at most."""
        num_bytes = _BITE_BYTES
        try:
            for restore in list(self._restores.values()):
                while num_bytes > 0 and not restore.has_ended and restore.reading.wait(0.0):
                    num_bytes -= self._fill_one(restore, restore.reading.next())
        except Exception as error:  # no request fails because of the disk
            self._store.turn_off(error)

    def wait(self) -> None:
        """With nothing to compute: until a block arrives, or a moment has passed."""
        reading = next((r.reading for r in self._restores.values() if not r.has_ended), None)
        if reading is not None:
            reading.wait(_WAIT_SECONDS)
        else:
            self._store.wait_ready(_WAIT_SECONDS)

    def _begin(self, sequence: Sequence) -> bool:
        """Starts to read what the store adds to a sequence's prefix. Whether there is anything."""
        store = self._store
        if not store.wait_ready(0.0):
            return self._clock() - self._opened_at < _PATIENCE_SECONDS
        store.refresh()
        hashes = sequence.prefix_hashes
        self._cache.hash_prefix(hashes, sequence.token_ids)
        plan = self._cache.begin_restore(hashes, sequence.token_ids, store.has)
        if plan is None:
            return False
        tables, lacking = plan
        keys = [(group, hashes[block + 1]) for group, block in lacking]
        other = self._reading_any(keys)
        if other is not None:
            self._cache.release(tables)
            self._followed[sequence] = other
            return True
        reading = store.read(keys, max(map(self._runner.block_bytes, {g for g, _ in keys})))
        self._restores[sequence] = _Restore(sequence, lacking, tables, reading, self._clock())
        return True

    def _reading_any(self, keys: Iterable[tuple[int, bytes]]) -> _Restore | None:
        wanted = set(keys)
        live = (restore for restore in self._restores.values() if not restore.has_ended)
        return next((r for r in live if not wanted.isdisjoint(r.reading.keys)), None)

    def _fill_one(self, restore: _Restore, data: bytes | None) -> int:
        """Copies a block's data into the pool; how many bytes that were."""
        sequence = restore.sequence
        group, block = restore.lacking[restore.num_done]
        if data is None:
            self.forget(sequence)  # and begins again, with what the store has still
            return 0
        block_id = self._cache.take_one(restore.tables, group)
        if block_id is None:
            restore.end()
            return 0
        self._runner.write_blocks(group, [block_id], data)
        self._cache.index_restored(
            group, sequence.prefix_hashes, sequence.token_ids, block, block_id
        )
        restore.num_done += 1
        restore.moved_at = self._clock()
        if restore.num_done == len(restore.lacking):
            restore.end()
        return len(data)
