"""The tensor descriptions of a GGUF file, and whether their data is where they say.

After this section, every tensor's bytes are known to lie inside the file and to be its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgeserve.errors import (
    DimensionCountError,
    DuplicateTensorError,
    EntryCountError,
    RowLengthError,
    TensorAlignmentError,
    TensorOffsetError,
    TensorOverlapError,
    TensorTooLargeError,
    TensorTruncatedError,
    TensorTypeError,
    ZeroDimensionError,
)
from edgeserve.frozen import frozen
from edgeserve.loader.header_reader import HeaderReader, shown
from edgeserve.loader.metadata_section import read_name
from edgeserve.loader.tensor_types import REMOVED_TENSOR_TYPES, TENSOR_TYPES, TensorType
from edgeserve.types import TensorInfo

MAX_DIMENSIONS = 4
MAX_TENSOR_NAME_BYTES = 64

_MAX_COUNT = 2**63 - 1
_SMALLEST_ENTRY_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # name, number of dims, one dim, type, offset


@frozen
class _Description:
    """A tensor as described. `start` counts from the data section; its field is at `start_at`."""

    name: str
    shape: tuple[int, ...]
    tensor_type: TensorType
    num_bytes: int
    start: int
    info_offset: int
    start_at: int

    @property
    def end(self) -> int:
        return self.start + self.num_bytes


def read_tensors(
    reader: HeaderReader, num_tensors: int, count_offset: int, alignment: int
) -> list[TensorInfo]:
    """The section's `num_tensors` entries (a count read at `count_offset`), in the file's order.

    The data section begins at the next multiple of `alignment` after the last entry.
    """
    if num_tensors * _SMALLEST_ENTRY_BYTES > reader.remaining:
        raise reader.defect(
            EntryCountError,
            "n_tensors",
            f"{num_tensors} tensors cannot fit in the {reader.remaining} bytes that follow",
            count_offset,
        )
    described: dict[str, _Description] = {}
    for index in range(num_tensors):
        tensor = _read_description(reader, index, alignment)
        if tensor.name in described:
            raise reader.defect(
                DuplicateTensorError,
                shown(tensor.name),
                f"the tensor is also described at byte {described[tensor.name].info_offset}",
                tensor.info_offset,
            )
        described[tensor.name] = tensor
    data_offset = math.ceil(reader.position / alignment) * alignment
    _check_places(reader, list(described.values()), data_offset)
    return [
        TensorInfo(
            name=tensor.name,
            shape=tensor.shape,
            quant_type=tensor.tensor_type.name,
            offset=data_offset + tensor.start,
            num_bytes=tensor.num_bytes,
            info_offset=tensor.info_offset,
        )
        for tensor in described.values()
    ]


def _read_description(reader: HeaderReader, index: int, alignment: int) -> _Description:
    info_offset = reader.position
    name = read_name(reader, f"name of tensor {index}", MAX_TENSOR_NAME_BYTES)
    dimensions = _read_dimensions(reader, name)
    tensor_type = _read_type(reader, name)
    num_bytes = _checked_num_bytes(reader, name, dimensions, tensor_type)
    start_at = reader.position
    start = reader.uint64(f"{shown(name)}'s offset")
    if start % alignment:
        raise reader.defect(
            TensorAlignmentError,
            f"{shown(name)}'s offset",
            f"{start} is not a multiple of the alignment {alignment}",
            start_at,
        )
    shape = tuple(reversed(dimensions))
    return _Description(name, shape, tensor_type, num_bytes, start, info_offset, start_at)


def _read_dimensions(reader: HeaderReader, name: str) -> Sequence[int]:
    """As stored, the fastest-running first."""
    field = f"{shown(name)}'s dimensions"
    offset = reader.position
    num_dimensions = reader.uint32(field)
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise reader.defect(
            DimensionCountError, field, f"{num_dimensions} of them: must be 1 to 4", offset
        )
    dimensions = [reader.uint64(field) for _ in range(num_dimensions)]
    if 0 in dimensions:
        at = offset + 4 + 8 * dimensions.index(0)
        raise reader.defect(ZeroDimensionError, field, f"{dimensions} has a length of 0", at)
    if math.prod(dimensions) > _MAX_COUNT:
        raise reader.defect(
            TensorTooLargeError, field, f"{dimensions} multiply to more than 2^63 - 1", offset + 4
        )
    return dimensions


def _read_type(reader: HeaderReader, name: str) -> TensorType:
    offset = reader.position
    type_id = reader.uint32(f"{shown(name)}'s type")
    if type_id in TENSOR_TYPES:
        return TENSOR_TYPES[type_id]
    if type_id in REMOVED_TENSOR_TYPES:
        reason = (
            f"{REMOVED_TENSOR_TYPES[type_id]} ({type_id}) was removed from the format; "
            "use a file quantised anew"
        )
    else:
        reason = (
            f"tensor type {type_id} is unknown; the file is damaged, or newer than this version"
        )
    raise reader.defect(TensorTypeError, f"{shown(name)}'s type", reason, offset)


def _checked_num_bytes(
    reader: HeaderReader, name: str, dimensions: Sequence[int], tensor_type: TensorType
) -> int:
    row_length, *rest = dimensions
    if row_length % tensor_type.block_elements:
        raise reader.defect(
            RowLengthError,
            f"{shown(name)}'s dimensions",
            f"rows of {row_length} are no multiple of {tensor_type.name}'s blocks "
            f"of {tensor_type.block_elements}",
            reader.position - 4 - 8 * len(dimensions),
        )
    return tensor_type.row_bytes(row_length) * math.prod(rest)


def _check_places(reader: HeaderReader, tensors: Sequence[_Description], data_offset: int) -> None:
    """Inside the file, and apart from each other; gaps and any order are fine."""
    available = reader.size - data_offset
    before: _Description | None = None
    for tensor in sorted(tensors, key=lambda tensor: tensor.start):
        field = f"{shown(tensor.name)}'s offset"
        if tensor.start >= available:
            raise reader.defect(
                TensorOffsetError,
                field,
                f"its data would begin at byte {data_offset + tensor.start} of a file of "
                f"{reader.size} bytes; the file is damaged or incomplete, download it again",
                tensor.start_at,
            )
        if tensor.end > available:
            raise reader.defect(
                TensorTruncatedError,
                field,
                f"its data ends at byte {data_offset + tensor.end} and the file at byte "
                f"{reader.size}; the file is incomplete, download it again",
                tensor.start_at,
            )
        if before is not None and tensor.start < before.end:
            raise reader.defect(
                TensorOverlapError,
                field,
                f"its data begins at byte {data_offset + tensor.start}, inside "
                f"{shown(before.name)}'s, which ends at byte {data_offset + before.end}",
                tensor.start_at,
            )
        before = tensor
