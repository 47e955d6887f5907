"""The process in which something was made, for what a forked copy of it cannot use.

A fork copies memory but only the thread that forks: threads that compute are missing in the copy,
and locks that others held stay taken forever.
"""

from __future__ import annotations

import os

from edgeserve.errors import ForkedProcessError


class HomeProcess:
    """Remembers the process it was made in."""

    def __init__(self) -> None:
        self._id = os.getpid()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._id

    def require(self) -> None:
        """Raises ForkedProcessError in a forked copy."""
        if not self.is_here:
            raise ForkedProcessError(self._id, os.getpid())
