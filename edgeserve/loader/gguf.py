"""A bounds-checked reader of GGUF files, whole or split: metadata and tensor descriptions.

Versions 2 and 3, little-endian. It reads headers only and keeps no file open and none mapped; what
the metadata means is for others. Format: github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from edgeserve.errors import (
    ByteOrderError,
    DuplicateTensorError,
    EmptyFileError,
    GGUFVersionError,
    NotARegularFileError,
    NotGGUFError,
    UnreadableFileError,
)
from edgeserve.frozen import frozen
from edgeserve.loader.file_kinds import SNIFF_BYTES, describe_start
from edgeserve.loader.header_reader import HeaderReader, shown
from edgeserve.loader.metadata_section import read_metadata
from edgeserve.loader.split_files import check_part, check_tensor_count, part_paths
from edgeserve.loader.tensor_section import read_tensors
from edgeserve.types import Metadata, TensorInfo

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUM_TENSORS_AT = 8
_NUM_KEYS_AT = 16


@frozen
class ModelFile:
    """A model as its file, or its parts in order, describe it.

    `metadata`, `version` and `alignment` are the first part's. `tensors` is by name, in the order
    of the files; a TensorInfo's `part` indexes `paths` and `file_bytes`.
    """

    paths: tuple[Path, ...]
    file_bytes: tuple[int, ...]
    version: int
    alignment: int
    metadata: Metadata
    tensors: Mapping[str, TensorInfo]

    @property
    def total_bytes(self) -> int:
        """Size on disk, all parts together."""
        return sum(self.file_bytes)

    @property
    def tensor_bytes(self) -> int:
        """Bytes of tensor data, without headers and padding."""
        return sum(tensor.num_bytes for tensor in self.tensors.values())


@frozen
class _Part:
    """One file's header."""

    path: Path
    num_bytes: int
    version: int
    alignment: int
    metadata: Metadata
    tensors: Sequence[TensorInfo]


def read_gguf(path: Path) -> ModelFile:
    """The model at `path`; of a split model, any part stands for all, which must lie beside it.

    Raises a ModelFileError of the defect's own kind, with field, byte offset and path.
    """
    given = _read_part(path)
    paths = part_paths(path, given.metadata)
    parts = [given if each == path else _read_part(each) for each in paths]
    if len(parts) > 1:
        for index, part in enumerate(parts):
            check_part(part.path, part.metadata, index, len(parts))
    tensors: dict[str, TensorInfo] = {}
    for index, part in enumerate(parts):
        for tensor in part.tensors:
            if tensor.name in tensors:
                raise _in_two_parts(part.path, tensor, paths[tensors[tensor.name].part])
            tensors[tensor.name] = replace(tensor, part=index) if index else tensor
    first = parts[0]
    if len(parts) > 1:
        check_tensor_count(first.path, first.metadata, len(tensors))
    return ModelFile(
        paths=tuple(paths),
        file_bytes=tuple(part.num_bytes for part in parts),
        version=first.version,
        alignment=first.alignment,
        metadata=first.metadata,
        tensors=tensors,
    )


def _in_two_parts(path: Path, tensor: TensorInfo, other: Path) -> DuplicateTensorError:
    return DuplicateTensorError(
        shown(tensor.name),
        f"the tensor is also in {other.name}",
        offset=tensor.info_offset,
        path=path,
    )


def _read_part(path: Path) -> _Part:
    try:
        # O_NONBLOCK: opening a pipe that nobody writes to would otherwise never return.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:  # a NUL character in the path
        raise UnreadableFileError("file", f"{error}; give another path", path=path) from error
    try:
        _check_regular(path, os.fstat(descriptor))
        return _parse(HeaderReader(descriptor, path))
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(descriptor)


def _unreadable(path: Path, error: OSError) -> UnreadableFileError:
    reason = f"cannot be read: {error.strerror}; check the path, its permissions and the disk"
    return UnreadableFileError("file", reason, path=path)


def _check_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise NotARegularFileError(
            "file", "is a directory; give the path of a .gguf file in it", path=path
        )
    if not stat.S_ISREG(status.st_mode):
        raise NotARegularFileError(
            "file", "is a pipe, a socket or a device; give the path of a .gguf file", path=path
        )
    if status.st_size == 0:
        raise EmptyFileError("file", "is empty; download it again", path=path)


def _parse(reader: HeaderReader) -> _Part:
    version = _read_version(reader)
    num_tensors = reader.uint64("n_tensors")
    num_keys = reader.uint64("n_kv")
    metadata, alignment = read_metadata(reader, num_keys, _NUM_KEYS_AT)
    tensors = read_tensors(reader, num_tensors, _NUM_TENSORS_AT, alignment)
    return _Part(reader.path, reader.size, version, alignment, metadata, tensors)


def _read_version(reader: HeaderReader) -> int:
    start = reader.peek(SNIFF_BYTES)
    if not start.startswith(_MAGIC) and not _MAGIC.startswith(start):
        if start.startswith(_MAGIC[::-1]):
            raise _big_endian(reader)
        looks_like, remedy = describe_start(start)
        reason = f"is not a GGUF file but looks like {looks_like}; {remedy}"
        raise reader.defect(NotGGUFError, "magic", reason, 0)
    reader.uint32("magic")
    version = reader.uint32("version")
    if version and version & 0xFFFF == 0:
        raise _big_endian(reader)
    if version not in _VERSIONS:
        remedy = (
            "get a newer conversion of the model"
            if version < min(_VERSIONS)
            else "update edgeserve, or the file is damaged"
        )
        reason = f"GGUF version {version} cannot be read, only 2 and 3; {remedy}"
        raise reader.defect(GGUFVersionError, "version", reason, 4)
    return version


def _big_endian(reader: HeaderReader) -> ByteOrderError:
    return ByteOrderError(
        "version",
        "the file is big-endian; get a little-endian conversion of the model",
        offset=4,
        path=reader.path,
    )
