"""Hyper-parameters and tensor shapes that contradict each other: each refused in its own words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from edgeserve import errors
from edgeserve.errors import HyperParameterError, UnsupportedModelError
from edgeserve.models import build_plan
from edgeserve.plan.hyperparams import HyperParams
from edgeserve.types import Metadata, TensorInfo

from .tiny_models import DEFAULTS, TinyModel, describe

ABSENT = object()
Tensors = dict[str, TensorInfo]


def with_values(metadata: Metadata, values: Mapping[str, object]) -> Metadata:
    changed = {**metadata.values, **values}
    kept = {key: value for key, value in changed.items() if value is not ABSENT}
    return Metadata(kept, metadata.offsets)  # type: ignore[arg-type]


def build(values: Mapping[str, object], model: TinyModel = DEFAULTS["llama"]) -> None:
    metadata, tensors = describe(model)
    build_plan(with_values(metadata, values), tensors)


# --- metadata ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Defect:
    """A key's bad value in a tiny llama of 2 layers, width 64, 4 heads, 2 key heads of 16."""

    key: str
    value: object
    says: str
    blamed: str | None = None

    def __str__(self) -> str:
        return f"{self.key}={'absent' if self.value is ABSENT else self.value}"


DEFECTS = [
    Defect("block_count", ABSENT, "is missing"),
    Defect("block_count", 0, "is 0, must be from 1"),
    Defect("block_count", -1, "is -1"),
    Defect("block_count", 2**31, "must be from 1 to 1024"),
    Defect("block_count", 2.0, "must be an integer"),
    Defect("block_count", True, "must be an integer, is True"),
    Defect("block_count", "2", "must be an integer, is '2'"),
    Defect("block_count", [2] * 10**5, "must be an integer, is an array of 100000"),
    Defect("block_count", "9" * 10**5, "must be an integer, is '99"),
    Defect("context_length", 0, "is 0"),
    Defect("context_length", ABSENT, "is missing"),
    Defect("embedding_length", 0, "is 0"),
    Defect("embedding_length", 2**62, "is 4611686018427387904"),
    Defect("feed_forward_length", ABSENT, "is missing"),
    Defect("feed_forward_length", [96], "has 1 entries for 2 layers"),
    Defect("feed_forward_length", [96, 96, 96], "has 3 entries for 2 layers"),
    Defect("feed_forward_length", [96, 0], "holds 0"),
    Defect("feed_forward_length", [96, -96], "holds -96"),
    Defect("feed_forward_length", [96, 96.0], "must hold integers, holds 96.0"),
    Defect("feed_forward_length", [96, "96"], "must hold integers, holds '96'"),
    Defect("attention.head_count", 0, "holds 0, must be from 1"),
    Defect("attention.head_count", ABSENT, "is missing"),
    Defect("attention.head_count", 2**40, "holds 1099511627776"),
    Defect("attention.head_count", "many", "must hold integers, holds 'many'"),
    Defect("attention.head_count", [], "has 0 entries for 2 layers"),
    Defect("attention.head_count_kv", 0, "is 0 in layer 0, must divide the head count 4"),
    Defect("attention.head_count_kv", 3, "is 3 in layer 0, must divide the head count 4"),
    Defect("attention.head_count_kv", 8, "is 8 in layer 0, must divide the head count 4"),
    Defect("attention.head_count_kv", [2, 3], "is 3 in layer 1, must divide the head count 4"),
    Defect("attention.key_length", 0, "is 0"),
    Defect("attention.value_length", -16, "is -16"),
    Defect("rope.dimension_count", 18, "is 18, more than the head size 16"),
    Defect("rope.dimension_count", 15, "is 15, must be even"),
    Defect("rope.dimension_count", 0, "is 0, must be from 2"),
    Defect("rope.freq_base", 0.0, "is 0, must be more than 1"),
    Defect("rope.freq_base", 1.0, "is 1, must be more than 1"),
    Defect("rope.freq_base", -1e4, "is -10000, must be more than 1"),
    Defect("rope.freq_base", math.nan, "is nan, must be finite"),
    Defect("rope.freq_base", "1e4", "must be a number, is '1e4'"),
    Defect("rope.scaling.type", "dynamic", "is 'dynamic', must be one of none, linear, yarn"),
    Defect("rope.scaling.type", 3, "must be a string, is 3"),
    Defect("rope.scaling.factor", -2.0, "is -2, must be at least 0"),
    Defect("rope.scaling.factor", math.inf, "is inf, must be finite"),
    Defect("rope.scaling.attn_factor", 0.0, "is 0, must be more than 0"),
    Defect("attention.layer_norm_rms_epsilon", ABSENT, "is missing"),
    Defect("attention.layer_norm_rms_epsilon", -1e-5, "is -1e-05, must be at least 0"),
    Defect("attention.layer_norm_rms_epsilon", False, "must be a number, is False"),
    Defect("expert_count", 4, "is 0, must be from 1 to expert_count 4", "expert_used_count"),
    Defect("expert_used_count", 2, "is 2, must be from 1 to expert_count 0"),
]


