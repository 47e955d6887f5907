"""Tensor data out of model files: rows, float32, and files that change under the reader."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf as reference
import numpy as np
import pytest

from edgeserve import errors
from edgeserve.binding.weights import NativeWeight, WeightRows
from edgeserve.loader.gguf import ModelFile, read_gguf
from edgeserve.loader.tensor_types import TENSOR_TYPES, TensorType
from edgeserve.loader.tensors import TensorReader

from . import gguf_files as hand

RNG = np.random.default_rng(7)
WEIGHTS: Mapping[str, tuple[np.ndarray, str]] = {
    "vector": (RNG.standard_normal(96, dtype=np.float32), "F32"),
    "matrix": (RNG.standard_normal((6, 64), dtype=np.float32), "Q8_0"),
    "half": (RNG.standard_normal((5, 3), dtype=np.float32), "F16"),
    "brain": (RNG.standard_normal((5, 4), dtype=np.float32), "BF16"),
    "experts": (RNG.standard_normal((2, 3, 32), dtype=np.float32), "Q4_0"),
}


def write_model(path: Path) -> dict[str, np.ndarray]:
    """WEIGHTS as a file, and what the `gguf` package says their values are after quantising."""
    writer = reference.GGUFWriter(path, "llama")
    values: dict[str, np.ndarray] = {}
    for name, (data, type_name) in WEIGHTS.items():
        kind = reference.GGMLQuantizationType[type_name]
        quantised = reference.quantize(data, kind)
        writer.add_tensor(name, quantised, raw_dtype=kind)
        values[name] = reference.dequantize(quantised, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


@pytest.fixture
def model(tmp_path: Path) -> ModelFile:
    write_model(tmp_path / "model.gguf")
    return read_gguf(tmp_path / "model.gguf")


@pytest.fixture
def values(tmp_path: Path) -> dict[str, np.ndarray]:
    return write_model(tmp_path / "values.gguf")


@pytest.mark.parametrize("name", WEIGHTS)
def test_whole_tensor_has_its_shape_and_values(
    name: str, model: ModelFile, values: dict[str, np.ndarray]
) -> None:
    with TensorReader(model) as reader:
        found = reader.float32(name)
    assert found.dtype == np.float32
    assert found.shape == WEIGHTS[name][0].shape
    np.testing.assert_array_equal(found, values[name])


@pytest.mark.parametrize("name", WEIGHTS)
def test_rows_are_slices_of_the_whole(
    name: str, model: ModelFile, values: dict[str, np.ndarray]
) -> None:
    rows = values[name].reshape(-1, values[name].shape[-1])
    with TensorReader(model) as reader:
        for first in range(len(rows) + 1):
            for count in range(len(rows) - first + 1):
                found = reader.float32_rows(name, first, count)
                np.testing.assert_array_equal(found, rows[first : first + count])
            np.testing.assert_array_equal(reader.float32_rows(name, first, None), rows[first:])


def test_read_returns_the_bytes_as_stored(model: ModelFile) -> None:
    content = model.paths[0].read_bytes()
    info = model.tensors["matrix"]
    stored = content[info.offset : info.offset + info.num_bytes]
    with TensorReader(model) as reader:
        assert reader.read("matrix") == stored
        assert reader.read("matrix", 2, 3) == stored[2 * 68 : 5 * 68]
        assert reader.info("matrix") is info


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 7), (6, 1), (7, None), (0, -1)])
def test_rows_outside_the_tensor_are_refused(
    first: int, count: int | None, model: ModelFile
) -> None:
    with TensorReader(model) as reader, pytest.raises(IndexError, match="matrix, which has 6"):
        reader.read("matrix", first, count)


def test_unknown_tensor_is_a_missing_tensor(model: ModelFile) -> None:
    with TensorReader(model) as reader, pytest.raises(errors.MissingTensorError) as caught:
        reader.float32("blk.7.attn_q.weight")
    assert caught.value.field == "blk.7.attn_q.weight"


@pytest.mark.parametrize(
    "kind", [kind for kind in TENSOR_TYPES.values() if not kind.computable], ids=lambda k: k.name
)
def test_type_without_a_dequantiser_is_refused_by_name(kind: TensorType, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = [hand.tensor("odd.weight", [kind.block_elements], kind.type_id)]
    path.write_bytes(hand.gguf([], tensors, bytes(kind.block_bytes)))
    model = read_gguf(path)
    with pytest.raises(errors.UnsupportedModelError) as caught:
        TensorReader(model)
    assert f"tensor odd.weight is of type {kind.name}," in str(caught.value)


@pytest.mark.parametrize(
    "kind", [kind for kind in TENSOR_TYPES.values() if kind.computable], ids=lambda k: k.name
)
def test_every_computable_type_is_widened(kind: TensorType, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    data = np.random.default_rng(kind.type_id).integers(0, 64, 4 * kind.block_bytes, np.uint8)
    tensors = [hand.tensor("t", [2 * kind.block_elements, 2], kind.type_id)]
    path.write_bytes(hand.gguf([], tensors, data.tobytes()))
    numbered = reference.GGMLQuantizationType(kind.type_id)
    with TensorReader(read_gguf(path)) as reader:
        found = reader.float32("t")
    expected = reference.dequantize(data.reshape(2, -1), numbered)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=0)


def test_parts_are_read_from_their_own_files(tmp_path: Path) -> None:
    tensors = {name: np.full((2, 4), index, dtype=np.float32) for index, name in enumerate("abcd")}
    writer = reference.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=1)
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with TensorReader(read_gguf(tmp_path / "model-00003-of-00004.gguf")) as reader:
        for name, data in tensors.items():
            np.testing.assert_array_equal(reader.float32(name), data)


def test_file_cut_after_opening_is_an_error_naming_the_tensor(model: ModelFile) -> None:
    info = model.tensors["experts"]
    with TensorReader(model) as reader:
        os.truncate(model.paths[0], info.offset + 10)
        with pytest.raises(errors.FileChangedError) as caught:
            reader.float32("experts")
        reader.float32("vector")
    assert (caught.value.field, caught.value.offset) == ("experts", info.offset + 10)
    assert caught.value.path == model.paths[0]


def test_file_replaced_before_opening_is_refused(model: ModelFile) -> None:
    with open(model.paths[0], "ab") as file:
        file.write(b"more")
    with pytest.raises(errors.FileChangedError, match="load it again"):
        TensorReader(model)


def test_file_removed_before_opening_is_unreadable(model: ModelFile) -> None:
    model.paths[0].unlink()
    with pytest.raises(errors.UnreadableFileError, match="No such file"):
        TensorReader(model)


def test_failing_disk_names_the_tensor(model: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(5, "Input/output error")

    with TensorReader(model) as reader:
        monkeypatch.setattr(os, "preadv", fail)
        with pytest.raises(errors.UnreadableFileError, match=r"matrix.*Input/output error"):
            reader.read("matrix")


def test_reads_that_are_cut_short_are_continued(
    model: ModelFile, values: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv

    def at_most_seven_bytes(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        return preadv(descriptor, [buffers[0][:7]], offset)

    monkeypatch.setattr(os, "preadv", at_most_seven_bytes)
    with TensorReader(model) as reader:
        np.testing.assert_array_equal(reader.float32("matrix"), values["matrix"])


def test_close_gives_the_descriptors_back(
    model: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    closed: list[int] = []
    really_open, really_close = os.open, os.close

    def note_open(path: Path, flags: int) -> int:
        opened.append(really_open(path, flags))
        return opened[-1]

    def note_close(descriptor: int) -> None:
        closed.append(descriptor)
        really_close(descriptor)

    monkeypatch.setattr(os, "open", note_open)
    monkeypatch.setattr(os, "close", note_close)
    reader = TensorReader(model)
    assert (len(opened), closed) == (1, [])
    reader.close()
    reader.close()
    assert closed == opened
    with pytest.raises(ValueError, match="closed"):
        reader.read("vector")
    with pytest.raises(ValueError, match="closed"):
        reader.load_weights([weight("matrix", 6)], 1)


def test_cancelled_reader_reads_no_more(model: ModelFile) -> None:
    with TensorReader(model) as reader:
        reader.read("vector")
        reader.cancel()
        with pytest.raises(errors.AbortedError, match="reading matrix was aborted"):
            reader.read("matrix")


def weight(tensor: str, num_rows: int, first_row: int = 0) -> WeightRows:
    """Rows of one of WEIGHTS."""
    data, quant_type = WEIGHTS[tensor]
    return WeightRows(NativeWeight(quant_type, num_rows, data.shape[-1]), tensor, first_row)


def test_load_of_a_file_that_was_cut_names_the_tensor(model: ModelFile) -> None:
    info = model.tensors["experts"]
    with TensorReader(model) as reader:
        os.truncate(model.paths[0], info.offset + 10)
        with pytest.raises(errors.FileChangedError, match="download it again") as caught:
            reader.load_weights([weight("matrix", 6), weight("experts", 6)], 2)
        reader.load_weights([weight("matrix", 6), weight("half", 5)], 2)
    assert (caught.value.field, caught.value.offset) == ("experts", info.offset + 10)
    assert caught.value.path == model.paths[0]


def test_load_from_a_failing_disk_names_the_tensor(
    model: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    really_open = os.open

    def note_open(path: Path, flags: int) -> int:
        opened.append(really_open(path, flags))
        return opened[-1]

    monkeypatch.setattr(os, "open", note_open)
    with TensorReader(model) as reader:
        os.dup2(really_open(model.paths[0].parent, os.O_RDONLY), opened[0])  # reads of it fail
        with pytest.raises(errors.UnreadableFileError, match=r"matrix.*Is a directory"):
            reader.load_weights([weight("matrix", 6)], 2)


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 7), (6, 1)])
def test_load_of_rows_outside_the_tensor_is_refused(
    first: int, count: int, model: ModelFile
) -> None:
    with TensorReader(model) as reader, pytest.raises(IndexError, match="matrix, which has 6"):
        reader.load_weights([weight("matrix", count, first)], 1)


def test_load_into_a_weight_of_another_type_or_width_is_refused(model: ModelFile) -> None:
    with TensorReader(model) as reader:
        for other in (NativeWeight("Q4_0", 6, 64), NativeWeight("Q8_0", 6, 32)):
            with pytest.raises(ValueError, match="which are 64 Q8_0"):
                reader.load_weights([WeightRows(other, "matrix", 0)], 1)


@pytest.mark.parametrize("end", [TensorReader.cancel, TensorReader.close])
def test_a_load_that_another_thread_is_in_is_ended(
    end: Callable[[TensorReader], None], tmp_path: Path
) -> None:
    """Of a weight of 1 GiB that is a hole in its file: the load does not come far."""
    path = tmp_path / "model.gguf"
    rows, cols = 1 << 15, 1 << 13
    path.write_bytes(hand.gguf([], [hand.tensor("huge", [cols, rows], 0)], b""))
    start = -(-path.stat().st_size // 32) * 32
    os.truncate(path, start + 4 * rows * cols)
    ended: list[BaseException] = []
    huge = NativeWeight("F32", rows, cols)

    def load(reader: TensorReader) -> None:
        try:
            reader.load_weights([WeightRows(huge, "huge", 0)], 2)
        except (errors.AbortedError, ValueError) as error:  # in the middle, or before it began
            ended.append(error)

    with TensorReader(read_gguf(path)) as reader:
        thread = threading.Thread(target=load, args=[reader])
        thread.start()
        end(reader)
        thread.join(60)
    huge.close()
    assert len(ended) == 1


def test_real_model_reads_as_the_gguf_package_reads_it(smollm2_path: Path) -> None:
    model = read_gguf(smollm2_path)
    with TensorReader(model) as reader:
        for name in ("output_norm.weight", "blk.0.attn_q.weight", "blk.29.ffn_down.weight"):
            info = model.tensors[name]
            kind = reference.GGMLQuantizationType[info.quant_type]
            stored = np.frombuffer(reader.read(name), np.uint8).reshape(info.shape[0], -1)
            expected = reference.dequantize(stored, kind).reshape(info.shape)
            np.testing.assert_allclose(reader.float32(name), expected, rtol=1e-6, atol=1e-8)
