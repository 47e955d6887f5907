"""The folder that all models' segments share: its lock, its bound, and what was written today.

    .lock  written          who writes; how much was written on which day
    <identity>/model.json   what the model is called, for people
    <identity>/<name>.kv    segments, by when they were last of use

Files are for their owner only. What is not named as above is not ours, and left alone. Writers hold
the lock; readers need none, as files appear whole and never change.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

try:
    import fcntl
except ImportError:  # not on Windows, where the store stays off
    fcntl = None

from edgeserve.cache.disk_format import NewBlock, SegmentError, open_segment, read_count

DAILY_BYTES = 32 * 2**30
"""What all processes together write in a day at most: flash wears out."""
MAX_SEGMENTS = 4096
"""All their tables are read when a model starts: a tenth of a second."""
_LEAVE_FREE_BYTES = 512 * 2**20
_LOCK_SECONDS = 1.0
_LOCK_POLL_SECONDS = 0.01
# A segment used later than that from now dates from before the clock was set back.
_CLOCK_SLACK_NS = 60 * 10**9
_MODEL = re.compile(r"[0-9a-f]{32}")
_SEGMENT = re.compile(r"[0-9a-f]{24}\.kv")
_UNFINISHED = re.compile(r"[0-9a-f]{24}\.tmp")
_ABOUT, _LOCK, _WRITTEN = "model.json", ".lock", "written"


class SegmentFile(NamedTuple):
    path: Path
    num_bytes: int
    used_ns: int


class ModelContents(NamedTuple):
    """What is kept of one model. `about` is what was said of it when the first was."""

    about: Mapping[str, str]
    num_bytes: int
    num_blocks: int
    used_s: float


def segment_files(folder: Path) -> list[SegmentFile]:
    """One model's segments. Raises OSError."""
    return _files(folder, _SEGMENT)


class DiskFolder:
    """`clock` gives seconds since 1970. Every method may raise OSError."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self.root = root
        self._clock = clock

    def open_model(self, identity: str, about: Mapping[str, str]) -> Path:
        """A model's own folder, made where it is missing."""
        if fcntl is None:
            raise OSError("this system cannot lock files")
        folder = self.root / identity
        for path in (self.root, folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)  # fails for a folder that another user made, who could read in it
        with contextlib.suppress(FileExistsError), _create(folder / _ABOUT) as file:
            import json  # once a model

            file.write(json.dumps(dict(about)).encode() + b"\n")
        return folder

    @contextlib.contextmanager
    def locked(self) -> Generator[bool]:
        """Holds the folder against other writers, if they let go of it within a second."""
        assert fcntl is not None
        descriptor = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield _try_lock(descriptor)
        finally:
            os.close(descriptor)

    def write_segment(self, folder: Path, table: bytes, blocks: Sequence[NewBlock]) -> str:
        """A new file, whole or not at all; its name. Under the lock."""
        name = os.urandom(12).hex()
        unfinished = folder / f"{name}.tmp"
        try:
            with _create(unfinished) as file:
                file.write(table)
                for block in blocks:
                    file.write(block.data)
            # No fsync: after a power cut the checksums find what is missing.
            unfinished.rename(folder / f"{name}.kv")
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        return f"{name}.kv"

    def make_room(self, num_bytes: int, bound_bytes: int) -> bool:
        """Removes what was of no use longest until so many bytes more fit. Under the lock.

        False, and nothing removed, where they never will. A disk that is nearly full is full.
        """
        if num_bytes > bound_bytes:
            return False
        space = os.statvfs(self.root)
        if space.f_bavail * space.f_frsize - num_bytes < _LEAVE_FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.root))
        for folder in self._models():
            for leftover in _files(folder, _UNFINISHED):  # its writer held the lock, and is gone
                leftover.path.unlink(missing_ok=True)
        latest = self._now_ns() + _CLOCK_SLACK_NS
        files = [file for folder in self._models() for file in segment_files(folder)]
        files.sort(key=lambda file: (file.used_ns <= latest, file.used_ns))
        total = sum(file.num_bytes for file in files)
        for at, file in enumerate(files):
            if total + num_bytes <= bound_bytes and len(files) - at < MAX_SEGMENTS:
                break
            file.path.unlink(missing_ok=True)
            total -= file.num_bytes
            _remove_if_empty(file.path.parent)
        return True

    def touch(self, paths: Sequence[Path]) -> None:
        """They were of use: the first before the others, which go later."""
        now = self._now_ns()
        for at, path in enumerate(paths):
            with contextlib.suppress(FileNotFoundError):
                os.utime(path, ns=(now + 1000 * at, now + 1000 * at))

    def written_today(self) -> int:
        """Bytes. What was written before the clock was set back counts for today."""
        try:
            day, num_bytes = (self.root / _WRITTEN).read_text("ascii").split()
            return int(num_bytes) if day >= self._today() else 0
        except (FileNotFoundError, ValueError):
            return 0

    def add_written(self, num_bytes: int) -> None:
        """Under the lock."""
        text = f"{self._today()} {self.written_today() + num_bytes}\n".encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        with open(os.open(self.root / _WRITTEN, flags, 0o600), "wb") as file:
            file.write(text)
            file.truncate()

    def contents(self) -> list[ModelContents]:
        """What is kept, the most first."""
        found = [_contents(folder) for folder in self._models()]
        return sorted(found, key=lambda model: -model.num_bytes)

    def clear(self) -> int:
        """Erases all segments; how many bytes that frees."""
        freed = 0
        for folder in self._models():
            for file in (*segment_files(folder), *_files(folder, _UNFINISHED)):
                file.path.unlink(missing_ok=True)
                freed += file.num_bytes
            _remove_if_empty(folder)
        return freed

    def _models(self) -> list[Path]:
        try:
            entries = list(os.scandir(self.root))
        except FileNotFoundError:
            return []
        return [
            Path(entry.path)
            for entry in entries
            if _MODEL.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]

    def _today(self) -> str:
        return time.strftime("%Y-%m-%d", time.localtime(self._clock()))

    def _now_ns(self) -> int:
        return int(self._clock() * 1e9)


def _files(folder: Path, names: re.Pattern[str]) -> list[SegmentFile]:
    """Plain files only, so that nothing named like ours is waited for or followed."""
    found: list[SegmentFile] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if not names.fullmatch(entry.name):
                continue
            with contextlib.suppress(FileNotFoundError):
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(info.st_mode):
                    found.append(SegmentFile(Path(entry.path), info.st_size, info.st_mtime_ns))
    return found


def _try_lock(descriptor: int) -> bool:
    assert fcntl is not None
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOCK_POLL_SECONDS)


def _create(path: Path) -> BinaryIO:
    """A new file for its owner only. Raises FileExistsError, OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), "wb")


def _contents(folder: Path) -> ModelContents:
    files = segment_files(folder)
    return ModelContents(
        _about(folder),
        sum(file.num_bytes for file in files),
        sum(_count(file.path) for file in files),
        max((file.used_ns for file in files), default=0) / 1e9,
    )


def _count(path: Path) -> int:
    try:
        descriptor = open_segment(path)
    except OSError:
        return 0
    try:
        return read_count(descriptor)
    except (OSError, SegmentError):
        return 0
    finally:
        os.close(descriptor)


def _about(folder: Path) -> Mapping[str, str]:
    import json  # not in a start

    try:
        found = json.loads((folder / _ABOUT).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(key): str(value) for key, value in cast(dict[str, object], found).items()}


def _remove_if_empty(folder: Path) -> None:
    """A model's folder in which no segment is left, unless somebody else keeps a file there."""
    if not segment_files(folder):
        (folder / _ABOUT).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
