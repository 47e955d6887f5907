"""`edgeserve doctor`: it reports what is so, and what is broken does not break it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeserve import cli
from edgeserve.binding import library
from edgeserve.binding.executor import kernel_sets
from edgeserve.binding.library import native_num_cores
from edgeserve.commands import doctor
from edgeserve.errors import DownloadError, LibraryError
from edgeserve.loader.processor import HugePages, Processor


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("EDGESERVE_KERNELS", raising=False)
    monkeypatch.setenv("EDGESERVE_CACHE", str(tmp_path / "cache" / "deep"))
    monkeypatch.setattr(doctor, "read_bandwidth_bytes_per_s", lambda _: 12.5e9)
    return tmp_path / "cache" / "deep"


def report(capsys: pytest.CaptureFixture[str], exit_code: int = 0) -> dict[str, str]:
    """The lines of a report, label to text."""
    assert cli.main(["doctor"]) == exit_code
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = [line.strip().partition("  ") for line in printed.out.splitlines()]
    return {label: text.strip() for label, _, text in lines}


def json_report(capsys: pytest.CaptureFixture[str], exit_code: int = 0) -> dict[str, Any]:
    assert cli.main(["doctor", "--json"]) == exit_code
    return json.loads(capsys.readouterr().out)


def best_set() -> str:
    return next(name for name, runs in kernel_sets() if runs)


def test_a_sound_installation(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    found = report(capsys)
    assert found["kernels"] == best_set()
    assert found["threads"].startswith(f"{native_num_cores()} (cores: ")
    assert found["memory"].endswith("GB available, read at 12.5 GB/s just now")
    assert found["cache folder"].startswith(f"{cache}, ")
    assert found["library"].startswith("interface 1, /")
    assert {f"no {name}" for name, runs in kernel_sets() if not runs} <= set(found)
    assert not cache.exists()  # looking leaves nothing behind


def test_json_says_the_same(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    found = json_report(capsys)
    assert found["kernels"] == best_set()
    sets = [(each["name"], each["runs"]) for each in found["library"]["kernel_sets"]]
    assert sets == kernel_sets()
    assert all((each["reason"] == "") == each["runs"] for each in found["library"]["kernel_sets"])
    assert found["library"]["num_threads"] == native_num_cores()
    assert found["bandwidth_bytes_per_s"] == 12.5e9
    assert found["available_bytes"] > 0
    assert found["cache"]["path"] == str(cache)
    assert found["cache"]["free_bytes"] > 0
    assert found["processor"]["features"] == sorted(found["processor"]["features"])
    assert found["problems"] == []


def test_a_forced_set_is_the_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESERVE_KERNELS", "ref")
    assert report(capsys)["kernels"] == "ref"


def test_a_forced_set_that_does_not_run_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESERVE_KERNELS", "mmx")
    found = json_report(capsys, exit_code=1)
    assert found["kernels"] is None
    running = ", ".join(name for name, runs in kernel_sets() if runs)
    assert found["problems"] == [f"EDGESERVE_KERNELS=mmx: not here; unset it, or use {running}"]
    assert report(capsys, exit_code=1)["kernels"] == "mmx is asked for and does not run"


def test_a_library_that_cannot_be_used_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise LibraryError("it is gone; reinstall it")

    monkeypatch.setattr(library, "load_library", fail)
    found = report(capsys, exit_code=1)
    assert found["library"] == "unusable"
    assert "problem: the native library cannot be used: it is gone; reinstall it" in found
    assert "kernels" not in found


def test_a_package_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    """numpy, on which half of the rest stands."""
    program = (
        "import sys\n"
        "sys.modules['numpy'] = None\n"
        "from edgeserve import cli\n"
        "sys.exit(cli.main(['doctor', '--json']))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "EDGESERVE_CACHE": str(tmp_path)},
    )
    assert (ran.returncode, ran.stderr) == (1, "")
    found = json.loads(ran.stdout)
    assert found["missing"] == [{"package": "numpy", "purpose": "arrays", "is_needed": True}]
    assert found["bandwidth_bytes_per_s"] > 0
    assert "numpy is missing, for arrays: pip install it" in found["problems"]


def test_pip_is_wanted_and_not_needed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise DownloadError("no pip")

    monkeypatch.setattr(doctor, "find_pip", fail)
    assert report(capsys)["no pip"] == "for fetching models from the package index (pypi:NAME)"


def test_a_cache_folder_that_cannot_be_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "cache"
    monkeypatch.setenv("EDGESERVE_CACHE", str(folder))
    (problem,) = json_report(capsys, exit_code=1)["problems"]
    assert problem == f"{folder} cannot be written: set EDGESERVE_CACHE to another folder"


def test_a_full_disk_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(10**10, 10**10 - 5 * 10**8, 5 * 10**8)  # type: ignore[attr-defined]  # pyright: ignore
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert report(capsys)["cache folder"].endswith("500 MB free; too little for most models")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("madvise", "used for weights (madvise)"),
        (None, "this system decides by itself"),
        ("never", "not used (never), which costs some speed; as root: echo madvise > /sys/"),
    ],
)
def test_huge_pages(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    setting: str | None,
    expected: str,
) -> None:
    monkeypatch.setattr(doctor, "read_huge_pages", lambda: HugePages(setting))
    assert report(capsys)["huge pages"].startswith(expected)


def test_what_the_system_does_not_tell_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = Processor("riscv64", None, frozenset(), 8, None, None, 3)
    monkeypatch.setattr(doctor, "read_processor", lambda: unknown)
    found = report(capsys)
    assert found["processor"] == "unknown"
    assert found["threads"].endswith(" (cores: 8 logical, 3 by the control group)")
