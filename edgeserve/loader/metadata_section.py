"""The key-value section of a GGUF file: keys, types and values.

The only key that it understands is `general.alignment`, which the file itself is laid out by.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from edgeserve.errors import (
    AlignmentError,
    ArrayLengthError,
    BoolValueError,
    DuplicateKeyError,
    EntryCountError,
    ModelFileError,
    NameLengthError,
    NestedArrayError,
    ValueTypeError,
)
from edgeserve.loader.header_reader import HeaderReader, shown
from edgeserve.types import Metadata, MetadataValue

ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
"""Tensor data is padded to the alignment; past a huge page it could only waste disk."""

MAX_ARRAY_ELEMENTS = 1 << 24
"""Sixty times the largest vocabulary. A value takes up to forty times its bytes in the file."""

MAX_KEY_BYTES = 2**16 - 1
_SMALLEST_ENTRY_BYTES = 8 + 1 + 4 + 1  # length and one byte of key, type, one byte of value

_UINT32 = 4
_BOOL = 7
_STRING = 8
_ARRAY = 9
_NUMBER_CODES: Mapping[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "B",
    10: "Q",
    11: "q",
    12: "d",
}


def read_metadata(reader: HeaderReader, num_keys: int, count_offset: int) -> tuple[Metadata, int]:
    """The section's `num_keys` entries (a count read at `count_offset`) and the alignment."""
    if num_keys * _SMALLEST_ENTRY_BYTES > reader.remaining:
        raise reader.defect(
            EntryCountError,
            "n_kv",
            f"{num_keys} keys cannot fit in the {reader.remaining} bytes that follow",
            count_offset,
        )
    values: dict[str, MetadataValue] = {}
    offsets: dict[str, int] = {}
    alignment = DEFAULT_ALIGNMENT
    for index in range(num_keys):
        offset = reader.position
        key = read_name(reader, f"key {index}", MAX_KEY_BYTES)
        if key in values:
            raise reader.defect(
                DuplicateKeyError,
                shown(key),
                f"the key is also at byte {offsets[key]}; which of the two counts is unknowable",
                offset,
            )
        value_type = reader.uint32(f"{shown(key)}'s type")
        values[key] = _read_value(reader, shown(key), value_type)
        offsets[key] = offset
        if key == ALIGNMENT_KEY:
            alignment = _checked_alignment(reader, value_type, values[key], offset)
    return Metadata(values, offsets), alignment


def read_name(reader: HeaderReader, field: str, max_bytes: int) -> str:
    """A key or a tensor's name: a string of 1 to `max_bytes` bytes."""
    offset = reader.position
    num_bytes = reader.uint64(field)
    if num_bytes == 0 or max_bytes < num_bytes <= reader.remaining:
        raise reader.defect(
            NameLengthError,
            field,
            f"a name of {num_bytes} bytes: must be 1 to {max_bytes}",
            offset,
        )
    reader.position = offset
    return reader.string(field)


def _read_value(reader: HeaderReader, field: str, value_type: int) -> MetadataValue:
    if value_type == _STRING:
        return reader.string(field)
    if value_type == _ARRAY:
        return _read_array(reader, field)
    if value_type not in _NUMBER_CODES:
        raise _unknown_type(reader, field, value_type)
    return _read_numbers(reader, field, value_type, 1)[0]


def _read_array(reader: HeaderReader, field: str) -> MetadataValue:
    element_type = reader.uint32(f"{field}'s element type")
    if element_type == _ARRAY:
        raise reader.defect(
            NestedArrayError,
            field,
            "an array of arrays; nothing that edgeserve runs has one, so the file is damaged "
            "or made for another program",
            reader.position - 4,
        )
    if element_type != _STRING and element_type not in _NUMBER_CODES:
        raise _unknown_type(reader, f"{field}'s elements", element_type)
    count = _checked_count(reader, field, element_type)
    if element_type == _STRING:
        return reader.strings(count, field)
    return _read_numbers(reader, field, element_type, count)


def _checked_count(reader: HeaderReader, field: str, element_type: int) -> int:
    offset = reader.position
    count = reader.uint64(f"{field}'s length")
    # A string takes at least its length's eight bytes.
    smallest = 8 if element_type == _STRING else struct.calcsize(f"<{_NUMBER_CODES[element_type]}")
    if count * smallest > reader.remaining:
        limit = f"the file has {reader.remaining} bytes left"
    elif count > MAX_ARRAY_ELEMENTS:
        limit = f"no model needs more than {MAX_ARRAY_ELEMENTS}"
    else:
        return count
    raise reader.defect(
        ArrayLengthError, field, f"an array of {count} elements, but {limit}", offset
    )


def _read_numbers(
    reader: HeaderReader, field: str, value_type: int, count: int
) -> tuple[bool | int | float, ...]:
    start = reader.position
    values = reader.numbers(_NUMBER_CODES[value_type], count, field)
    if value_type != _BOOL:
        return values
    for index, value in enumerate(values):
        if value > 1:
            raise reader.defect(
                BoolValueError, field, f"{value} is no boolean: must be 0 or 1", start + index
            )
    return tuple(map(bool, values))


def _unknown_type(reader: HeaderReader, field: str, value_type: int) -> ModelFileError:
    return reader.defect(
        ValueTypeError,
        field,
        f"value type {value_type} does not exist in GGUF (0 to 12 do)",
        reader.position - 4,
    )


def _checked_alignment(
    reader: HeaderReader, value_type: int, value: MetadataValue, offset: int
) -> int:
    if value_type != _UINT32 or not isinstance(value, int):
        what = f"of value type {value_type}"
    elif value.bit_count() == 1 and value <= MAX_ALIGNMENT:
        return value
    else:
        what = str(value)
    raise reader.defect(
        AlignmentError,
        ALIGNMENT_KEY,
        f"{what}: must be a uint32, a power of two and at most {MAX_ALIGNMENT}",
        offset,
    )
