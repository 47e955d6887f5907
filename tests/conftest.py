"""Fixtures that need something fetched: real models, and the reference's source and library.

Each is fetched once into the cache folder; without network, tests that need it are skipped.
EDGESERVE_TEST_MODELS (a folder with smollm2.gguf and gemma3.gguf) and EDGESERVE_TEST_REFERENCE
(an unpacked llama.cpp source tree) stand in for what would be fetched.
"""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from types import ModuleType

import pytest
from filelock import FileLock

from edgeserve import requests
from edgeserve.config import Config
from edgeserve.errors import DownloadError
from edgeserve.loader.store import resolve_model

# Nobody's own prompts are found or added to: tests of the disk store say which folder.
os.environ["EDGESERVE_DISK_CACHE"] = "0"

REFERENCE = "llama-cpp-python==0.3.36"
_VENDORED = "vendor/llama.cpp/"
_DOWNLOAD_SECONDS = 600


@pytest.fixture(autouse=True)
def _seeds_are_the_same_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a request without a seed draws: another for each, but a test never has its luck."""
    numbers = itertools.count(1)
    monkeypatch.setattr(requests, "draw_seed", lambda: next(numbers))


def _cache_dir() -> Path:
    cache = Config.from_environment().cache_dir / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _model(file_name: str, source: str) -> Path:
    folder = os.environ.get("EDGESERVE_TEST_MODELS")
    if folder is not None:
        path = Path(folder) / file_name
        if not path.is_file():
            pytest.skip(f"{path} (from EDGESERVE_TEST_MODELS) does not exist")
        return path
    try:
        # Whoever runs the tests was told that they fetch Gemma, under Gemma's terms.
        files = resolve_model(source, Config.from_environment(), license_gate=lambda _: True)
    except DownloadError as error:
        pytest.skip(f"cannot download {source} (no network?): {error}")
    return files.path


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, the embedded default."""
    return _model("smollm2.gguf", "smollm2")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M Q4_K_M."""
    return _model("gemma3.gguf", "gemma3-270m")


@pytest.fixture(scope="session")
def reference_source() -> Path:
    """llama.cpp's tree as the reference's source distribution carries it; models/ at least."""
    given = os.environ.get("EDGESERVE_TEST_REFERENCE")
    if given is not None:
        if not (Path(given) / "models").is_dir():
            pytest.skip(f"{given} (from EDGESERVE_TEST_REFERENCE) has no models folder")
        return Path(given)
    cache = _cache_dir()
    target = cache / REFERENCE.replace("==", "-")
    # Test workers share the cache: the first one fetches, the others find it done.
    with FileLock(cache / "reference.lock"):
        if not target.is_dir():
            _fetch_reference(cache, target)
    return target


def _fetch_reference(cache: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        # pip asks the source for its metadata, which compiles nothing.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--retries=1", "--no-deps"]
        command += ["--no-binary=llama-cpp-python", "--dest", scratch, REFERENCE]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
        )
        archives = list(Path(scratch).glob("*.tar.gz"))
        if done.returncode != 0 or not archives:
            said = done.stderr.strip().splitlines() or ["pip said nothing"]
            pytest.skip(f"cannot download {REFERENCE} (no network?): {said[-1]}")
        unpacked = Path(scratch) / "unpacked"
        _unpack_vendored(archives[0], unpacked)
        unpacked.rename(target)


def _unpack_vendored(archive: Path, into: Path) -> None:
    """The vendored tree's models and licence, with the path down to it taken off."""
    with tarfile.open(archive) as tar:
        for member in tar:
            _, found, inner = member.name.partition(_VENDORED)
            if found and (inner.startswith("models/") or inner == "LICENSE"):
                member.name = inner
                tar.extract(member, into, filter="data")


@pytest.fixture(scope="session")
def llama_cpp() -> ModuleType:
    """The reference, as a Python module."""
    try:
        return importlib.import_module("llama_cpp")
    except ImportError:
        pytest.skip("reference not installed: scripts/test installs it (about 6 minutes)")
