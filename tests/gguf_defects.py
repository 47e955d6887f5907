"""Damaged and mistaken files, each with the error that reading it must give."""

from __future__ import annotations

from dataclasses import dataclass

from edgeserve import errors
from edgeserve.errors import ModelFileError

from . import gguf_files as hand

FIRST_KEY = hand.HEADER_BYTES


@dataclass(frozen=True)
class Defect:
    """File content, and the error it must give: its class, the field's words, the byte."""

    content: bytes
    kind: type[ModelFileError]
    field: str
    offset: int | None


def key_then(value_type: int, payload: bytes) -> bytes:
    """A file with one key, `k`, of which `payload` is everything after the value's type."""
    return hand.gguf([hand.entry("k", value_type, payload)])


AFTER_K = FIRST_KEY + 8 + 1  # where the value type of a first key of one letter is


def one_tensor(*arguments: object, data: bytes = bytes(64)) -> bytes:
    return hand.gguf([], [hand.tensor("t", *arguments)], data)  # type: ignore[arg-type]


AFTER_T = FIRST_KEY + 8 + 1  # the same for a first tensor of one letter: its number of dimensions


def one_alignment(value_type: int, value: object) -> bytes:
    return hand.gguf([hand.scalar("general.alignment", value_type, value)])


def two_tensors(second_offset: int, second_name: str = "u", num_data: int = 128) -> bytes:
    tensors = [hand.tensor("t", [10]), hand.tensor(second_name, [8], hand.F32, second_offset)]
    return hand.gguf([], tensors, bytes(num_data))


SECOND_TENSOR = FIRST_KEY + len(hand.tensor("t", [10]))
SECOND_TENSOR_OFFSET = SECOND_TENSOR + len(hand.tensor("u", [8])) - 8

