"""Where models come from, for a client whose engine is in this process: a seam, implemented outside
the terminal chat (edgeserve/local_shelf.py), which knows no files and no downloads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from edgeserve.async_llm import AsyncLLM
from edgeserve.tui.client import LoadProgress, OfferedModel

Report = Callable[[LoadProgress], None]
"""Hears how far a model is, on whatever thread. It may raise, which ends what is going on."""


class ShelvedModel(Protocol):
    """A model whose files are here and whose header was found good."""

    @property
    def name(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def note(self) -> str:
        """What else matters about it; empty for most."""
        ...

    def fits_beside(self) -> bool:
        """Whether memory has room for it now, with all that runs already."""
        ...

    async def load(self) -> AsyncLLM:
        """Raises EdgeServeError."""
        ...


class ModelShelf(Protocol):
    """All models that there are. Its methods take long: call them off the event loop."""

    def models(self) -> Sequence[OfferedModel]:
        """Those here first, then those that may be fetched."""
        ...

    def accept_license(self, name: str) -> None: ...

    def fetch(self, name: str, report: Report) -> ShelvedModel:
        """Makes it be here, verified; what a transfer that was broken off left is resumed.

        Raises EdgeServeError, and whatever `report` raises.
        """
        ...

    def memory_bytes(self) -> int | None:
        """What this process holds; None where nobody knows."""
        ...
