"""A path as somebody typed it, who may have meant something else: it is only looked for."""

from __future__ import annotations

import os
from pathlib import Path


def path_of(typed: str) -> Path:
    """A `~` is a home folder's; before a name that is no user's it is a letter like others."""
    return Path(os.path.expanduser(typed))  # pathlib's raises for such a name


def is_there(path: Path) -> bool:
    """Also what lies where nobody may look: to read it says why not. No file has a name that is
    longer than names can be."""
    try:
        return path.exists()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Whether a file can be seen there."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
