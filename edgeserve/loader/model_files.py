"""A model's files on this machine, and those that a path names: no catalogue, nothing fetched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.errors import ModelNotFoundError
from edgeserve.frozen import frozen
from edgeserve.loader.gguf_names import part_names
from edgeserve.loader.sources import looks_like_path, path_source

if TYPE_CHECKING:
    from edgeserve.loader.catalog import CatalogEntry

LicenseGate = Callable[["CatalogEntry"], bool]
"""Asked before a model whose terms must be accepted is fetched; False refuses."""


@frozen
class ModelFiles:
    """A model's files on this machine, all parts in order, and what the catalogue knows of it."""

    name: str
    parts: tuple[Path, ...]
    entry: CatalogEntry | None = None

    @property
    def path(self) -> Path:
        """The file to open; of a split, its first part."""
        return self.parts[0]


def files_at(text: str) -> ModelFiles | None:
    """The files that a path names, or None for a name of another kind.

    Raises ModelSourceError, ModelNotFoundError.
    """
    if not looks_like_path(text):
        return None
    return ModelFiles(text, parts_beside(path_source(text).path))


def parts_beside(path: Path) -> tuple[Path, ...]:
    """All parts of the split that the file is one of."""
    parts = tuple(path.with_name(name) for name in part_names(path.name))
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        raise ModelNotFoundError(
            f"{path}: one of {len(parts)} parts, and {', '.join(missing)} is not beside it; "
            "put them into one folder"
        )
    return parts
