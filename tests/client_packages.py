"""Client programs, each alone in an environment of its own that is kept in the cache folder.

They are no dependencies of ours: together they do not resolve. What cannot be fetched is skipped.
Python packages are resolved by uv: pip goes back and forth for minutes over what some of them name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from edgeserve.config import Config

SCRIPTS = Path(__file__).parent / "clients"
_INSTALL_SECONDS = 120
_CLIENT_SECONDS = 120


def run_client(folder: Path, script: str, url: str) -> Any:
    """What the script, run with the packages of `folder`, says about the server at `url`."""
    program = SCRIPTS / script
    if program.suffix == ".cjs":
        command, environment = ["node"], {"NODE_PATH": str(folder / "node_modules")}
    else:
        command, environment = [str(folder / "bin" / "python")], {}
    done = subprocess.run(
        [*command, str(program), url],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_CLIENT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def python_client(requirement: str) -> Path:
    """A virtual environment with this package alone."""
    folder = _folder(requirement)
    uv = [sys.executable, "-m", "uv", "-q"]
    make = [*uv, "venv", "--clear", f"--python={sys.executable}", str(folder)]
    install = [*uv, "pip", "install", f"--python={folder}/bin/python", requirement]
    _installed(folder, requirement, [make, install])
    return folder


def node_client(requirement: str) -> Path:
    """A folder whose node_modules has this package."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip(f"{requirement} needs node and npm, which are not on PATH")
    folder = _folder(requirement)
    npm = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund"]
    _installed(folder, requirement, [[*npm, "--fetch-retries=1", requirement]])
    return folder


def _folder(requirement: str) -> Path:
    name = requirement.replace("==", "-").replace("@", "-").replace("/", "-")
    return Config.from_environment().cache_dir / "tests" / "clients" / name


def _installed(folder: Path, requirement: str, commands: Sequence[Sequence[str]]) -> None:
    """Runs the commands once for all workers and runs of the tests."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        marker = folder / "installed"
        if marker.exists():
            return
        for command in commands:
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                pytest.skip(f"installing {requirement} took over {_INSTALL_SECONDS} s")
            if done.returncode != 0:
                said = done.stderr.strip().splitlines() or ["nothing was said"]
                pytest.skip(f"cannot install {requirement} (no network?): {said[-1]}")
        marker.touch()
