"""The grammar of "which model": a path, a catalogue name, `hf:`, `pypi:`, or another program's.

Turns a string into what it means. Opens no file and asks nobody.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.errors import ModelNotFoundError, ModelSourceError
from edgeserve.frozen import frozen
from edgeserve.typed_paths import is_file, is_there, path_of

if TYPE_CHECKING:
    from edgeserve.loader.catalog import Catalog, CatalogEntry

_HUB_REPO = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_HUB_URL = re.compile(r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/([^/]+/[^/?#]+)(?:/.*)?")
_DISTRIBUTION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9.+!_-]+")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
KEEPERS = ("ollama", "lmstudio", "llamacpp")
"""Prefixes for models that other programs keep; the names are those that `list` prints."""
PREFIXES = ("hf", "pypi", *KEEPERS)
"""What makes a name no path, whatever follows the colon."""


@frozen
class PathSource:
    """A file on this machine."""

    path: Path


@frozen
class CatalogSource:
    """A known checkpoint; None is its default quantisation."""

    entry: CatalogEntry
    quant: str | None


@frozen
class HubSource:
    """A repository of the Hugging Face hub, and a file name, a quantisation, or None."""

    repo: str
    selector: str | None

    def __str__(self) -> str:
        return f"hf:{self.repo}" + (f":{self.selector}" if self.selector else "")


@frozen
class PackageSource:
    """A file in a wheel of the package index; None is the newest version, the only GGUF in it."""

    dist: str
    version: str | None
    member: str | None

    def __str__(self) -> str:
        version = f"=={self.version}" if self.version else ""
        return f"pypi:{self.dist}{version}" + (f":{self.member}" if self.member else "")


@frozen
class KeptSource:
    """A model of another program, by the whole name that `list` prints."""

    name: str


Source = PathSource | CatalogSource | HubSource | PackageSource | KeptSource


def parse_source(text: str, catalog: Catalog) -> Source:
    """What `text` means. Raises ModelSourceError, or ModelNotFoundError with the closest names."""
    if not text or "\0" in text:
        raise ModelSourceError(text, "is no model's name; `edgeserve list` prints those there are")
    prefix, colon, rest = text.partition(":")
    if colon and prefix.lower() == "hf":
        return _hub_source(text, rest)
    if colon and prefix.lower() == "pypi":
        return _package_source(text, rest)
    if colon and prefix.lower() in KEEPERS:
        return KeptSource(f"{prefix.lower()}:{rest}")
    if "://" in text:
        raise ModelSourceError(text, _about_url(text))
    if looks_like_path(text):
        return path_source(text)
    return _named_source(text, catalog)


def looks_like_path(text: str) -> bool:
    """Whether nobody would write a catalogue name like this, nor one with a prefix."""
    prefix, colon, _ = text.partition(":")
    if (colon and prefix.lower() in PREFIXES) or "://" in text:
        return False
    return (
        text.lower().endswith(".gguf")
        or "/" in text
        or os.sep in text
        or text in {".", "..", "~"}
        or _DRIVE.match(text) is not None
    )


def path_source(text: str) -> PathSource:
    """Raises ModelSourceError for a folder, ModelNotFoundError."""
    path = path_of(text)
    if os.path.isdir(path):  # pathlib's raises for a name that is too long
        raise ModelSourceError(text, _about_folder(path))
    if not os.path.lexists(path):
        hint = f"; for the hub's repository: hf:{text}" if _HUB_REPO.fullmatch(text) else ""
        raise ModelNotFoundError(f"{text}: no such file{hint}")
    if not is_there(path):
        raise ModelNotFoundError(f"{text}: a link to {os.readlink(path)}, which does not exist")
    return PathSource(path)


def _about_folder(path: Path) -> str:
    try:
        files = sorted(p.name for p in path.iterdir() if p.name.lower().endswith(".gguf"))
    except OSError as error:
        return f"is a folder that cannot be read ({error.strerror})"
    if not files:
        return "is a folder without GGUF files; give the path of a .gguf file"
    return f"is a folder; give one of its files: {', '.join(files[:8])}"


def _named_source(text: str, catalog: Catalog) -> Source:
    name, _, quant = text.partition(":")
    entry = catalog.find(name)
    if entry is not None:
        return CatalogSource(entry, quant or None)
    if is_file(Path(text)):
        return PathSource(Path(text))
    near = catalog.closest(name)
    hint = f"did you mean {' or '.join(near)}?" if near else "`edgeserve list` prints the names"
    raise ModelNotFoundError(f"{text}: neither a known model nor a file; {hint}")


def _hub_source(text: str, rest: str) -> HubSource:
    repo, _, selector = rest.partition(":")
    if _HUB_REPO.fullmatch(repo) is None:
        raise ModelSourceError(text, "expected hf:owner/repository, or with :file.gguf or :Q4_K_M")
    if selector.startswith("/") or ".." in selector.split("/"):
        raise ModelSourceError(text, "the file must be one of the repository's")
    return HubSource(repo, selector or None)


def _package_source(text: str, rest: str) -> PackageSource:
    requirement, _, member = rest.partition(":")
    dist, equals, version = requirement.partition("==")
    if not _DISTRIBUTION.fullmatch(dist) or (equals and not _VERSION.fullmatch(version)):
        raise ModelSourceError(
            text, "expected pypi:distribution, or with ==version, or with :path/in/wheel.gguf"
        )
    return PackageSource(dist, version or None, member or None)


def _about_url(text: str) -> str:
    match = _HUB_URL.match(text)
    if match is not None:
        return f"is an address; write hf:{match[1]}"
    return "is an address, and only the hub's are known; download the file and give its path"
