"""Fetches tensor data out of a model's files: as stored, widened to float32, or into weights.

Every read goes into memory of our own and is counted, so files that are cut or swapped under a
running process end in an error that names the tensor. It knows rows, not what they are for.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from threading import Event, Lock
from types import TracebackType
from typing import TYPE_CHECKING

from edgeserve.binding.weights import LoadFault, WeightPlace, WeightRows, load_weights
from edgeserve.errors import (
    AbortedError,
    FileChangedError,
    MissingTensorError,
    ModelFileError,
    UnreadableFileError,
    UnsupportedModelError,
)
from edgeserve.loader.gguf import ModelFile
from edgeserve.loader.header_reader import shown
from edgeserve.loader.tensor_types import TENSOR_TYPES, TENSOR_TYPES_BY_NAME
from edgeserve.types import TensorInfo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class TensorReader:
    """Owns the open files of one model. A context manager; `close` is idempotent.

    A tensor's rows are its innermost dimension: (n_out, n_in) has n_out, (n_experts, n_out, n_in)
    has n_experts x n_out, a vector has one. Reads from several threads at once are fine.
    """

    def __init__(self, model: ModelFile) -> None:
        """Opens the files, having seen that every tensor's type can be widened.

        Raises UnsupportedModelError, UnreadableFileError, FileChangedError when a file is no longer
        the one described.
        """
        _check_computable(model)
        self._model = model
        self._descriptors: list[int] = []
        self._cancelled = array("i", [0])  # C looks at it
        self._loading = Lock()
        self.load_began = Event()
        """Set once a load is in C, where it needs no GIL."""
        try:
            for path, num_bytes in zip(model.paths, model.file_bytes, strict=True):
                self._descriptors.append(_open_unchanged(path, num_bytes))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TensorReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends a load that another thread is in, and gives the files back."""
        self.cancel()
        with self._loading:
            while self._descriptors:
                os.close(self._descriptors.pop())

    def cancel(self) -> None:
        """From now on reads and loads raise AbortedError, those that run too; from any thread."""
        self._cancelled[0] = 1

    def file_states(self) -> list[tuple[int, ...]]:
        """Of each open file: inode, size, times of its last change in nanoseconds. The same states
        before and after mean that what was read in between was of one content."""
        states = map(os.fstat, self._descriptors)
        return [(s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in states]

    def sample_digest(self) -> bytes:
        """A digest of each tensor's name and middle row. Raises as `read` does."""
        digest = blake2b(digest_size=32)
        for name, info in self._model.tensors.items():
            digest.update(name.encode())
            digest.update(self.read(name, math.prod(info.shape[:-1]) // 2, 1))
        return digest.digest()

    def info(self, name: str) -> TensorInfo:
        """The tensor's description. Raises MissingTensorError."""
        try:
            return self._model.tensors[name]
        except KeyError:
            raise MissingTensorError(
                shown(name), "the file has no such tensor", path=self._model.paths[0]
            ) from None

    def read(self, name: str, first_row: int = 0, num_rows: int | None = None) -> memoryview:
        """`num_rows` rows (None: all that follow) from `first_row` on, in the tensor's own format.

        The memory is the caller's. Raises MissingTensorError, IndexError for rows that the tensor
        does not have, FileChangedError for bytes that the file no longer has.
        """
        info = self.info(name)
        offset, num_bytes = _place_of(info, first_row, num_rows)
        data = memoryview(bytearray(num_bytes))
        self._fill(data, info, offset)
        return data

    def load_weights(self, wanted: Sequence[WeightRows], num_threads: int) -> None:
        """Fills weights, each with as many rows as it has, on `num_threads` threads in C.

        Releases the GIL, and holds no more of the file than a few hundred KiB a thread. Raises as
        `read` does; ValueError for a weight of another type or width than its tensor's rows.
        """
        with self._loading:
            places = [self._place(rows) for rows in wanted]
            self.load_began.set()
            fault = load_weights(places, num_threads, self._cancelled)
        if fault is not None:
            raise self._error_of(fault, self.info(wanted[fault.place].tensor))

    def float32(self, name: str) -> NDArray[np.float32]:
        """The whole tensor, in its own shape. Raises as `read` does."""
        return self.float32_rows(name, 0, None).reshape(self.info(name).shape)

    def float32_rows(self, name: str, first_row: int, num_rows: int | None) -> NDArray[np.float32]:
        """(num_rows, n_in): `num_rows` rows, or all that follow, from `first_row` on."""
        from edgeserve.binding.dequantize import dequantize

        info = self.info(name)
        data = self.read(name, first_row, num_rows)
        kind = TENSOR_TYPES_BY_NAME[info.quant_type]
        num_elements = data.nbytes // kind.block_bytes * kind.block_elements
        return dequantize(info.quant_type, data, num_elements).reshape(-1, info.shape[-1])

    def _fill(self, data: memoryview, info: TensorInfo, offset: int) -> None:
        """Reads until `data` is full: one call moves at most 2 GiB, and may be cut short."""
        self._require_open(info)
        num_read = 0
        while num_read < data.nbytes:
            try:
                moved = os.preadv(
                    self._descriptors[info.part], [data[num_read:]], offset + num_read
                )
            except OSError as error:
                raise self._unreadable(info, offset + num_read, error.errno or 0) from error
            if moved == 0:
                raise self._cut(info, offset + num_read)
            num_read += moved

    def _place(self, rows: WeightRows) -> WeightPlace:
        info, weight = self.info(rows.tensor), rows.weight
        self._require_open(info)
        if (weight.quant_type, weight.num_cols) != (info.quant_type, info.shape[-1]):
            raise ValueError(
                f"a weight of {weight.num_cols} {weight.quant_type} for rows of {info.name}, "
                f"which are {info.shape[-1]} {info.quant_type}"
            )
        offset, _ = _place_of(info, rows.first_row, weight.num_rows)
        return WeightPlace(weight, self._descriptors[info.part], offset)

    def _require_open(self, info: TensorInfo) -> None:
        if not self._descriptors:
            raise ValueError(f"reading {info.name}: the reader is closed")
        if self._cancelled[0]:
            raise AbortedError(f"reading {shown(info.name)}")

    def _error_of(self, fault: LoadFault, info: TensorInfo) -> ModelFileError:
        if fault.error_number:
            return self._unreadable(info, fault.offset, fault.error_number)
        return self._cut(info, fault.offset)

    def _unreadable(self, info: TensorInfo, offset: int, error_number: int) -> UnreadableFileError:
        return UnreadableFileError(
            shown(info.name),
            f"cannot be read: {os.strerror(error_number)}; check the disk",
            offset=offset,
            path=self._model.paths[info.part],
        )

    def _cut(self, info: TensorInfo, offset: int) -> FileChangedError:
        return FileChangedError(
            shown(info.name),
            "the rest of the tensor's data is gone: the file was cut after it was opened; "
            "download it again",
            offset=offset,
            path=self._model.paths[info.part],
        )


def _place_of(info: TensorInfo, first_row: int, num_rows: int | None) -> tuple[int, int]:
    """Where rows of a tensor begin in its file, and their bytes. Raises IndexError."""
    rows_in_tensor = math.prod(info.shape[:-1])
    if num_rows is None:
        num_rows = rows_in_tensor - first_row
    if first_row < 0 or num_rows < 0 or first_row + num_rows > rows_in_tensor:
        raise IndexError(
            f"rows {first_row} to {first_row + num_rows} of {info.name}, which has {rows_in_tensor}"
        )
    row_bytes = info.num_bytes // rows_in_tensor
    return info.offset + first_row * row_bytes, num_rows * row_bytes


def _check_computable(model: ModelFile) -> None:
    for tensor in model.tensors.values():
        if not TENSOR_TYPES_BY_NAME[tensor.quant_type].computable:
            usable = ", ".join(kind.name for kind in TENSOR_TYPES.values() if kind.computable)
            raise UnsupportedModelError(
                f"{model.paths[tensor.part]}: tensor {shown(tensor.name)} is of type "
                f"{tensor.quant_type}, which edgeserve cannot compute with yet; "
                f"use a file of these types: {usable}"
            )


def _open_unchanged(path: Path, num_bytes: int) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableFileError(
            "file", f"cannot be opened: {error.strerror}; check the path", path=path
        ) from error
    found = os.fstat(descriptor).st_size
    if found != num_bytes:
        os.close(descriptor)
        raise FileChangedError(
            "file",
            f"has {found} bytes and had {num_bytes} when its header was read; load it again",
            path=path,
        )
    return descriptor
