"""Models in several files: any part stands for all, and parts that do not fit are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf as reference
import numpy as np
import pytest

from edgeserve import errors
from edgeserve.loader.gguf import read_gguf

from . import gguf_files as hand

TENSORS = {name: np.full((2, 4), index, dtype=np.float32) for index, name in enumerate("abcd")}


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """TENSORS over two files."""
    writer = reference.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=2)
    for name, data in TENSORS.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return [tmp_path / f"model-0000{number}-of-00002.gguf" for number in (1, 2)]


@pytest.mark.parametrize("given_part", [0, 1])
def test_any_part_stands_for_the_whole(given_part: int, parts: list[Path]) -> None:
    model = read_gguf(parts[given_part])
    assert list(model.paths) == parts
    assert model.metadata.values["general.architecture"] == "llama"
    assert model.total_bytes == sum(part.stat().st_size for part in parts)
    for name, data in TENSORS.items():
        info = model.tensors[name]
        content = model.paths[info.part].read_bytes()
        assert content[info.offset : info.offset + info.num_bytes] == data.tobytes()
    assert [info.part for info in model.tensors.values()] == [0, 0, 1, 1]


def test_missing_part_is_named(parts: list[Path]) -> None:
    parts[1].unlink()
    with pytest.raises(errors.MissingPartError, match=r"model-00002-of-00002.gguf"):
        read_gguf(parts[0])


def test_renamed_part_says_what_its_name_must_be(parts: list[Path]) -> None:
    renamed = parts[0].rename(parts[0].with_name("my model.gguf"))
    with pytest.raises(errors.SplitError, match=r"-00001-of-00002.gguf"):
        read_gguf(renamed)


def test_part_of_another_model_is_refused(parts: list[Path]) -> None:
    parts[1].write_bytes(parts[0].read_bytes())
    with pytest.raises(errors.SplitError) as caught:
        read_gguf(parts[0])
    assert (caught.value.field, caught.value.path) == ("split.no", parts[1])


def write_parts(folder: Path, *part_entries: list[bytes], names: Sequence[str]) -> Path:
    """Parts with these entries and one tensor each; the first one's path."""
    paths = [
        folder / f"m-{number + 1:05d}-of-{len(names):05d}.gguf" for number in range(len(names))
    ]
    for path, entries, name in zip(paths, part_entries, names, strict=True):
        path.write_bytes(hand.gguf(entries, [hand.tensor(name, [8])], bytes(32)))
    return paths[0]


def split_entries(number: int, count: int, num_tensors: int) -> list[bytes]:
    return [
        hand.scalar("split.no", hand.UINT16, number),
        hand.scalar("split.count", hand.UINT16, count),
        hand.scalar("split.tensors.count", hand.INT32, num_tensors),
    ]


def test_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    both = [split_entries(number, 2, 2) for number in (0, 1)]
    path = write_parts(tmp_path, *both, names=["a", "a"])
    with pytest.raises(errors.DuplicateTensorError, match=r"m-00001-of-00002.gguf"):
        read_gguf(path)


def test_parts_with_too_few_tensors_are_refused(tmp_path: Path) -> None:
    both = [split_entries(number, 2, 3) for number in (0, 1)]
    path = write_parts(tmp_path, *both, names=["a", "b"])
    with pytest.raises(errors.SplitError, match="promises 3 tensors and the parts have 2"):
        read_gguf(path)


@pytest.mark.parametrize("count", [-1, 2.0, "2", True])
def test_split_count_must_be_a_whole_number(count: object, tmp_path: Path) -> None:
    kinds = {int: hand.INT32, float: hand.FLOAT32, str: hand.STRING, bool: hand.BOOL}
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(hand.gguf([hand.scalar("split.count", kinds[type(count)], count)]))
    with pytest.raises(errors.SplitError, match="must be a whole number"):
        read_gguf(path)


def test_merged_model_keeps_a_split_count_of_zero(tmp_path: Path) -> None:
    path = tmp_path / "merged.gguf"
    path.write_bytes(hand.gguf(split_entries(0, 0, 1), [hand.tensor("t", [8])], bytes(32)))
    assert read_gguf(path).paths == (path,)
