"""Dequantising against the gguf package's numpy code: every bit, on random blocks."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from edgeserve.binding.dequantize import dequantize
from edgeserve.binding.library import load_library
from edgeserve.errors import InvalidRequestError, UnsupportedModelError

QUANT_TYPES = [
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
]  # fmt: skip

# Byte offsets of a block's float16 fields.
HALF_FIELDS = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,),
}  # fmt: skip
EVERY_HALF = np.arange(65536, dtype=np.uint16)


def reference(quant_type: str, data: np.ndarray) -> np.ndarray:
    """What the gguf package makes of `data`; float32, flat."""
    number = gguf.GGMLQuantizationType[quant_type]
    with np.errstate(all="ignore"):
        if quant_type == "F16":
            return data.view(np.float16).astype(np.float32)
        return gguf.quants.dequantize(data, number).astype(np.float32, copy=False).ravel()


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal bit for bit; a NaN's payload is nobody's promise, that it is NaN is."""
    assert actual.dtype == expected.dtype == np.float32
    assert np.array_equal(np.isnan(actual), np.isnan(expected))
    finite = ~np.isnan(expected)
    np.testing.assert_array_equal(actual[finite].view(np.uint32), expected[finite].view(np.uint32))


def random_blocks(quant_type: str, num_blocks: int, seed: int) -> np.ndarray:
    _, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, size=(num_blocks, block_bytes), dtype=np.uint8)


@pytest.mark.parametrize("quant_type", QUANT_TYPES)
def test_random_bytes_widen_as_in_gguf(quant_type: str) -> None:
    blocks = random_blocks(quant_type, 4096, seed=1)
    elements, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    actual = dequantize(quant_type, blocks.ravel(), 4096 * elements)
    assert_same_bits(actual, reference(quant_type, blocks.ravel()))


@pytest.mark.parametrize("quant_type", HALF_FIELDS)
def test_every_float16_scale_widens_as_in_gguf(quant_type: str) -> None:
    blocks = random_blocks(quant_type, len(EVERY_HALF), seed=2)
    for i, offset in enumerate(HALF_FIELDS[quant_type]):
        scales = np.roll(EVERY_HALF, 4099 * i)
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    elements, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    step = 4096  # bounds what the reference needs at once
    for start in range(0, len(blocks), step):
        part = np.ascontiguousarray(blocks[start : start + step]).ravel()
        actual = dequantize(quant_type, part, step * elements)
        assert_same_bits(actual, reference(quant_type, part))


@pytest.mark.parametrize(("quant_type", "dtype"), [("F16", np.float16)])
def test_every_float16_value_is_exact(quant_type: str, dtype: type[np.float16]) -> None:
    actual = dequantize(quant_type, EVERY_HALF.tobytes(), len(EVERY_HALF))
    assert_same_bits(actual, EVERY_HALF.view(dtype).astype(np.float32))


def test_every_bfloat16_value_is_the_upper_half_of_a_float32() -> None:
    actual = dequantize("BF16", EVERY_HALF.tobytes(), len(EVERY_HALF))
    assert_same_bits(actual, (EVERY_HALF.astype(np.uint32) << 16).view(np.float32))


def test_every_mxfp4_exponent_widens_as_in_gguf() -> None:
    blocks = random_blocks("MXFP4", 256, seed=3)
    blocks[:, 0] = np.arange(256)
    actual = dequantize("MXFP4", blocks.ravel(), 256 * 32)
    assert_same_bits(actual, reference("MXFP4", blocks.ravel()))


def test_known_value_of_one_q4_0_block() -> None:
    block = b"\x00\x38" + bytes([0x80 | i for i in range(16)])  # scale 0.5, low 0..15, high 8
    expected = [0.5 * (i - 8) for i in range(16)] + [0.0] * 16
    assert dequantize("Q4_0", block, 32).tolist() == expected


@pytest.mark.parametrize("quant_type", QUANT_TYPES)
def test_block_sizes_are_those_of_gguf(quant_type: str) -> None:
    known = load_library().quant_types[quant_type]
    number = gguf.GGMLQuantizationType[quant_type]
    assert known.number == number
    assert (known.block_elements, known.block_bytes) == gguf.GGML_QUANT_SIZES[number]


def test_library_has_exactly_the_documented_types() -> None:
    assert list(load_library().quant_types) == QUANT_TYPES


@pytest.mark.parametrize("quant_type", QUANT_TYPES)
def test_unaligned_source_widens_the_same(quant_type: str) -> None:
    blocks = random_blocks(quant_type, 3, seed=4).ravel()
    elements = 3 * load_library().quant_types[quant_type].block_elements
    shifted = memoryview(b"\x00" + blocks.tobytes())[1:]
    aligned = dequantize(quant_type, blocks, elements)
    assert_same_bits(dequantize(quant_type, shifted, elements), aligned)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, "<u2")])
def test_any_contiguous_buffer_is_accepted(kind: type[bytes]) -> None:
    assert dequantize("F16", kind(b"\x00\x3c\x00\xc0"), 2).tolist() == [1.0, -2.0]


@pytest.mark.parametrize("quant_type", QUANT_TYPES)
def test_no_elements_is_an_empty_array(quant_type: str) -> None:
    assert dequantize(quant_type, b"", 0).shape == (0,)


@pytest.mark.parametrize("quant_type", QUANT_TYPES)
@pytest.mark.parametrize("excess", [-1, 1])
def test_wrong_number_of_bytes_is_refused(quant_type: str, excess: int) -> None:
    known = load_library().quant_types[quant_type]
    num_bytes = 2 * known.block_bytes + excess
    with pytest.raises(InvalidRequestError) as caught:
        dequantize(quant_type, bytes(num_bytes), 2 * known.block_elements)
    assert (caught.value.parameter, caught.value.value) == ("data", num_bytes)


@pytest.mark.parametrize("num_elements", [-32, -1, 1, 31, 33, 2**63 - 1])
def test_partial_block_is_refused(num_elements: int) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        dequantize("Q4_0", bytes(18), num_elements)
    assert caught.value.parameter == "num_elements"


def test_absurd_element_count_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(InvalidRequestError, match="bytes for 9223372036854775776 elements"):
        dequantize("Q4_0", bytes(18), 2**63 - 32)


def test_strided_data_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="contiguous"):
        dequantize("F32", np.zeros(8, np.float32)[::2], 4)


@pytest.mark.parametrize("quant_type", ["NVFP4", "IQ1_S", "TQ2_0", "q4_0", ""])
def test_unsupported_type_is_named(quant_type: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"'{quant_type}'"):
        dequantize(quant_type, b"", 0)
