"""How much memory this process may still take, and how fast it reads: what decides which model.

Asks the system and the control group; knows no models.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from edgeserve.errors import EdgeServeError

ASSUMED_BYTES_PER_S = 20e9
"""One DDR4 module's worth, where it cannot be measured."""
_ASSUMED_BYTES = 2 << 30  # what a machine that runs this at all has, where nobody says
_PROBE_PASSES = 3
_ROOT = Path("/")


def available_memory(platform: str = sys.platform) -> int:
    """Bytes that can still be allocated without swapping."""
    known = None
    if platform.startswith("linux"):
        known = linux_available_bytes(_ROOT)
    elif platform == "darwin":
        known = _macos_available_bytes()
    elif platform == "win32":
        known = _windows_available_bytes()
    return _ASSUMED_BYTES if known is None else known


def linux_available_bytes(root: Path) -> int | None:
    """The smaller of MemAvailable and what the control groups leave, below `root`."""
    free = [_meminfo_available(root), *_cgroup_rooms(root)]
    known = [value for value in free if value is not None]
    return max(0, min(known)) if known else None


def resident_memory() -> int | None:
    """Bytes of memory that this process holds now; None where only its peak is told."""
    pages = _text(_ROOT / "proc/self/statm").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None


def read_bandwidth_bytes_per_s(num_threads: int | None = None) -> float | None:
    """How fast all cores together read memory, measured in about a tenth of a second.

    None where it cannot be: there is no room, or the native library cannot be used.
    """
    try:
        from edgeserve.binding.library import native_num_cores
        from edgeserve.binding.meter import NativeMeter

        meter = NativeMeter(num_threads=num_threads or native_num_cores(), kernels=None)
    except (EdgeServeError, ImportError):
        return None
    try:
        return max(meter.read_bytes_per_s() for _ in range(_PROBE_PASSES))
    finally:
        meter.close()


def _meminfo_available(root: Path) -> int | None:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _text(root / "proc/meminfo"), re.M)
    return int(match[1]) * 1024 if match else None


def _cgroup_rooms(root: Path) -> Iterator[int]:
    """What each limit above this process leaves. A limit counts wherever it stands on the path."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        hierarchy, controllers, path = (*line.split(":", 2), "", "")[:3]
        if hierarchy == "0":
            base, limit, usage = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(parts) + 1):
            room = _room(base.joinpath(*parts[:depth]), limit, usage)
            if room is not None:
                yield room


def _room(folder: Path, limit_file: str, usage_file: str) -> int | None:
    limit, usage = _text(folder / limit_file).strip(), _text(folder / usage_file).strip()
    if not limit.isdigit() or not usage.isdigit():
        return None  # "max", or no such group in this view
    # Pages of files that were read are given back when memory is asked for.
    match = re.search(r"^(?:total_)?inactive_file (\d+)", _text(folder / "memory.stat"), re.M)
    reclaimable = int(match[1]) if match else 0
    return int(limit) - max(0, int(usage) - reclaimable)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _macos_available_bytes() -> int | None:
    import subprocess  # which starting on other systems does not need

    try:
        done = subprocess.run(
            ["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return macos_available_bytes(done.stdout)


def macos_available_bytes(vm_stat: str) -> int | None:
    """From what vm_stat prints: pages that are free, or hold what can be dropped."""
    page = re.search(r"page size of (\d+) bytes", vm_stat)
    kinds = r"^Pages (?:free|inactive|speculative|purgeable):\s+(\d+)"
    pages = [int(number) for number in re.findall(kinds, vm_stat, re.M)]
    return int(page[1]) * sum(pages) if page and pages else None


def _windows_available_bytes() -> int | None:
    import ctypes

    class MemoryStatus(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load_percent", ctypes.c_uint32),
            ("total_physical", ctypes.c_uint64),
            ("available_physical", ctypes.c_uint64),
            ("rest", ctypes.c_uint64 * 5),
        )

    status = MemoryStatus(length=ctypes.sizeof(MemoryStatus))
    kernel32 = getattr(ctypes, "windll").kernel32  # noqa: B009 (absent from other platforms' stubs)
    if not kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(status.available_physical)
