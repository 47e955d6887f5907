"""GGUF models that other programs keep on this machine: Hugging Face, Ollama, LM Studio, llama.cpp.

Looks only: nothing is copied, moved or written. What cannot be read is passed over.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from edgeserve.config import Config
from edgeserve.frozen import frozen
from edgeserve.loader.gguf_names import group_parts, is_language_model, quant_of

_PEEK_BYTES = 64 << 10  # the general.* keys stand first
_MAX_MANIFEST_BYTES = 1 << 20
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_MODEL_LAYER = "application/vnd.ollama.image.model"
_ADAPTER_LAYER = "application/vnd.ollama.image.adapter"
_NO_MODEL_TYPES = {"mmproj", "adapter", "vocab", "imatrix"}
_NO_MODEL_ARCHITECTURES = {"clip"}
_GGUF_STRING = 8
_GGUF_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


@frozen
class FoundModel:
    """A model on this machine. `name` is what to type; `path` its file, or the first of its parts.

    `program` is who keeps it; `note` says what is amiss, if anything is.
    """

    program: str
    name: str
    path: Path
    size_bytes: int
    quant: str | None = None
    architecture: str | None = None
    note: str = ""


def discover(config: Config) -> tuple[FoundModel, ...]:
    """What other programs keep, each file once however many names it has."""
    return once_per_file(
        found
        for look in (hugging_face_models, ollama_models, lm_studio_models, llama_cpp_models)
        for found in look(config)
    )


def once_per_file(models: Iterable[FoundModel]) -> tuple[FoundModel, ...]:
    """Without those whose file (by inode) an earlier one has."""
    seen: set[tuple[int, int]] = set()
    kept: list[FoundModel] = []
    for model in models:
        try:
            status = model.path.stat()
        except OSError:
            continue
        identity = (status.st_dev, status.st_ino)
        if identity not in seen:
            seen.add(identity)
            kept.append(model)
    return tuple(kept)


def hugging_face_models(config: Config) -> Iterator[FoundModel]:
    """Of every repository in the hub client's cache, the snapshot that `main` stands at."""
    for folder in _subfolders(config.hf_hub_cache):
        if folder.name.startswith("models--"):
            repo = folder.name.removeprefix("models--").replace("--", "/")
            snapshot = hub_snapshot(config, repo)
            if snapshot is not None:
                yield from models_in(
                    snapshot, "huggingface", lambda name, repo=repo: f"hf:{repo}:{name}"
                )


def hub_snapshot(config: Config, repo: str) -> Path | None:
    """The folder of a repository's files in the hub client's cache, if it has the repository."""
    folder = config.hf_hub_cache / f"models--{repo.replace('/', '--')}"
    try:
        commit = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        snapshot = folder / "snapshots" / commit
        if commit and snapshot.is_dir():
            return snapshot
    except (OSError, ValueError):
        pass
    snapshots = sorted(_subfolders(folder / "snapshots"), key=_changed)
    return snapshots[-1] if snapshots else None


def lm_studio_models(config: Config) -> Iterator[FoundModel]:
    for folder in config.lm_studio_dirs:
        yield from models_in(folder, "lmstudio", lambda name: f"lmstudio:{name}")


def llama_cpp_models(config: Config) -> Iterator[FoundModel]:
    for folder in config.llama_cpp_dirs:
        yield from models_in(folder, "llama.cpp", lambda name: f"llamacpp:{name}")


def ollama_models(config: Config) -> Iterator[FoundModel]:
    """A model per tag. Its weights are a blob that is named by its sha256."""
    for folder in config.ollama_dirs:
        manifests = folder / "manifests"
        for relative in sorted(files_below(manifests)):
            layers = _layers(manifests / relative)
            digest = layers.get(_MODEL_LAYER)
            if digest is None:
                continue
            path = folder / "blobs" / f"sha256-{digest}"
            note = "its adapter is not applied" if _ADAPTER_LAYER in layers else ""
            found = _describe(path, "ollama", f"ollama:{_ollama_tag(relative)}", note)
            if found is not None:
                yield found


