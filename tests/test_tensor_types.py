"""The table of tensor types against the `gguf` package's and the native library's."""

from __future__ import annotations

import gguf as reference

from edgeserve.binding.library import load_library
from edgeserve.loader.tensor_types import (
    REMOVED_TENSOR_TYPES,
    TENSOR_TYPES,
    TENSOR_TYPES_BY_NAME,
)


def test_tensor_types_are_the_gguf_packages() -> None:
    for kind, (block_elements, block_bytes) in reference.GGML_QUANT_SIZES.items():
        if (
            kind.name == "Q8_1"
        ):  # the package says 40; ggml-common.h's two halves and 32 bytes are 36
            block_bytes = 36
        ours = TENSOR_TYPES[kind.value]
        assert (ours.name, ours.block_elements, ours.block_bytes) == (
            kind.name,
            block_elements,
            block_bytes,
        )


def test_tensor_types_have_one_number_and_one_name() -> None:
    assert len(TENSOR_TYPES_BY_NAME) == len(TENSOR_TYPES) == 35
    assert not TENSOR_TYPES.keys() & REMOVED_TENSOR_TYPES.keys()


def test_computable_types_are_those_that_the_library_widens() -> None:
    ours = {
        kind.name: (kind.type_id, kind.block_elements, kind.block_bytes)
        for kind in TENSOR_TYPES.values()
        if kind.computable
    }
    assert ours == {
        name: (kind.number, kind.block_elements, kind.block_bytes)
        for name, kind in load_library().quant_types.items()
    }
