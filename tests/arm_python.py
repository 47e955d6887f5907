"""A CPython for 64-bit ARM under qemu, with this checkout's package and its library cross-built.

    python -m tests.arm_python -m edgeserve.cli doctor
    python -m tests.arm_python --cpu cortex-a72 -m edgeserve.cli doctor

Python comes from Debian's packages and what the package imports from wheels: fetched once into the
cache folder, where nothing of this system's is changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from edgeserve.config import Config

ROOT = Path(__file__).resolve().parents[1]
PROCESSOR = "cortex-a76"
"""The first design with dot products. qemu's own "max" does more, and emulates it slower."""

# The wheels' C++ needs libstdc++.
DEBIAN_PACKAGES = ("python3", "libstdc++6")
WHEEL_PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_28_aarch64")
_OLDEST_PYTHON = (3, 11)
_SECONDS = 600
# Where pip puts cmake; a test run need not have it on its path.
_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
# What this Python was told does not hold for the other.
_NOT_PASSED_ON = ("PYTHON", "LD_", "OPENBLAS_")

# A package manager of its own: it knows of no installed package and keeps its lists apart.
_APT = """\
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Acquire::Retries "1";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
"""


class Unavailable(Exception):
    """What is missing here: a program, or the network."""


@dataclass(frozen=True, slots=True)
class ArmPython:
    """`base` holds what was fetched, `app` the package, its library and the tests."""

    qemu: str
    base: Path
    app: Path

    def command(self, arguments: Sequence[str], *, cpu: str = PROCESSOR) -> list[str]:
        """The command that runs Python so on an emulated processor. See `environment`."""
        root = self.base / "root"
        return [self.qemu, "-cpu", cpu, "-L", str(root), str(root / "usr/bin/python3"), *arguments]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Ours, less what is about this system's Python and libraries."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_PASSED_ON)}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(self.app), str(self.base / "site")]),
            "PYTHONSAFEPATH": "1",  # the checkout's package has no library for ARM
            "PYTHONNOUSERSITE": "1",
            **(extra or {}),
        }


def arm_python(app: Path) -> ArmPython:
    """Fetches and builds what is not there yet, and puts the package into the empty folder `app`.

    Raises Unavailable.
    """
    qemu = _program("qemu-aarch64-static", "qemu-aarch64")
    _program("aarch64-linux-gnu-gcc")  # what the toolchain file asks for
    base = _base(qemu)
    _stage(app, _library())
    return ArmPython(qemu, base, app)


def _program(*names: str) -> str:
    for name in names:
        if (path := shutil.which(name, path=_PATH)) is not None:
            return path
    raise Unavailable(f"{names[0]} is not installed")


