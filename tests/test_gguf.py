"""Valid GGUF files: what read_gguf returns is what was written, in both versions of the format."""

from __future__ import annotations

import math
import string
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf as reference
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeserve.loader.gguf import ModelFile, read_gguf
from edgeserve.loader.tensor_types import TENSOR_TYPES, TENSOR_TYPES_BY_NAME

from . import gguf_files as hand

GUARD = 5  # timing bounds are figures for a quiet machine; as tests they get this much room


def write_reference(path: Path) -> None:
    """A file of the `gguf` package with every value type that its writer has."""
    writer = reference.GGUFWriter(path, "llama")
    for name, value in SCALARS.items():
        getattr(writer, f"add_{name}")(f"test.{name}", value)
    for name, values in ARRAYS.items():
        writer.add_array(f"test.array.{name}", values)
    for name, data in TENSORS.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


SCALARS: Mapping[str, bool | int | float | str] = {
    "uint8": 255,
    "int8": -128,
    "uint16": 65535,
    "int16": -32768,
    "uint32": 2**32 - 1,
    "int32": -(2**31),
    "float32": 0.5,
    "uint64": 2**64 - 1,
    "int64": -(2**63),
    "float64": 0.1,
    "bool": True,
    "string": "Café 😊\n\0end",
}
ARRAYS: Mapping[str, Sequence[bool | int | float | str]] = {
    "strings": ["", "▁the", "</s>", "日本"],
    "ints": [1, -2, 3],
    "floats": [0.25, -1e30],
    "bools": [True, False],
}
TENSORS: Mapping[str, np.ndarray] = {
    "token_embd.weight": np.arange(24, dtype=np.float32).reshape(4, 6),
    "blk.0.attn_norm.weight": np.ones(6, dtype=np.float16),
    "blk.0.ffn_gate_exps.weight": np.zeros((2, 3, 4), dtype=np.float32),
    "output.weight": np.zeros((4, 6), dtype=np.float16),
}


