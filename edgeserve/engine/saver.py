"""Carries full blocks from the runner to the disk store, a few after each step.

The engine's thread copies bytes; the store's own thread writes them.
"""

from __future__ import annotations

import time
from collections import deque

from edgeserve.cache.disk_format import NewBlock
from edgeserve.cache.disk_store import DiskStore
from edgeserve.cache.kv_cache import KVCache
from edgeserve.runner.batch import BLOCK_SIZE
from edgeserve.runner.runner import Runner

_LEAST_BYTES = 2**20
"""Each step may copy that much (0.3 ms), and twice what it computed itself on average."""
_CLOSING_SECONDS = 2.0
SAVING_PAUSE_SECONDS = 0.005
"""Between two bites with nothing to compute: 200 MB/s, and the core is free for others."""


class Saver:
    """Without a store it does nothing."""

    def __init__(self, cache: KVCache, runner: Runner, store: DiskStore | None) -> None:
        self._cache = cache
        self._runner = runner
        self._store = store
        self._unsaved: deque[tuple[int, bytes, bytes]] = deque()
        groups = range(len(runner.cache_groups))
        self._row_bytes = sum(runner.block_bytes(group) for group in groups) // BLOCK_SIZE
        if store is not None:
            cache.unsaved = self._unsaved

    @property
    def has_unsaved(self) -> bool:
        """Whether blocks wait for steps to carry them, or for somebody who has nothing to do."""
        return bool(self._unsaved)

    def save_some(self, num_rows: int = 0) -> None:
        """After a step of `num_rows`: never much, against the time that so many rows take."""
        store = self._store
        if store is None or not self._unsaved:
            return
        try:
            self._carry(store, _LEAST_BYTES + 2 * num_rows * self._row_bytes)
        except Exception as error:  # no request fails because it could not be kept
            store.turn_off(error)
        if not store.is_on:
            self._unsaved.clear()

    def close(self) -> None:
        """Saves what is left, as far as two seconds are enough."""
        store = self._store
        if store is None:
            return
        deadline = time.monotonic() + _CLOSING_SECONDS
        while self._unsaved and store.wait_for_room(deadline - time.monotonic()):
            self.save_some()
        store.close(max(0.0, deadline - time.monotonic()))

    def _carry(self, store: DiskStore, num_bytes: int) -> None:
        while self._unsaved and num_bytes > 0 and store.has_room:
            group, key, before = self._unsaved.popleft()
            block_id = self._cache.block_of(group, key)
            if block_id is None or not store.wants(group, key):  # evicted, or there already
                continue
            data = self._runner.read_blocks(group, [block_id])
            store.add(NewBlock(group, key, before, data))
            num_bytes -= len(data)
