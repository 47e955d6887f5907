"""Tiny random-weight GGUF files of every family, with the structure of the real ones.

Their vocabularies are complete (any text can be encoded), their logits are far from uniform, and
the same arguments give the same bytes. What the weights say is nothing; what they prove is that
one program computes what another does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from edgeserve.types import Metadata, TensorInfo

from .tiny_vocabularies import Vocabulary, byte_level_vocabulary, sentencepiece_vocabulary

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + "
    "('model' if message['role'] == 'assistant' else message['role']) + '\n' + "
    "message['content'] + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
TEMPLATES = {"gpt2": CHATML, "llama": GEMMA_TEMPLATE}


@dataclass(frozen=True)
class TinyModel:
    """What varies. A tuple where a number could be means one entry per layer.

    `tokenizer` is "gpt2", "llama" or None (no vocabulary in the file; `vocab_size` rows).
    `chat_template` "default" is the tokenizer's own, None leaves it out. `longrope` writes long
    and short factors. `rope_dims` < head size is partial rotation. `metadata` adds or replaces
    raw keys after everything else. `gate_gain` scales the feed-forward gate. `expert_size`
    is their feed-forward width, where the file says one. `written_as` is the
    architecture's name in the file, where that is not the family's.
    """

    family: str
    layers: int = 2
    width: int = 64
    heads: int | tuple[int, ...] = 4
    kv_heads: int | tuple[int, ...] = 2
    head_size: int = 16
    feed_forward: int | tuple[int, ...] = 96
    context: int = 512
    vocab_size: int = 300
    tied: bool = False
    rope_base: float = 10000.0
    rope_dims: int | None = None
    rope_scaling: str | None = None
    rope_factor: float = 1.0
    original_context: int | None = None
    attention_factor: float | None = None
    rope_freqs: bool = False
    longrope: bool = False
    qkv_bias: bool = False
    other_bias: bool = False
    fused_qkv: bool = False
    window: int | None = None
    window_pattern: int | tuple[bool, ...] | None = None
    local_rope_base: float | None = None
    softcap: float | None = None
    experts: int = 0
    experts_used: int = 0
    expert_size: int | None = None
    gate_gain: float = 1.0
    written_as: str | None = None
    tokenizer: str | None = "gpt2"
    chat_template: str | None = "default"
    name: str = "tiny"
    metadata: Mapping[str, object] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return self.written_as or self.family

    def per_layer(self, value: int | tuple[int, ...]) -> tuple[int, ...]:
        return value if isinstance(value, tuple) else (value,) * self.layers


DEFAULTS: Mapping[str, TinyModel] = {
    "llama": TinyModel("llama"),
    "qwen2": TinyModel("qwen2", qkv_bias=True, tied=True, rope_base=1e6),
    "qwen3": TinyModel("qwen3", head_size=24, rope_base=1e6),
    "gemma3": TinyModel(
        "gemma3",
        layers=8,
        head_size=32,
        tied=True,
        rope_base=1e6,
        window=24,
        tokenizer="llama",
    ),
    "phi3": TinyModel("phi3", fused_qkv=True, kv_heads=4),
    "qwen3moe": TinyModel(
        "qwen3moe",
        head_size=24,
        rope_base=1e6,
        experts=8,
        experts_used=3,
        expert_size=96,
    ),
}
"""Each family as its published models are."""


def write_tiny_model(
    path: Path, family: str, *, quant: str = "F32", seed: int = 0, **overrides: object
) -> Path:
    """Writes the family's default with `overrides` (fields of TinyModel) and returns `path`.

    `quant` is the type of all matrices, one that the gguf package can write (F32, F16, BF16,
    Q8_0, Q4_0, …); norms, biases and what chooses experts stay F32, as in real files.
    """
    model = replace(DEFAULTS[family], **overrides)  # type: ignore[arg-type]
    return write_weights(path, model, tiny_weights(model, seed), quant=quant)


def write_weights(
    path: Path, model: TinyModel, weights: Mapping[str, NDArray[np.float32]], *, quant: str = "F32"
) -> Path:
    """Writes a file of these weights, named as `tiny_weights` names them, and returns `path`."""
    vocabulary = vocabulary_of(model)
    writer = gguf.GGUFWriter(path, model.architecture)
    values = tiny_metadata(model)
    if vocabulary is not None:
        values |= _tokenizer_metadata(model, vocabulary)
    values |= model.metadata
    for key, value in values.items():
        if key != "general.architecture":  # the writer has put it first
            _write_value(writer, key, value)
    kind = gguf.GGMLQuantizationType[quant]
    for name, data in weights.items():
        if data.ndim == 1 or "ffn_gate_inp" in name:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def vocabulary_of(model: TinyModel) -> Vocabulary | None:
    if model.tokenizer is None:
        return None
    make = {"gpt2": byte_level_vocabulary, "llama": sentencepiece_vocabulary}[model.tokenizer]
    return make(model.vocab_size)


# --- metadata ----------------------------------------------------------------------------------


def tiny_metadata(model: TinyModel) -> dict[str, object]:
    """Every key-value pair of the file but the tokenizer's."""
    values: dict[str, object] = {
        "block_count": model.layers,
        "context_length": model.context,
        "embedding_length": model.width,
        "feed_forward_length": model.feed_forward,
        "attention.head_count": model.heads,
        "attention.head_count_kv": model.kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": model.rope_base,
        "rope.freq_base_swa": model.local_rope_base,
        "rope.dimension_count": model.rope_dims,
        "rope.scaling.type": model.rope_scaling,
        "rope.scaling.factor": model.rope_factor if model.rope_factor != 1.0 else None,
        "rope.scaling.original_context_length": model.original_context,
        "rope.scaling.attn_factor": model.attention_factor,
        "attention.sliding_window": model.window,
        "attention.sliding_window_pattern": model.window_pattern,
        "final_logit_softcapping": model.softcap,
        "expert_count": model.experts or None,
        "expert_used_count": model.experts_used or None,
        "expert_feed_forward_length": model.expert_size,
        "vocab_size": model.vocab_size if model.tokenizer is None else None,
    }
    if model.head_size * model.per_layer(model.heads)[0] != model.width:
        values["attention.key_length"] = values["attention.value_length"] = model.head_size
    if model.family == "llama":
        values["rope.dimension_count"] = model.rope_dims or model.head_size
    known = {f"{model.architecture}.{name}": v for name, v in values.items() if v is not None}
    return {
        "general.architecture": model.architecture,
        "general.name": model.name,
        **known,
        **model.metadata,
    }