def test_reads_what_the_gguf_package_wrote(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_reference(path)
    model = read_gguf(path)
    expected = {"general.architecture": "llama"}
    expected |= {f"test.{name}": value for name, value in SCALARS.items()}
    values = dict(model.metadata.values)
    for name, array in ARRAYS.items():
        found = values.pop(f"test.array.{name}")
        assert isinstance(found, tuple)
        assert found == pytest.approx(array, rel=1e-6) if name == "floats" else list(found) == array
    assert values == expected
    assert {key: type(value) for key, value in values.items()} == {
        key: type(value) for key, value in expected.items()
    }
    assert (model.version, model.alignment, model.paths) == (3, 32, (path,))


def test_tensor_data_is_where_the_description_says(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_reference(path)
    model = read_gguf(path)
    content = path.read_bytes()
    assert list(model.tensors) == list(TENSORS)
    for name, data in TENSORS.items():
        info = model.tensors[name]
        assert info.shape == data.shape
        assert info.quant_type == {"f": "F32", "e": "F16"}[data.dtype.char]
        assert content[info.offset : info.offset + info.num_bytes] == data.tobytes()
        assert content[info.info_offset + 8 :].startswith(name.encode())
    assert model.file_bytes == (len(content),)
    assert model.tensor_bytes == sum(data.nbytes for data in TENSORS.values())


def test_offsets_are_where_the_keys_start(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_reference(path)
    content = path.read_bytes()
    metadata = read_gguf(path).metadata
    assert set(metadata.offsets) == set(metadata.values)
    for key, offset in metadata.offsets.items():
        assert content[offset:].startswith(hand.text(key))


def test_array_of_bools_keeps_its_type(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(hand.gguf([hand.array("k", hand.BOOL, [True, False])]))
    values = read_gguf(path).metadata.values["k"]
    assert isinstance(values, tuple)
    assert [value is True for value in values] == [True, False]


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_alignment_places_the_data(alignment: int, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    entries = [hand.scalar("general.alignment", hand.UINT32, alignment)]
    content = hand.gguf(entries, [hand.tensor("t", [4])], b"0123456789abcdef", alignment=alignment)
    path.write_bytes(content)
    model = read_gguf(path)
    assert model.alignment == alignment
    assert model.tensors["t"].offset == content.index(b"0123456789abcdef")


def test_gaps_and_any_order_of_tensor_data_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = [hand.tensor("late", [4], hand.F32, 96), hand.tensor("early", [4], hand.F32, 0)]
    path.write_bytes(hand.gguf([], tensors, bytes(112)))
    model = read_gguf(path)
    assert list(model.tensors) == ["late", "early"]
    assert model.tensors["late"].offset - model.tensors["early"].offset == 96


def test_file_without_tensors_or_keys_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(hand.gguf())
    model = read_gguf(path)
    assert (dict(model.metadata.values), dict(model.tensors)) == ({}, {})


@pytest.mark.parametrize("name", TENSOR_TYPES_BY_NAME)
def test_every_tensor_type_is_read(name: str, tmp_path: Path) -> None:
    kind = TENSOR_TYPES_BY_NAME[name]
    path = tmp_path / "model.gguf"
    tensors = [hand.tensor("t", [2 * kind.block_elements, 3], kind.type_id)]
    path.write_bytes(hand.gguf([], tensors, bytes(6 * kind.block_bytes)))
    info = read_gguf(path).tensors["t"]
    assert (info.quant_type, info.shape) == (name, (3, 2 * kind.block_elements))
    assert info.num_bytes == 6 * kind.block_bytes


_INTEGERS = {
    hand.UINT8: (0, 2**8 - 1),
    hand.INT8: (-(2**7), 2**7 - 1),
    hand.UINT16: (0, 2**16 - 1),
    hand.INT16: (-(2**15), 2**15 - 1),
    hand.UINT32: (0, 2**32 - 1),
    hand.INT32: (-(2**31), 2**31 - 1),
    hand.UINT64: (0, 2**64 - 1),
    hand.INT64: (-(2**63), 2**63 - 1),
}
_VALUES: dict[int, st.SearchStrategy[object]] = {
    **{kind: st.integers(low, high) for kind, (low, high) in _INTEGERS.items()},
    hand.FLOAT32: st.floats(width=32, allow_nan=False),
    hand.FLOAT64: st.floats(allow_nan=False),
    hand.BOOL: st.booleans(),
    hand.STRING: st.text(max_size=40),
}
_KEYS = st.text(string.ascii_lowercase + "._é", min_size=1, max_size=30).filter(
    lambda key: key not in ("general.alignment", "split.count")
)
_TYPED = st.sampled_from(list(_VALUES)).flatmap(
    lambda kind: st.tuples(
        st.just(kind), st.one_of(_VALUES[kind], st.lists(_VALUES[kind], max_size=20).map(tuple))
    )
)
_BLOCKS = st.tuples(
    st.sampled_from(list(TENSOR_TYPES)), st.integers(1, 3), st.lists(st.integers(1, 3), max_size=3)
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    version=st.sampled_from([2, 3]),
    alignment=st.sampled_from([16, 32, 128]),
    metadata=st.dictionaries(_KEYS, _TYPED, max_size=8),
    tensors=st.dictionaries(st.text(min_size=1, max_size=16), _BLOCKS, max_size=5),
)
def test_whatever_is_written_is_read(
    version: int,
    alignment: int,
    metadata: dict[str, tuple[int, object]],
    tensors: dict[str, tuple[int, int, list[int]]],
    tmp_path: Path,
) -> None:
    entries = [hand.scalar("general.alignment", hand.UINT32, alignment)]
    for key, (kind, value) in metadata.items():
        write = hand.array if isinstance(value, tuple) else hand.scalar
        entries.append(write(key, kind, value))
    described: list[bytes] = []
    stored: dict[str, bytes] = {}
    data = b""
    for name, (type_id, num_blocks, outer) in tensors.items():
        kind = TENSOR_TYPES[type_id]
        dimensions = [num_blocks * kind.block_elements, *outer]
        described.append(hand.tensor(name, dimensions, type_id, len(data)))
        num_bytes = num_blocks * kind.block_bytes * math.prod(outer)
        stored[name] = np.random.default_rng(len(data)).bytes(num_bytes)
        data += stored[name] + bytes(-num_bytes % alignment)
    path = tmp_path / "model.gguf"
    content = hand.gguf(entries, described, data, version=version, alignment=alignment)
    path.write_bytes(content)

    model = read_gguf(path)
    expected = {key: value for key, (_, value) in metadata.items()}
    assert dict(model.metadata.values) == {"general.alignment": alignment, **expected}
    assert model.version == version
    assert {name: (info.quant_type, info.shape[::-1]) for name, info in model.tensors.items()} == {
        name: (kind.name, (blocks * kind.block_elements, *outer))
        for name, (type_id, blocks, outer) in tensors.items()
        for kind in [TENSOR_TYPES[type_id]]
    }
    assert {
        name: content[info.offset :][: info.num_bytes] for name, info in model.tensors.items()
    } == stored


def seconds_to_read(path: Path) -> float:
    """Of processor time: what else the machine is doing is not the reader's fault."""

    def once() -> float:
        start = time.process_time()
        read_gguf(path)
        return time.process_time() - start

    return min(once() for _ in range(3))


def assert_equals_reference(model: ModelFile, path: Path) -> None:
    reader = reference.GGUFReader(path)
    fields = {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }
    ours = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in model.metadata.values.items()
    }
    assert ours == fields
    assert [
        (info.name, info.shape, info.quant_type, info.offset, info.num_bytes)
        for info in model.tensors.values()
    ] == [
        (
            tensor.name,
            tuple(reversed(tensor.shape.tolist())),
            tensor.tensor_type.name,
            tensor.data_offset,
            tensor.n_bytes,
        )
        for tensor in reader.tensors
    ]


def test_smollm2_reads_as_the_gguf_package_reads_it(smollm2_path: Path) -> None:
    assert_equals_reference(read_gguf(smollm2_path), smollm2_path)


def test_smollm2_opens_fast(smollm2_path: Path) -> None:
    assert seconds_to_read(smollm2_path) < 0.15 * GUARD


def test_gemma3_is_read_whole(gemma3_path: Path) -> None:
    model = read_gguf(gemma3_path)
    values = model.metadata.values
    assert values["general.architecture"] == "gemma3"
    arrays = [values[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores", "token_type")]
    for array, kind in zip(arrays, (str, float, int), strict=True):
        assert isinstance(array, tuple)
        assert (len(array), {type(value) for value in array}) == (262_144, {kind})
    assert len(model.tensors) == 236
    assert model.tensors["token_embd.weight"].shape == (262_144, 640)
    last = max(model.tensors.values(), key=lambda info: info.offset)
    assert last.offset + last.num_bytes == model.total_bytes == gemma3_path.stat().st_size


def test_gemma3_opens_fast(gemma3_path: Path) -> None:
    assert seconds_to_read(gemma3_path) < 0.2 * GUARD
