"""Which models' answers were held to something, remembered between runs.

What that takes, a second for a large vocabulary, a server that starts again builds beside the load.
"""

from __future__ import annotations

import contextlib
from hashlib import blake2b
from pathlib import Path


class ConstrainedModels:
    """An empty file in `folder` for each, named by its path's hash. What cannot be read or written
    is forgotten: the next start is as if it was the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, model: Path) -> bool:
        """Whether `note` was told of it, here or by another process."""
        with contextlib.suppress(OSError):
            return self._file(model).exists()
        return False

    def note(self, model: Path) -> None:
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file(model).touch(mode=0o600)

    def _file(self, model: Path) -> Path:
        return self._folder / blake2b(str(model.absolute()).encode(), digest_size=16).hexdigest()
