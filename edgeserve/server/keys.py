"""The key of a server that others can reach: made once, kept where only its owner reads."""

from __future__ import annotations

import ipaddress
import os
import secrets
from pathlib import Path


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def kept_key(path: Path) -> str:
    """The key in a file, which is written, with mode 0600, where there is none."""
    try:
        kept = path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        kept = ""
    if kept:
        os.chmod(path, 0o600)
        return kept
    key = f"sk-edgeserve-{secrets.token_urlsafe(24)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
    os.replace(temporary, path)
    return key
