"""Builds GGUF files by hand, byte for byte, right or wrong, for tests of what reads them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

HEADER_BYTES = 24
"""Magic, version and two counts: the first key is here."""

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = (
    range(13)
)
NUMBER_CODES = {
    UINT8: "B",
    INT8: "b",
    UINT16: "H",
    INT16: "h",
    UINT32: "I",
    INT32: "i",
    FLOAT32: "f",
    BOOL: "?",
    UINT64: "Q",
    INT64: "q",
    FLOAT64: "d",
}

F32, F16, Q4_0, Q4_K = 0, 1, 2, 12


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes, length: int | None = None) -> bytes:
    """A string, with `length` as the length it claims."""
    data = value.encode() if isinstance(value, str) else value
    return u64(len(data) if length is None else length) + data


def number(value_type: int, value: float) -> bytes:
    return struct.pack(f"<{NUMBER_CODES[value_type]}", value)


def value_bytes(value_type: int, value: object) -> bytes:
    if value_type == STRING:
        assert isinstance(value, str)
        return text(value)
    assert isinstance(value, (bool, int, float))
    return number(value_type, value)


def entry(key: str | bytes, value_type: int, payload: bytes) -> bytes:
    """A metadata entry around a value's own bytes."""
    return text(key) + u32(value_type) + payload


def scalar(key: str, value_type: int, value: object) -> bytes:
    return entry(key, value_type, value_bytes(value_type, value))


def array(key: str, element_type: int, values: Sequence[object], count: int | None = None) -> bytes:
    """An array entry, with `count` as the length it claims."""
    payload = b"".join(value_bytes(element_type, value) for value in values)
    claimed = len(values) if count is None else count
    return entry(key, ARRAY, u32(element_type) + u64(claimed) + payload)


def tensor(
    name: str | bytes,
    dimensions: Sequence[int],
    type_id: int = F32,
    offset: int = 0,
    num_dimensions: int | None = None,
) -> bytes:
    """A tensor's description; `dimensions` as GGUF stores them, innermost first."""
    count = len(dimensions) if num_dimensions is None else num_dimensions
    return text(name) + u32(count) + b"".join(map(u64, dimensions)) + u32(type_id) + u64(offset)


def gguf(
    entries: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    n_kv: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A file of these parts, `data` padded to `alignment`; the counts can claim otherwise."""
    head = b"GGUF" + u32(version)
    head += u64(len(tensors) if n_tensors is None else n_tensors)
    head += u64(len(entries) if n_kv is None else n_kv)
    head += b"".join(entries) + b"".join(tensors)
    if data:
        head += bytes(-len(head) % alignment)
    return head + data


def small_model(version: int = 3) -> bytes:
    """A valid file of 2 KB with every value type, three tensors and some of a tokenizer."""
    entries = [
        scalar("general.architecture", STRING, "llama"),
        scalar("general.alignment", UINT32, 32),
        *(
            scalar(f"test.number.{value_type}", value_type, 1)
            for value_type in NUMBER_CODES
            if value_type != BOOL
        ),
        scalar("test.bool", BOOL, True),
        scalar("llama.block_count", UINT32, 1),
        array("tokenizer.ggml.tokens", STRING, [f"token{index}" for index in range(16)]),
        array("tokenizer.ggml.scores", FLOAT32, [index / 4 for index in range(16)]),
        array("tokenizer.ggml.token_type", INT32, [1] * 16),
        array("test.flags", BOOL, [True, False, True]),
        array("test.empty", STRING, []),
    ]
    tensors = [
        tensor("token_embd.weight", [8, 16], F32, 0),
        tensor("blk.0.attn_q.weight", [32, 4], Q4_0, 512),
        tensor("output_norm.weight", [8], F16, 608),
    ]
    return gguf(entries, tensors, bytes(range(208)) * 3, version=version)
