"""Programs of other people: installed alone in a folder, and run with none of this user's settings.

Python packages are resolved by uv: pip goes back and forth for minutes over what aider names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTALL_SECONDS = 600
TASK_SECONDS = 1800  # a first prompt of 20,000 tokens, on a small machine that does other things
CONNECT_SECONDS = 60
HELLO = "Say hello in one sentence."


class ClientError(Exception):
    """A client did not do its task, or not as it should."""


class NotInstalledError(ClientError):
    """A client could not be had."""


@dataclass(frozen=True)
class Server:
    """Where it listens, what it serves, and the lines that it wrote."""

    url: str
    model: str
    log: Path


@dataclass(frozen=True)
class Place:
    """`prefix` has the client's programs; the task may write in `home` and `work`."""

    prefix: Path
    home: Path
    work: Path


def install_from_npm(package: str, prefix: Path) -> None:
    """Raises NotInstalledError."""
    if shutil.which("npm") is None:
        raise NotInstalledError("npm is not on PATH")
    _install(prefix, [["npm", "install", "--prefix", prefix, "--no-audit", "--no-fund", package]])


def install_from_pypi(package: str, prefix: Path) -> None:
    """Raises NotInstalledError."""
    uv = [sys.executable, "-m", "uv", "-q"]
    make = [*uv, "venv", "--clear", f"--python={sys.executable}", prefix]
    _install(prefix, [make, [*uv, "pip", "install", f"--python={prefix}/bin/python", package]])


def _install(prefix: Path, commands: Sequence[Sequence[object]]) -> None:
    """Once; `prefix` is kept."""
    marker = prefix / "installed"
    if marker.exists():
        return
    prefix.mkdir(parents=True, exist_ok=True)
    for command in commands:
        try:
            _checked(command, INSTALL_SECONDS)
        except ClientError as error:
            raise NotInstalledError(str(error)) from None
    marker.touch()


def output_of(command: Sequence[object], place: Place) -> str:
    """What a program of the client prints. Raises ClientError unless it exits with 0."""
    environment = {
        "PATH": f"{place.prefix / 'node_modules' / '.bin'}:{place.prefix / 'bin'}:{os.defpath}",
        "HOME": str(place.home),
        "LANG": "C.UTF-8",
    }
    return _checked(command, TASK_SECONDS, cwd=place.work, env=environment)


def _checked(command: Sequence[object], seconds: int, **options: Any) -> str:
    try:
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            **options,
        )
    except subprocess.TimeoutExpired:
        raise ClientError(f"{command[0]} took over {seconds} s") from None
    except OSError as error:
        raise ClientError(str(error)) from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise ClientError(f"{command[0]} exited with {done.returncode}: {' / '.join(said)}")
    return done.stdout


def _connected(client: str, server: Server, place: Place, arguments: str) -> str:
    """Does what `edgeserve connect` says; `arguments` go to the command that its last line is."""
    connect = [sys.executable, "-m", "edgeserve.cli", "connect", client, f"--url={server.url}"]
    said = _checked([*connect, f"--model={server.model}"], CONNECT_SECONDS).rstrip()
    return output_of(["sh", "-euc", f"{said} {arguments}"], place)


def claude_code(server: Server, place: Place) -> str:
    found = json.loads(
        _connected("claude-code", server, place, f"-p {HELLO!r} --output-format json")
    )
    if found["is_error"]:
        raise ClientError(f"it says {found['result']!r}")
    return f"{found['num_turns']} turn"


def codex(server: Server, place: Place) -> str:
    said = _connected(
        "codex", server, place, f"exec --json --skip-git-repo-check --sandbox read-only {HELLO!r}"
    )
    kinds = Counter(json.loads(line)["type"] for line in said.splitlines())
    if not kinds["turn.completed"] or kinds["turn.failed"] or kinds["error"]:
        raise ClientError(f"its events: {dict(kinds)}")
    return f"{kinds['item.completed']} items"


def aider(server: Server, place: Place) -> str:
    file = place.work / "hello.py"
    file.write_text("print('hello')\n")
    said = _connected(
        "aider",
        server,
        place,
        f"--message {HELLO!r} --yes-always --no-git --no-check-update --analytics-disable "
        f"--no-suggest-shell-commands {file.name}",
    )
    counted = [line for line in said.splitlines() if line.startswith("Tokens: ")]
    refused = [line for line in said.splitlines() if "litellm." in line]
    if refused or not counted:
        raise ClientError(f"it says {(refused or said.splitlines())[-1]!r}")
    return counted[-1]
