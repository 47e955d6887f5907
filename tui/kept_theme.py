"""Which colours somebody chose last: a word in a file of the data folder, read before the first
frame."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from edgeserve.tui.themes import THEMES

_MOST_BYTES = 100


def kept_theme(data_dir: Path) -> str:
    """ "" where nothing was chosen, or no theme that there is."""
    try:
        with (data_dir / "theme").open("rb") as file:
            name = file.read(_MOST_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return name if name in THEMES else ""


def keep_theme(data_dir: Path, name: str) -> None:
    """For all windows that are opened from now on. Raises OSError."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = data_dir / f".theme.{os.getpid()}"
    try:
        beside.write_text(f"{name}\n", encoding="ascii")
        beside.replace(data_dir / "theme")
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
