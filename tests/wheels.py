"""Builds small wheels that hold GGUF files, and a pip that sees only them."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest


def make_wheel(
    folder: Path,
    dist: str,
    version: str,
    members: Mapping[str, bytes],
    *,
    requires: str | None = None,
    recorded: Mapping[str, bytes] | None = None,
) -> Path:
    """A wheel in `folder`. `recorded` is what its RECORD claims of a member instead."""
    name = dist.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    files = dict(members)
    metadata = f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n"
    if requires is not None:
        metadata += f"Requires-Dist: {requires}\n"
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    claims = {**files, **(recorded or {})}
    lines = [f"{path},sha256={_encoded(claims[path])},{len(data)}" for path, data in files.items()]
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
        archive.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,", ""]))
    return wheel


def point_pip_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on pip knows this folder and nothing else."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
