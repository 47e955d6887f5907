"""A text in the user's own editor. The screen must have been given up before."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgeserve.errors import EditorError


def edited(command: Sequence[str], text: str) -> str:
    """The text as the editor left it. Raises EditorError; what was written stays in its file then.

    Blocks as long as the editor runs.
    """
    handle, name = tempfile.mkstemp(prefix="edgeserve-", suffix=".md")
    path = Path(name)
    with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    try:
        code = subprocess.run([*command, name], check=False).returncode
    except OSError as error:
        path.unlink(missing_ok=True)
        raise EditorError(command[0], error.strerror or str(error), None) from None
    if code != 0:
        raise EditorError(command[0], f"it ended with {code}", path)
    found = path.read_text(encoding="utf-8", errors="replace")
    path.unlink(missing_ok=True)
    return found.removesuffix("\n")
