"""Widens quantised weights to float32 in the native library. Knows bytes, not tensors or files."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgeserve.binding.library import load_library
from edgeserve.errors import InvalidRequestError, LibraryError, UnsupportedModelError


def dequantize(
    quant_type: str, data: bytes | memoryview | npt.NDArray[np.generic], num_elements: int
) -> npt.NDArray[np.float32]:
    """`num_elements` values of GGML's type `quant_type` ("F16", "Q4_K") as (num_elements,) float32.

    `data` is C-contiguous and exactly as long as the values' blocks. Raises UnsupportedModelError
    for a type without a dequantiser, InvalidRequestError for a wrong length, LibraryError.
    The GIL is released while the library works.
    """
    library = load_library()
    known = library.quant_types.get(quant_type)
    if known is None:
        raise UnsupportedModelError(
            f"tensor type {quant_type!r} is not supported; edgeserve reads "
            f"{', '.join(library.quant_types)}"
        )
    if num_elements < 0 or num_elements % known.block_elements:
        raise InvalidRequestError(
            "num_elements", num_elements, f"a multiple of {known.block_elements} for {quant_type}"
        )
    view = data.data if isinstance(data, np.ndarray) else memoryview(data)
    if not view.c_contiguous:
        raise InvalidRequestError("data", "a strided view", "contiguous")
    num_bytes = num_elements // known.block_elements * known.block_bytes
    if view.nbytes != num_bytes:
        raise InvalidRequestError(
            "data", view.nbytes, f"{num_bytes} bytes for {num_elements} elements of {quant_type}"
        )
    values = np.empty(num_elements, dtype=np.float32)
    if num_elements == 0:
        return values
    status = library.functions.es_dequantize(
        known.number,
        library.ffi.from_buffer("uint8_t[]", view),
        num_bytes,
        num_elements,
        library.ffi.from_buffer("float[]", values, require_writable=True),
    )
    if status != 0:
        raise LibraryError(
            f"dequantising {num_elements} elements of {quant_type}: {library.status_text(status)}"
        )
    return values