def _run(
    command: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": _PATH, **(environment or {})}
    try:
        return subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no end of {command[0]} within {_SECONDS} s") from None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"


# --- what is fetched ---------------------------------------------------------------------------


def _base(qemu: str) -> Path:
    """The folder with root/ (Python and its libraries) and site/ (wheels)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheels: list[str] = project["dependencies"]
    cache = Config.from_environment().cache_dir / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    made_of = "\n".join([*DEBIAN_PACKAGES, *WHEEL_PLATFORMS, *wheels])
    target = cache / f"arm-python-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    # Test workers share the cache: the first one fetches, the others find it done.
    with FileLock(cache / "arm-python.lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                made = Path(scratch) / "made"
                _fetch_root(Path(scratch) / "apt", made / "root")
                _fetch_wheels(wheels, _version(qemu, made / "root"), made / "site")
                made.rename(target)
    return target


def _fetch_root(apt: Path, root: Path) -> None:
    apt_get, dpkg_deb, tar = _program("apt-get"), _program("dpkg-deb"), _program("tar")
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "apt.conf").write_text(_APT.format(folder=apt), encoding="utf-8")
    own = {"APT_CONFIG": str(apt / "apt.conf"), "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    # Sources that have nothing for ARM make this fail, and are of no concern.
    updated = _run([apt_get, "update", "-qq"], own)
    fetch = [apt_get, "install", "-qq", "--yes", "--download-only", "--no-install-recommends"]
    fetched = _run([*fetch, *DEBIAN_PACKAGES], own)
    if fetched.returncode != 0:
        first, *_ = (updated.stderr + fetched.stderr).strip().splitlines() or ["apt said nothing"]
        raise Unavailable(f"cannot fetch Debian's Python for ARM (no network?): {first}")
    # Packages older than the merge of /lib and /usr/lib go where the others look.
    for name in ("bin", "lib", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in (apt / "cache" / "archives").glob("*.deb"):
        files = subprocess.run(
            [dpkg_deb, "--fsys-tarfile", package], capture_output=True, check=True
        ).stdout
        unpack = [tar, "-x", "-C", root, "--keep-directory-symlink", "--no-same-owner"]
        subprocess.run(unpack, input=files, check=True)


def _version(qemu: str, root: Path) -> str:
    """Of Debian's Python, as pip wants it."""
    code = "import sys; print(*sys.version_info[:2], sep='.')"
    ran = _run([qemu, "-L", root, root / "usr/bin/python3", "-I", "-c", code])
    if ran.returncode != 0:
        raise Unavailable(f"Debian's Python does not run under qemu: {_last_line(ran.stderr)}")
    version = ran.stdout.strip()
    if tuple(int(part) for part in version.split(".")) < _OLDEST_PYTHON:
        raise Unavailable(f"Debian's Python is {version} here, and edgeserve needs 3.11")
    return version


def _fetch_wheels(wheels: Sequence[str], python_version: str, into: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--retries=1", "--no-compile"]
    command += ["--target", str(into), "--python-version", python_version]
    command += ["--only-binary=:all:", *(f"--platform={name}" for name in WHEEL_PLATFORMS)]
    fetched = _run([*command, *wheels])
    if fetched.returncode != 0:
        raise Unavailable(
            f"cannot fetch wheels for ARM (no network?): {_last_line(fetched.stderr)}"
        )


# --- what is built -----------------------------------------------------------------------------


def _library() -> Path:
    """libedgeserve.so for ARM, as a release has it. Builds again only what has changed."""
    cmake = _program("cmake")
    folder = ROOT / "build" / "arm-python"
    folder.mkdir(parents=True, exist_ok=True)
    toolchain = ROOT / "tools" / "toolchains" / "aarch64-linux.cmake"
    with FileLock(folder / "lock"):
        for command in (
            [cmake, "-S", ROOT, "-B", folder, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"],
            [cmake, "--build", folder, "--parallel", "2", "--target", "edgeserve"],
        ):
            built = _run(command)
            if built.returncode != 0:
                raise RuntimeError(built.stdout[-3000:] + built.stderr[-3000:])
    return folder / "libedgeserve.so"


def _stage(app: Path, library: Path) -> None:
    """The package as a wheel for ARM would hold it, with the tests beside it."""
    package = app / "edgeserve"
    shutil.copytree(
        ROOT / "edgeserve", package, ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    shutil.copy(library, package / "binding" / "libedgeserve.so")
    generator, header = ROOT / "tools" / "generate_cdef.py", ROOT / "native/include/edgeserve.h"
    cdef = package / "binding" / "_edgeserve_cdef.py"
    subprocess.run([sys.executable, generator, header, cdef], check=True, capture_output=True)
    (app / "tests").symlink_to(ROOT / "tests")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument(
        "--cpu", default=PROCESSOR, help="one of `qemu-aarch64 -cpu help` (%(default)s)"
    )
    given, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as app:
        try:
            python = arm_python(Path(app))
        except Unavailable as error:
            raise SystemExit(f"arm_python: {error}") from None
        ran = subprocess.run(
            python.command(arguments, cpu=given.cpu), env=python.environment(), check=False
        )
    raise SystemExit(ran.returncode)


if __name__ == "__main__":
    main()
