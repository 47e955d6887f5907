"""What is remembered of this machine between two runs: how fast it read memory at its best.

A file of the cache folder, which may be shared by machines and may go at any time.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from edgeserve.loader.machine import ASSUMED_BYTES_PER_S, read_bandwidth_bytes_per_s


class _Notes(msgspec.Struct):
    read_bytes_per_s: float = 0.0
    done: list[str] = []


class MachineNotes:
    """`node` tells machines apart; `measure` gives bytes/s, or None where it cannot.

    Where the file cannot be read or written nothing is remembered: all is as the first time.
    """

    def __init__(
        self,
        cache_dir: Path,
        node: str | None = None,
        measure: Callable[[], float | None] = read_bandwidth_bytes_per_s,
    ) -> None:
        self._path = cache_dir / "machines.json"
        self._node = platform.node() if node is None else node
        self._measure = measure

    def read_bandwidth_bytes_per_s(self) -> float:
        """The best that was ever measured, now included: a busy machine is no slower one."""
        now = self._measure() or 0.0
        machines = self._read()
        notes = machines.setdefault(self._node, _Notes())
        if now > notes.read_bytes_per_s:
            notes.read_bytes_per_s = now
            self._write(machines)
        return notes.read_bytes_per_s or ASSUMED_BYTES_PER_S

    def first_time(self, what: str) -> bool:
        """Whether this was never asked before on this machine."""
        machines = self._read()
        notes = machines.setdefault(self._node, _Notes())
        if what in notes.done:
            return False
        notes.done.append(what)
        self._write(machines)
        return True

    def _read(self) -> dict[str, _Notes]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Notes])
        except (OSError, msgspec.DecodeError):
            return {}

    def _write(self, machines: dict[str, _Notes]) -> None:
        beside = self._path.with_suffix(f".{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(msgspec.json.encode(machines))
            beside.replace(self._path)
        except OSError:
            with suppress(OSError):
                beside.unlink()