DEFECTS: dict[str, Defect] = {
    # lengths and counts far beyond the file
    "array length 2^63-1 in 49 bytes": Defect(
        key_then(hand.ARRAY, hand.u32(hand.UINT8) + hand.u64(2**63 - 1)),
        errors.ArrayLengthError,
        "k",
        AFTER_K + 8,
    ),
    "array cut in its length": Defect(
        key_then(hand.ARRAY, hand.u32(hand.UINT8) + hand.u64(2**63 - 1))[:43],
        errors.TruncatedHeaderError,
        "k's length",
        AFTER_K + 8,
    ),
    "number array length 2^63-1": Defect(
        hand.gguf([hand.array("k", hand.FLOAT32, [1.0], count=2**63 - 1)]),
        errors.ArrayLengthError,
        "k",
        AFTER_K + 8,
    ),
    "string array length 2^64-1": Defect(
        hand.gguf([hand.array("k", hand.STRING, ["a"], count=2**64 - 1)]),
        errors.ArrayLengthError,
        "k",
        AFTER_K + 8,
    ),
    "key length 2^48": Defect(
        hand.gguf([hand.text("key", length=2**48) + bytes(20)]),
        errors.StringLengthError,
        "key 0",
        FIRST_KEY,
    ),
    "key length 2^64-1": Defect(
        hand.gguf([hand.text("key", length=2**64 - 1) + bytes(20)]),
        errors.StringLengthError,
        "key 0",
        FIRST_KEY,
    ),
    "n_kv 2^60": Defect(
        hand.gguf([hand.scalar("k", hand.UINT32, 1)], n_kv=2**60),
        errors.EntryCountError,
        "n_kv",
        16,
    ),
    "n_tensors 2^60": Defect(
        hand.gguf([], [hand.tensor("t", [1])], bytes(64), n_tensors=2**60),
        errors.EntryCountError,
        "n_tensors",
        8,
    ),
    "n_kv one too many": Defect(
        hand.gguf([hand.scalar("k", hand.UINT32, 1)] * 1, n_kv=2) + bytes(7),
        errors.EntryCountError,
        "n_kv",
        16,
    ),
    "value length 2^29 in 60 bytes": Defect(
        key_then(hand.STRING, hand.text(bytes(15), length=2**29)),
        errors.StringLengthError,
        "k",
        AFTER_K + 4,
    ),
    "a string inside an array past the end": Defect(
        hand.gguf(
            [hand.entry("k", hand.ARRAY, hand.u32(8) + hand.u64(2) + hand.text("a") + hand.u64(99))]
        ),
        errors.StringLengthError,
        "k[1]",
        AFTER_K + 4 + 4 + 8 + 9,
    ),
    # tensors' shapes
    "zero dimension": Defect(
        one_tensor([4, 0]), errors.ZeroDimensionError, "t's dimensions", AFTER_T + 4 + 8
    ),
    "row not a multiple of the block": Defect(
        one_tensor([33, 32], hand.Q4_0), errors.RowLengthError, "t's dimensions", AFTER_T + 4
    ),
    "dimensions wrap 64 bits": Defect(
        one_tensor([2**32, 2**32, 4]),
        errors.TensorTooLargeError,
        "t's dimensions",
        AFTER_T + 4,
    ),
    "a dimension of 2^63": Defect(
        one_tensor([2**63]), errors.TensorTooLargeError, "t's dimensions", AFTER_T + 4
    ),
    **{
        f"n_dims {count}": Defect(
            one_tensor([1] * min(count, 9), hand.F32, 0, count),
            errors.DimensionCountError,
            "t's dimensions",
            AFTER_T,
        )
        for count in (0, 5, 9, 2**32 - 1)
    },
    # alignment
    **{
        f"alignment {value}": Defect(
            one_alignment(hand.UINT32, value),
            errors.AlignmentError,
            "general.alignment",
            FIRST_KEY,
        )
        for value in (0, 3, 2**31)
    },
    "alignment a string": Defect(
        one_alignment(hand.STRING, "32"), errors.AlignmentError, "general.alignment", FIRST_KEY
    ),
    "alignment a uint64": Defect(
        one_alignment(hand.UINT64, 32), errors.AlignmentError, "general.alignment", FIRST_KEY
    ),
    "alignment an array": Defect(
        hand.gguf([hand.array("general.alignment", hand.UINT32, [32])]),
        errors.AlignmentError,
        "general.alignment",
        FIRST_KEY,
    ),
    # values
    "nested array": Defect(
        key_then(hand.ARRAY, hand.u32(hand.ARRAY) + hand.u64(1) + bytes(32)),
        errors.NestedArrayError,
        "k",
        AFTER_K + 4,
    ),
    "unknown value type": Defect(key_then(13, bytes(8)), errors.ValueTypeError, "k", AFTER_K),
    "unknown element type": Defect(
        key_then(hand.ARRAY, hand.u32(77) + hand.u64(0)),
        errors.ValueTypeError,
        "k's elements",
        AFTER_K + 4,
    ),
    "a boolean of 2": Defect(key_then(hand.BOOL, b"\2"), errors.BoolValueError, "k", AFTER_K + 4),
    "a boolean of 255 in an array": Defect(
        key_then(hand.ARRAY, hand.u32(hand.BOOL) + hand.u64(3) + b"\0\1\xff"),
        errors.BoolValueError,
        "k",
        AFTER_K + 4 + 4 + 8 + 2,
    ),
    "a value that is not UTF-8": Defect(
        key_then(hand.STRING, hand.text(b"ab\xff")), errors.InvalidTextError, "k", AFTER_K + 4
    ),
    "a lone surrogate in an array": Defect(
        hand.gguf(
            [
                hand.entry(
                    "k",
                    hand.ARRAY,
                    hand.u32(hand.STRING)
                    + hand.u64(2)
                    + hand.text("a")
                    + hand.text(b"\xed\xa0\x80"),
                )
            ]
        ),
        errors.InvalidTextError,
        "k[1]",
        AFTER_K + 4 + 4 + 8 + 9,
    ),
    # names
    "a key that is not UTF-8": Defect(
        hand.gguf([hand.entry(b"\x80key", hand.UINT8, b"\0")]),
        errors.InvalidTextError,
        "key 0",
        FIRST_KEY,
    ),
    "an empty key": Defect(
        hand.gguf([hand.entry("", hand.UINT64, bytes(8))]),
        errors.NameLengthError,
        "key 0",
        FIRST_KEY,
    ),
    "a key of 65,536 bytes": Defect(
        hand.gguf([hand.scalar("k" * 65_536, hand.UINT8, 0)]),
        errors.NameLengthError,
        "key 0",
        FIRST_KEY,
    ),
    "a tensor's name of 65 bytes": Defect(
        hand.gguf([], [hand.tensor("n" * 65, [1])], bytes(32)),
        errors.NameLengthError,
        "name of tensor 0",
        FIRST_KEY,
    ),
    "an empty tensor's name": Defect(
        hand.gguf([], [hand.tensor("", [1])], bytes(32)),
        errors.NameLengthError,
        "name of tensor 0",
        FIRST_KEY,
    ),
    "a tensor's name that is not UTF-8": Defect(
        hand.gguf([], [hand.tensor(b"\xc3(", [1])], bytes(32)),
        errors.InvalidTextError,
        "name of tensor 0",
        FIRST_KEY,
    ),
    "duplicate key": Defect(
        hand.gguf([hand.scalar("k", hand.UINT8, 1), hand.scalar("k", hand.UINT8, 1)]),
        errors.DuplicateKeyError,
        "k",
        FIRST_KEY + len(hand.scalar("k", hand.UINT8, 1)),
    ),
    "duplicate tensor": Defect(
        two_tensors(64, "t"), errors.DuplicateTensorError, "t", SECOND_TENSOR
    ),
    # tensor types and places
    "unknown tensor type": Defect(
        one_tensor([32], 4_000_000_000), errors.TensorTypeError, "t's type", AFTER_T + 4 + 8
    ),
    "removed tensor type": Defect(
        one_tensor([32], 31), errors.TensorTypeError, "t's type", AFTER_T + 4 + 8
    ),
    "offset unaligned": Defect(
        two_tensors(40), errors.TensorAlignmentError, "u's offset", SECOND_TENSOR_OFFSET
    ),
    "offset past the end": Defect(
        two_tensors(2**63), errors.TensorOffsetError, "u's offset", SECOND_TENSOR_OFFSET
    ),
    "offset at the end": Defect(
        two_tensors(128), errors.TensorOffsetError, "u's offset", SECOND_TENSOR_OFFSET
    ),
    "data cut": Defect(
        two_tensors(64, num_data=95),
        errors.TensorTruncatedError,
        "u's offset",
        SECOND_TENSOR_OFFSET,
    ),
    "tensors overlap": Defect(
        two_tensors(32), errors.TensorOverlapError, "u's offset", SECOND_TENSOR_OFFSET
    ),
    # versions and formats
    "version 1": Defect(hand.gguf(version=1), errors.GGUFVersionError, "version", 4),
    "version 0": Defect(hand.gguf(version=0), errors.GGUFVersionError, "version", 4),
    "version 4": Defect(hand.gguf(version=4), errors.GGUFVersionError, "version", 4),
    "big-endian": Defect(
        b"GGUF" + (3).to_bytes(4, "big") + bytes(16), errors.ByteOrderError, "version", 4
    ),
    "header cut": Defect(hand.gguf()[:20], errors.TruncatedHeaderError, "n_kv", 16),
    "magic cut": Defect(b"GGU", errors.TruncatedHeaderError, "magic", 0),
    "empty": Defect(b"", errors.EmptyFileError, "file", None),
}

LOOKALIKES: dict[str, tuple[bytes, str]] = {
    "Git LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 98362432\n",
        "git lfs pull",
    ),
    "web page": (b"\n<!DOCTYPE html>\n<html><body>Not found</body></html>", "/resolve/"),
    "safetensors": (hand.u64(64) + b'{"__metadata__":{"format":"pt"}}', "convert"),
    "zip": (b"PK\x03\x04\x14\0\0\0\x08\0" + bytes(40), "convert"),
    "pickle": (b"\x80\x02}q\0(X\x05\0\0\0model" + bytes(40), "convert"),
    "gzip": (b"\x1f\x8b\x08\0" + bytes(40), "unpack"),
    "tar": (b"model.gguf".ljust(257, b"\0") + b"ustar  \0" + bytes(200), "unpack"),
    "GGJT": (b"tjgg\3\0\0\0" + bytes(40), "GGUF of the model"),
    "JSON": (b'{"error": "Repository not found"}', "download"),
    "zeros": (bytes(4096), "download it again"),
    "plain text": (b"# A model card\n\nhello\n", ".gguf"),
    "no known": (b"\x93\xfe\x01\x77" * 20, ".gguf"),
}