def models_in(folder: Path, program: str, name_of: Callable[[str], str]) -> Iterator[FoundModel]:
    """The language models below a folder, the parts of a split as one."""
    names = [name for name in files_below(folder) if is_language_model(name)]
    for group in group_parts(names):
        note = "" if group.is_complete else f"{group.count - len(group.names)} parts are missing"
        found = _describe(folder / group.first, program, name_of(group.first), note)
        if found is not None:
            size = sum(_file_size(folder / name) for name in group.names)
            yield FoundModel(
                program, found.name, found.path, size, group.quant, found.architecture, note
            )


def files_below(folder: Path) -> Iterator[str]:
    """Names of all files below, relative and with `/`; links to folders are followed, once. Pipes
    and devices are none: who opened one would wait for ever."""
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        try:
            status = os.stat(place)
        except OSError:
            folders.clear()
            continue
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            folders.clear()
            continue
        seen.add(identity)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and (Path(place) / name).is_file():
                yield (Path(place) / name).relative_to(folder).as_posix()


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _ollama_tag(relative: str) -> str:
    """`registry.ollama.ai/library/llama3.2/1b` as the program itself writes it: `llama3.2:1b`."""
    *where, model, tag = relative.split("/")
    place = "/".join(where)
    for usual in ("registry.ollama.ai/library", "registry.ollama.ai"):
        if place == usual:
            place = ""
        elif place.startswith(f"{usual}/"):
            place = place.removeprefix(f"{usual}/")
    return f"{place}/{model}:{tag}" if place else f"{model}:{tag}"


def _layers(manifest: Path) -> Mapping[str, str]:
    """The sha256 of each kind of layer in a manifest; nothing when it is none."""
    try:
        if manifest.stat().st_size > _MAX_MANIFEST_BYTES:
            return {}
        parsed: Any = json.loads(manifest.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    listed: Any = cast(Any, parsed).get("layers") if isinstance(parsed, dict) else None
    layers: dict[str, str] = {}
    for layer in cast(list[Any], listed) if isinstance(listed, list) else []:
        if isinstance(layer, dict):
            fields = cast(dict[str, Any], layer)
            digest = _DIGEST.fullmatch(str(fields.get("digest")))
            if digest is not None:
                layers.setdefault(str(fields.get("mediaType")), digest[1])
    return layers


def _describe(path: Path, program: str, name: str, note: str) -> FoundModel | None:
    """What the file's first keys say; None if it is no language model or cannot be read."""
    general = peek_strings(path)
    if general is None:
        return None
    architecture = general.get("general.architecture")
    if general.get("general.type") in _NO_MODEL_TYPES or architecture in _NO_MODEL_ARCHITECTURES:
        return None
    return FoundModel(
        program, name, path, _file_size(path), quant_of(path.name), architecture, note
    )


def peek_strings(path: Path) -> Mapping[str, str] | None:
    """The string keys at the start of a GGUF file, up to its first array; None if it is none."""
    try:
        with path.open("rb") as file:
            data = file.read(_PEEK_BYTES)
    except OSError:
        return None
    if data[:4] != b"GGUF":
        return None
    found: dict[str, str] = {}
    try:
        (num_keys,) = struct.unpack_from("<Q", data, 16)
        position = 24
        for _ in range(min(num_keys, 256)):
            key, position = _text(data, position)
            (kind,) = struct.unpack_from("<I", data, position)
            position += 4
            if kind == _GGUF_STRING:
                found[key], position = _text(data, position)
            elif kind in _GGUF_SCALAR_BYTES:
                position += _GGUF_SCALAR_BYTES[kind]
            else:
                break
    except (struct.error, IndexError):
        pass  # past what was read: what is known by now is what there is to say
    return found


def _text(data: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, position)
    end = position + 8 + length
    if end > len(data):
        raise IndexError
    return data[position + 8 : end].decode("utf-8", errors="replace"), end
