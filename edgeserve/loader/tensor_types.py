"""The block formats that a GGUF file can store a tensor in: their sizes, and which we compute with.

Numbers and names are GGML's (ggml.h, ggml-common.h). Nothing here knows how a block is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgeserve.frozen import frozen


@frozen
class TensorType:
    """A format: its number in files, and the elements and bytes of one block.

    `computable` says whether tensors of this type can be dequantised by this version.
    """

    type_id: int
    name: str
    block_elements: int
    block_bytes: int
    computable: bool = False

    def row_bytes(self, num_elements: int) -> int:
        """Bytes of a row of `num_elements`, which must be a whole number of blocks."""
        return num_elements // self.block_elements * self.block_bytes


_ALL = (
    TensorType(0, "F32", 1, 4, computable=True),
    TensorType(1, "F16", 1, 2, computable=True),
    TensorType(2, "Q4_0", 32, 18, computable=True),
    TensorType(3, "Q4_1", 32, 20, computable=True),
    TensorType(6, "Q5_0", 32, 22, computable=True),
    TensorType(7, "Q5_1", 32, 24, computable=True),
    TensorType(8, "Q8_0", 32, 34, computable=True),
    TensorType(9, "Q8_1", 32, 36),
    TensorType(10, "Q2_K", 256, 84, computable=True),
    TensorType(11, "Q3_K", 256, 110, computable=True),
    TensorType(12, "Q4_K", 256, 144, computable=True),
    TensorType(13, "Q5_K", 256, 176, computable=True),
    TensorType(14, "Q6_K", 256, 210, computable=True),
    TensorType(15, "Q8_K", 256, 292),
    TensorType(16, "IQ2_XXS", 256, 66),
    TensorType(17, "IQ2_XS", 256, 74),
    TensorType(18, "IQ3_XXS", 256, 98),
    TensorType(19, "IQ1_S", 256, 50),
    TensorType(20, "IQ4_NL", 32, 18, computable=True),
    TensorType(21, "IQ3_S", 256, 110),
    TensorType(22, "IQ2_S", 256, 82),
    TensorType(23, "IQ4_XS", 256, 136, computable=True),
    TensorType(24, "I8", 1, 1),
    TensorType(25, "I16", 1, 2),
    TensorType(26, "I32", 1, 4),
    TensorType(27, "I64", 1, 8),
    TensorType(28, "F64", 1, 8),
    TensorType(29, "IQ1_M", 256, 56),
    TensorType(30, "BF16", 1, 2, computable=True),
    TensorType(34, "TQ1_0", 256, 54),
    TensorType(35, "TQ2_0", 256, 66),
    TensorType(39, "MXFP4", 32, 17, computable=True),
    TensorType(40, "NVFP4", 64, 36),
    TensorType(41, "Q1_0", 128, 18),
    TensorType(42, "Q2_0", 64, 18),
)

TENSOR_TYPES: Mapping[int, TensorType] = {kind.type_id: kind for kind in _ALL}
TENSOR_TYPES_BY_NAME: Mapping[str, TensorType] = {kind.name: kind for kind in _ALL}

REMOVED_TENSOR_TYPES: Mapping[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""Numbers that once meant a format. Old files still carry them; no current program reads them."""
