"""What the processor offers, and how much of it this process may use: what `doctor` reports.

Asks the system; what is computed on how many threads is decided in native/.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from edgeserve.frozen import frozen

_ROOT = Path("/")
_MACHINES = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "64-bit ARM", "arm64": "64-bit ARM"}
# The processors that a kernel set is for, and the features it needs, as Linux names them.
_NEEDED_BY_SET = {
    "avx512": (
        "x86-64",
        ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni", "avx2", "fma", "f16c"),
    ),
    "avxvnni": ("x86-64", ("avx_vnni", "avx2", "fma", "f16c")),
    "avx2": ("x86-64", ("avx2", "fma", "f16c")),
    "i8mm": ("64-bit ARM", ("i8mm", "asimddp")),
    "neon": ("64-bit ARM", ("asimddp",)),
}


@frozen
class Processor:
    """None is what this system does not tell. `limit` is the control group's, in whole cores."""

    machine: str
    name: str | None
    features: frozenset[str]
    logical: int | None
    physical: int | None
    allowed: int | None
    limit: int | None


@frozen
class HugePages:
    """`setting` is Linux's for memory that asks for large pages, as ours does; None elsewhere."""

    setting: str | None

    @property
    def are_used(self) -> bool:
        return self.setting in ("always", "madvise")


def read_processor(root: Path = _ROOT, machine: str | None = None) -> Processor:
    """Files are looked up below `root`."""
    cpuinfo = _text(root / "proc/cpuinfo")
    features = re.search(r"^(?:flags|Features)\s*: (.*)$", cpuinfo, re.M)
    name = re.search(r"^model name\s*: (.*)$", cpuinfo, re.M)
    affinity = getattr(os, "sched_getaffinity", None)
    return Processor(
        machine=machine or platform.machine(),
        name=name[1].strip() if name else platform.processor() or None,
        features=frozenset(features[1].split()) if features else frozenset(),
        logical=os.cpu_count(),
        physical=_physical_cores(root),
        allowed=len(affinity(0)) if affinity is not None else None,
        limit=_cgroup_limit(root),
    )


def why_not(kernel_set: str, processor: Processor) -> str:
    """Why a kernel set does not run here."""
    if kernel_set not in _NEEDED_BY_SET:
        return "this build leaves it out"
    kind, needed = _NEEDED_BY_SET[kernel_set]
    if _MACHINES.get(processor.machine.lower()) != kind:
        return f"for {kind}"
    if not processor.features:
        return f"this processor or its system lacks one of {', '.join(needed)}"
    missing = [feature for feature in needed if feature not in processor.features]
    if missing:
        return f"this processor has no {', '.join(missing)}"
    return "this build leaves it out"


def read_huge_pages(root: Path = _ROOT) -> HugePages:
    """Files are looked up below `root`."""
    enabled = _text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", enabled)
    return HugePages(chosen[1] if chosen else None)


def _physical_cores(root: Path) -> int | None:
    lists = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
    cores = {_text(path).strip() for path in lists}
    return len(cores) or None


def _cgroup_limit(root: Path) -> int | None:
    """The tightest cpu.max of this process's control group and those above it, rounded up."""
    limits = list(_cgroup_limits(root))
    return min(limits) if limits else None


def _cgroup_limits(root: Path) -> Iterator[int]:
    match = re.search(r"^0::(.*)$", _text(root / "proc/self/cgroup"), re.M)
    parts = [part for part in match[1].split("/") if part and part != ".."] if match else []
    for depth in range(len(parts) + 1):
        limit = _text((root / "sys/fs/cgroup").joinpath(*parts[:depth]) / "cpu.max").split()
        if len(limit) == 2 and limit[0].isdigit() and limit[1].isdigit() and int(limit[1]) > 0:
            yield -(-int(limit[0]) // int(limit[1]))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
