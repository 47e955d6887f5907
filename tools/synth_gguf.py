"""Writes a GGUF file with the shapes of a real model and random weights, for measuring speed.

    python tools/synth_gguf.py OUT.gguf --shape llama-1b --tokenizer-from MODEL.gguf

The vocabulary is another model's. `q4_k_m` makes Q4_K and Q6_K blocks directly, in the mix that
llama.cpp's Q4_K_M has; `f16` is for a quantiser to go on from. What such a model says is noise.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

SPREAD = 0.02
"""Standard deviation of the weights, about that of trained ones."""
_SUPERBLOCK = 256
_FILE_TYPES = {"f16": 1, "q4_k_m": 15}  # general.file_type


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    tied: bool
    rope_base: float
    context: int


SHAPES = {
    "llama-1b": Shape(16, 2048, 8192, 32, 8, 64, True, 500000.0, 131072),
    "llama-3b": Shape(28, 3072, 8192, 24, 8, 128, True, 500000.0, 131072),
    "llama-8b": Shape(32, 4096, 14336, 32, 8, 128, False, 500000.0, 131072),
    "tiny": Shape(2, 256, 512, 4, 2, 64, True, 10000.0, 2048),
}


@dataclass(frozen=True)
class Tensor:
    name: str
    rows: int
    cols: int
    type: Type

    @property
    def row_bytes(self) -> int:
        block_elements, block_bytes = gguf.GGML_QUANT_SIZES[self.type]
        return self.cols // block_elements * block_bytes


# --- weights -------------------------------------------------------------------------------------


def fill_f32(_: np.random.Generator, rows: int, cols: int) -> NDArray[np.float32]:
    """Norms: they change nothing."""
    return np.ones((rows, cols), np.float32)


def fill_f16(rng: np.random.Generator, rows: int, cols: int) -> NDArray[np.float16]:
    return (rng.standard_normal((rows, cols), dtype=np.float32) * SPREAD).astype(np.float16)


def fill_q4_k(rng: np.random.Generator, rows: int, cols: int) -> NDArray[np.uint8]:
    """d, dmin, 8 six-bit scales and minimums, 256 nibbles.

    Every minimum equals its scale and dmin is 7.5 d: the 16 levels lie evenly around zero.
    """
    num_blocks = rows * cols // _SUPERBLOCK
    blocks = np.empty((num_blocks, 144), np.uint8)
    scales = rng.integers(32, 64, (num_blocks, 8), dtype=np.uint8)
    level, mean_scale = math.sqrt((16**2 - 1) / 12), 47.5
    d = _jittered(rng, SPREAD / (level * mean_scale), num_blocks)
    blocks[:, 0:2] = d.view(np.uint8).reshape(num_blocks, 2)
    blocks[:, 2:4] = (d.astype(np.float32) * 7.5).astype(np.float16).view(np.uint8).reshape(-1, 2)
    # Six bits of the first four scales and the top two of the others; the same for minimums;
    # then the low four of the others, scales and minimums in one byte.
    first, others = scales[:, :4], scales[:, 4:]
    blocks[:, 4:8] = blocks[:, 8:12] = first | (others >> 4 << 6)
    blocks[:, 12:16] = (others & 15) | (others & 15) << 4
    blocks[:, 16:] = _random_bytes(rng, num_blocks, 128)
    return blocks.reshape(rows, -1)


def fill_q6_k(rng: np.random.Generator, rows: int, cols: int) -> NDArray[np.uint8]:
    """256 six-bit values, 16 signed scales, d."""
    num_blocks = rows * cols // _SUPERBLOCK
    blocks = np.empty((num_blocks, 210), np.uint8)
    blocks[:, :192] = _random_bytes(rng, num_blocks, 192)
    scales = rng.integers(8, 17, (num_blocks, 16)) * rng.choice([-1, 1], (num_blocks, 16))
    blocks[:, 192:208] = scales.astype(np.int8).view(np.uint8)
    level, mean_scale = math.sqrt((64**2 - 1) / 12), 12
    d = _jittered(rng, SPREAD / (level * mean_scale), num_blocks)
    blocks[:, 208:] = d.view(np.uint8).reshape(num_blocks, 2)
    return blocks.reshape(rows, -1)


def _jittered(rng: np.random.Generator, value: float, count: int) -> NDArray[np.float16]:
    return (value * rng.uniform(0.8, 1.25, count)).astype(np.float16)


def _random_bytes(rng: np.random.Generator, rows: int, cols: int) -> NDArray[np.uint8]:
    return np.frombuffer(rng.bytes(rows * cols), np.uint8).reshape(rows, cols)


Fill = Callable[[np.random.Generator, int, int], NDArray[np.generic]]
FILLS: dict[Type, Fill] = {
    Type.F32: fill_f32,
    Type.F16: fill_f16,
    Type.Q4_K: fill_q4_k,
    Type.Q6_K: fill_q6_k,
}


# --- the file ------------------------------------------------------------------------------------


def tensors(shape: Shape, layout: str, vocab_size: int) -> Iterator[Tensor]:
    base, best = (Type.F16, Type.F16) if layout == "f16" else (Type.Q4_K, Type.Q6_K)
    width = shape.width
    query, kv = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    yield Tensor("token_embd.weight", vocab_size, width, best if shape.tied else base)
    if not shape.tied:
        yield Tensor("output.weight", vocab_size, width, best)
    yield Tensor("output_norm.weight", 1, width, Type.F32)
    for layer in range(shape.layers):
        better = best if _has_more_bits(layer, shape.layers) else base
        for name, rows, cols, kind in (
            ("attn_norm", 1, width, Type.F32),
            ("attn_q", query, width, base),
            ("attn_k", kv, width, base),
            ("attn_v", kv, width, better),
            ("attn_output", width, query, base),
            ("ffn_norm", 1, width, Type.F32),
            ("ffn_gate", shape.feed_forward, width, base),
            ("ffn_up", shape.feed_forward, width, base),
            ("ffn_down", width, shape.feed_forward, better),
        ):
            yield Tensor(f"blk.{layer}.{name}.weight", rows, cols, kind)


def _has_more_bits(layer: int, layers: int) -> bool:
    """The layers whose attn_v and ffn_down are Q6_K in Q4_K_M: the outer eighths, then a third."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def write_metadata(writer: gguf.GGUFWriter, shape: Shape, layout: str, vocab_size: int) -> None:
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab_size)
    writer.add_file_type(_FILE_TYPES[layout])
    writer.add_quantization_version(2)