@pytest.mark.parametrize("defect", DEFECTS, ids=str)
def test_bad_hyperparameter_is_refused_by_name(defect: Defect) -> None:
    key = f"llama.{defect.key}"
    blamed = f"llama.{defect.blamed or defect.key}"
    metadata, tensors = describe(DEFAULTS["llama"])
    offsets = {**metadata.offsets, blamed: 777}
    changed = replace(with_values(metadata, {key: defect.value}), offsets=offsets)
    with pytest.raises(HyperParameterError) as caught:
        build_plan(changed, tensors)
    assert (caught.value.field, caught.value.offset) == (blamed, 777)
    assert defect.says in str(caught.value)


def test_messages_are_distinct() -> None:
    messages = set()
    for defect in DEFECTS:
        with pytest.raises(HyperParameterError) as caught:
            build({f"llama.{defect.key}": defect.value})
        messages.add(str(caught.value))
        assert len(str(caught.value)) < 200
    assert len(messages) == len(DEFECTS)


def test_head_size_that_is_no_integer_needs_a_key_length() -> None:
    with pytest.raises(HyperParameterError, match=r"llama\.attention\.key_length: is missing"):
        build({"llama.attention.head_count": 6, "llama.attention.head_count_kv": 6})


@pytest.mark.parametrize("architecture", ["mamba", "", "llama2", "models", "x" * 10**6])
def test_unknown_architectures_are_named(architecture: object) -> None:
    with pytest.raises(UnsupportedModelError, match="this version runs gemma3, llama, phi3") as e:
        build({"general.architecture": architecture})
    assert len(str(e.value)) < 300


@pytest.mark.parametrize(
    "architecture", [3, ["llama"], True, ABSENT], ids=["number", "list", "flag", "absent"]
)
def test_an_architecture_that_is_no_string(architecture: object) -> None:
    with pytest.raises(HyperParameterError) as caught:
        build({"general.architecture": architecture})
    assert caught.value.field == "general.architecture"


def test_a_mixture_of_experts_is_named() -> None:
    with pytest.raises(UnsupportedModelError, match="8 experts"):
        build({"qwen2.expert_count": 8, "qwen2.expert_used_count": 2}, DEFAULTS["qwen2"])


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ([True] * 7, "has 7 entries for 8 layers"),
        ([True] * 7 + ["yes"], "must hold flags, holds 'yes'"),
        (-1, "is -1"),
        ("six", "must be an integer, is 'six'"),
        (1.5, "must be an integer, is 1.5"),
    ],
    ids=str,
)
def test_bad_window_patterns(pattern: object, says: str) -> None:
    with pytest.raises(HyperParameterError) as caught:
        build({"gemma3.attention.sliding_window_pattern": pattern}, DEFAULTS["gemma3"])
    assert caught.value.field == "gemma3.attention.sliding_window_pattern"
    assert says in str(caught.value)


def test_bad_window_soft_cap_and_local_base() -> None:
    for name, value in (
        ("attention.sliding_window", -1),
        ("final_logit_softcapping", -30.0),
        ("rope.freq_base_swa", 0.5),
    ):
        with pytest.raises(HyperParameterError) as caught:
            build({f"gemma3.{name}": value}, DEFAULTS["gemma3"])
        assert caught.value.field == f"gemma3.{name}"


# --- tensors -----------------------------------------------------------------------------------


def _without(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.pop(name) and None


def _shaped(name: str, *shape: int) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name] = replace(tensors[name], shape=shape)

    return change


def _copied(name: str, new: str) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[new] = replace(tensors[name], name=new)

    return change