def _tokenizer_metadata(model: TinyModel, vocabulary: Vocabulary) -> dict[str, object]:
    values: dict[str, object] = {
        "model": vocabulary.model,
        "tokens": vocabulary.tokens,
        "token_type": vocabulary.types,
        "merges": vocabulary.merges or None,
        "pre": "gpt-2" if vocabulary.merges else None,
        "scores": vocabulary.scores or None,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "unknown_token_id": vocabulary.unknown,
        "add_bos_token": vocabulary.add_bos,
    }
    known = {f"tokenizer.ggml.{name}": v for name, v in values.items() if v is not None}
    if model.chat_template is not None:
        default = TEMPLATES[vocabulary.model]
        template = default if model.chat_template == "default" else model.chat_template
        known["tokenizer.chat_template"] = template
    return known


def _write_value(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            assert isinstance(value, Sequence)
            writer.add_array(key, value)


# --- weights -----------------------------------------------------------------------------------


def tiny_weights(model: TinyModel, seed: int) -> dict[str, NDArray[np.float32]]:
    """Every tensor of the file, (n_out, n_in) or (n,), by name."""
    draw = _Draw(seed)
    vocab = vocabulary_of(model)
    rows = model.vocab_size if vocab is None else len(vocab.tokens)
    tensors = {"token_embd.weight": draw.matrix(rows, model.width, gain=4.0)}
    if not model.tied:
        tensors["output.weight"] = draw.matrix(rows, model.width, gain=3.0)
    tensors["output_norm.weight"] = draw.norm(model.width)
    pairs = (model.rope_dims or model.head_size) // 2
    if model.rope_freqs:
        tensors["rope_freqs.weight"] = np.linspace(1.0, 8.0, pairs, dtype=np.float32)
    if model.longrope:
        tensors["rope_factors_short.weight"] = np.linspace(1.0, 1.5, pairs, dtype=np.float32)
        tensors["rope_factors_long.weight"] = np.linspace(1.0, 6.0, pairs, dtype=np.float32)
    for layer in range(model.layers):
        for name, data in _layer_weights(model, layer, draw).items():
            tensors[f"blk.{layer}.{name}"] = data
    return tensors


class _Draw:
    """Weights that keep a row's size about the same through a layer."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def matrix(self, num_out: int, num_in: int, *, gain: float = 1.0) -> NDArray[np.float32]:
        data = self._random.standard_normal((num_out, num_in)) * (gain * num_in**-0.5)
        return data.astype(np.float32)

    def matrices(self, count: int, num_out: int, num_in: int) -> NDArray[np.float32]:
        return np.stack([self.matrix(num_out, num_in) for _ in range(count)])

    def norm(self, size: int) -> NDArray[np.float32]:
        return (1.0 + 0.2 * self._random.standard_normal(size)).astype(np.float32)

    def bias(self, size: int) -> NDArray[np.float32]:
        return (0.5 * self._random.standard_normal(size)).astype(np.float32)


def _layer_weights(model: TinyModel, layer: int, draw: _Draw) -> dict[str, NDArray[np.float32]]:
    q_width = model.per_layer(model.heads)[layer] * model.head_size
    kv_width = model.per_layer(model.kv_heads)[layer] * model.head_size
    hidden = model.per_layer(model.feed_forward)[layer]
    # Queries and keys a bit larger: attention that looks at everything alike would hide mistakes.
    projections = {
        "attn_q": draw.matrix(q_width, model.width, gain=1.5),
        "attn_k": draw.matrix(kv_width, model.width, gain=1.5),
        "attn_v": draw.matrix(kv_width, model.width),
    }
    biases = {name: draw.bias(len(data)) for name, data in projections.items()}
    if model.fused_qkv:
        projections = {"attn_qkv": np.concatenate(list(projections.values()))}
        biases = {"attn_qkv": np.concatenate(list(biases.values()))}
    tensors = {"attn_norm.weight": draw.norm(model.width)}
    tensors |= {f"{name}.weight": data for name, data in projections.items()}
    if model.qkv_bias:
        tensors |= {f"{name}.bias": data for name, data in biases.items()}
    tensors["attn_output.weight"] = draw.matrix(model.width, q_width)
    if model.family in ("qwen3", "qwen3moe", "gemma3"):
        tensors["attn_q_norm.weight"] = draw.norm(model.head_size)
        tensors["attn_k_norm.weight"] = draw.norm(model.head_size)
    tensors["ffn_norm.weight"] = draw.norm(model.width)
    if model.experts:
        return tensors | _expert_weights(model, hidden, draw)
    if model.family == "phi3":
        tensors["ffn_up.weight"] = draw.matrix(2 * hidden, model.width)
    else:
        tensors["ffn_gate.weight"] = draw.matrix(hidden, model.width, gain=model.gate_gain)
        tensors["ffn_up.weight"] = draw.matrix(hidden, model.width)
    tensors["ffn_down.weight"] = draw.matrix(model.width, hidden)
    if model.family == "gemma3":
        tensors["post_attention_norm.weight"] = draw.norm(model.width)
        tensors["post_ffw_norm.weight"] = draw.norm(model.width)
    if model.other_bias:
        for name in ("attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            tensors[f"{name}.bias"] = draw.bias(len(tensors[f"{name}.weight"]))
    return tensors


def _expert_weights(
    model: TinyModel, feed_forward: int, draw: _Draw
) -> dict[str, NDArray[np.float32]]:
    """(experts, n_out, n_in). Logits lie so far apart that the last expert chosen counts little:
    where rounding turns two around at that border, not much changes."""
    count, hidden = model.experts, model.expert_size or feed_forward
    return {
        "ffn_gate_inp.weight": draw.matrix(count, model.width, gain=3.0),
        "ffn_gate_exps.weight": draw.matrices(count, hidden, model.width),
        "ffn_up_exps.weight": draw.matrices(count, hidden, model.width),
        "ffn_down_exps.weight": draw.matrices(count, model.width, hidden),
    }


# --- for tests that need no file ---------------------------------------------------------------


def describe(model: TinyModel, seed: int = 0) -> tuple[Metadata, dict[str, TensorInfo]]:
    """What a reader would say of the file, with an offset for every key and tensor."""
    values = dict(tiny_metadata(model))
    vocabulary = vocabulary_of(model)
    if vocabulary is not None:
        values |= _tokenizer_metadata(model, vocabulary)
    offsets = {key: 24 + 64 * index for index, key in enumerate(values)}
    tensors = {
        name: TensorInfo(name, data.shape, "F32", 0, data.nbytes, info_offset=10_000 + 64 * index)
        for index, (name, data) in enumerate(tiny_weights(model, seed).items())
    }
    return Metadata(values, offsets), tensors  # type: ignore[arg-type]


class MemorySource:
    """A runner's TensorSource over arrays."""

    def __init__(self, weights: Mapping[str, NDArray[np.float32]]) -> None:
        self._weights = weights

    def float32_rows(self, name: str, first_row: int, num_rows: int) -> NDArray[np.float32]:
        data = self._weights[name]
        return data.reshape(-1, data.shape[-1])[first_row : first_row + num_rows]