def copy_tokenizer(writer: gguf.GGUFWriter, source: gguf.GGUFReader) -> None:
    for key, field in source.fields.items():
        if not key.startswith("tokenizer."):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, field.contents())
        else:
            writer.add_key_value(key, field.contents(), field.types[0])


def write_tensors(writer: gguf.GGUFWriter, plan: list[Tensor], rng: np.random.Generator) -> None:
    """One tensor in memory at a time."""
    for tensor in plan:
        if tensor.type in (Type.F32, Type.F16):
            dtype = np.dtype(np.float32 if tensor.type is Type.F32 else np.float16)
            shape = (tensor.cols,) if tensor.rows == 1 else (tensor.rows, tensor.cols)
            writer.add_tensor_info(tensor.name, shape, dtype, tensor.rows * tensor.row_bytes)
        else:
            writer.add_tensor_info(
                tensor.name,
                (tensor.rows, tensor.row_bytes),
                np.dtype(np.uint8),
                tensor.rows * tensor.row_bytes,
                raw_dtype=tensor.type,
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in plan:
        writer.write_tensor_data(FILLS[tensor.type](rng, tensor.rows, tensor.cols))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--layout", choices=_FILE_TYPES, default="q4_k_m")
    parser.add_argument("--tokenizer-from", type=Path, required=True, metavar="MODEL.gguf")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    shape = SHAPES[given.shape]
    source = gguf.GGUFReader(given.tokenizer_from)
    vocab_size = len(source.fields["tokenizer.ggml.tokens"].data)
    plan = list(tensors(shape, given.layout, vocab_size))
    writer = gguf.GGUFWriter(given.out, "llama")
    writer.add_name(f"synthetic {given.shape}")
    write_metadata(writer, shape, given.layout, vocab_size)
    copy_tokenizer(writer, source)
    write_tensors(writer, plan, np.random.default_rng(given.seed))
    writer.close()
    weights = sum(tensor.rows * tensor.cols for tensor in plan)
    print(f"{given.out}: {weights:,} weights, {given.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