@pytest.mark.parametrize(
    ("change", "kind", "field", "says"),
    [
        (_without("token_embd.weight"), "MissingTensor", "token_embd.weight", "is missing"),
        (_without("output_norm.weight"), "MissingTensor", "output_norm.weight", "is missing"),
        (_without("blk.1.ffn_up.weight"), "MissingTensor", "blk.1.ffn_up.weight", "llama needs"),
        (_without("blk.0.attn_q.weight"), "MissingTensor", "blk.0.attn_q.weight", "is missing"),
        (
            _shaped("blk.1.attn_k.weight", 64, 64),
            "TensorShape",
            "blk.1.attn_k.weight",
            "has shape (64, 64), must be (32, 64)",
        ),
        (
            _shaped("blk.0.attn_norm.weight", 64, 1),
            "TensorShape",
            "blk.0.attn_norm.weight",
            "has shape (64, 1), must be (64,)",
        ),
        (
            _shaped("blk.0.ffn_down.weight", 96, 64),
            "TensorShape",
            "blk.0.ffn_down.weight",
            "has shape (96, 64), must be (64, 96)",
        ),
        (
            _shaped("token_embd.weight", 300, 32),
            "TensorShape",
            "token_embd.weight",
            "has shape (300, 32), must be (300, 64)",
        ),
        (
            _shaped("token_embd.weight", 304, 64),
            "TensorShape",
            "token_embd.weight",
            "has 304 rows for the 300 tokens of the file's tokenizer",
        ),
        (
            _shaped("output.weight", 299, 64),
            "TensorShape",
            "output.weight",
            "has 299 rows for the 300 tokens of the file's tokenizer",
        ),
        (
            _copied("blk.0.ffn_up.weight", "blk.0.ffn_up_exps.weight"),
            "UnusedTensor",
            "blk.0.ffn_up_exps.weight",
            "is one of 1 tensors",
        ),
        (
            _copied("blk.1.ffn_up.weight", "blk.2.ffn_up.weight"),
            "UnusedTensor",
            "blk.2.ffn_up.weight",
            "does not use",
        ),
        (
            _copied("output_norm.weight", "rope_freqs.weight"),
            "TensorShape",
            "rope_freqs.weight",
            "has shape (64,), must be (8,)",
        ),
        (
            _copied("blk.0.attn_norm.weight", "blk.0.attn_q.scale"),
            "UnusedTensor",
            "blk.0.attn_q.scale",
            "does not use",
        ),
        (
            _copied("blk.0.attn_norm.weight", "blk.0.attn_k.bias"),
            "TensorShape",
            "blk.0.attn_k.bias",
            "has shape (64,), must be (32,)",
        ),
    ],
)
def test_wrong_tensors_are_refused_by_name(
    change: Callable[[Tensors], None], kind: str, field: str, says: str
) -> None:
    metadata, tensors = describe(DEFAULTS["llama"])
    change(tensors)
    with pytest.raises(getattr(errors, f"{kind}Error")) as caught:
        build_plan(metadata, tensors)
    assert caught.value.field == field
    assert says in str(caught.value)
    expected = tensors[field].info_offset if field in tensors else None
    assert caught.value.offset == expected


def test_rows_are_held_to_the_vocab_size_key_where_there_is_no_tokenizer() -> None:
    model = replace(DEFAULTS["llama"], tokenizer=None)
    build({}, model)
    with pytest.raises(errors.TensorShapeError, match="300 rows for the 301 tokens"):
        build({"llama.vocab_size": 301}, model)


def test_a_missing_layer_is_noticed_at_once() -> None:
    """A thousand layers announced, two there."""
    started = time.perf_counter()
    with pytest.raises(errors.MissingTensorError, match=r"blk\.2\.attn_norm"):
        build({"llama.block_count": 1024})
    assert time.perf_counter() - started < 0.5


@pytest.mark.parametrize(
    "values",
    [
        {"llama.attention.key_length": 2**31 - 1, "llama.attention.value_length": 2**31 - 1},
        {"llama.attention.head_count": 2**20, "llama.attention.key_length": 2**20},
        {"llama.feed_forward_length": 2**20},
        {"llama.embedding_length": 2**20},
    ],
    ids=str,
)
def test_sizes_nobody_could_hold_meet_the_tensors_first(values: dict[str, object]) -> None:
    with pytest.raises(errors.ModelFileError):
        build(values)


# --- what a good file says ---------------------------------------------------------------------


def test_defaults_follow_from_other_keys() -> None:
    metadata, _ = describe(DEFAULTS["llama"])
    gone = ["attention.head_count_kv", "rope.freq_base", "rope.dimension_count"]
    hp = HyperParams(with_values(metadata, {f"llama.{name}": ABSENT for name in gone}))
    assert hp.head_count_kv == hp.head_count == (4, 4)
    assert (hp.key_length, hp.value_length, hp.rope_dimension_count) == (16, 16, 16)
    assert hp.rope_freq_base == 10000.0
    assert hp.vocab_size == 300


def test_per_layer_arrays_are_kept_apart() -> None:
    metadata, _ = describe(replace(DEFAULTS["llama"], kv_heads=(4, 1), feed_forward=(32, 64)))
    hp = HyperParams(metadata)
    assert (hp.head_count, hp.head_count_kv) == ((4, 4), (4, 1))
    assert hp.feed_forward_length == (32, 64)
