"""Damaged, hostile and mistaken files: each defect is an error of its own, quickly and in place."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeserve import errors
from edgeserve.errors import ModelFileError
from edgeserve.loader.gguf import ModelFile, read_gguf

from . import gguf_files as hand
from .gguf_defects import AFTER_K, DEFECTS, LOOKALIKES, Defect, key_then

MAX_SECONDS = 5 * 0.1  # the bound is 100 ms; a guard is five times it
MAX_MEMORY_BYTES = 50_000_000


def failure(path: Path) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        read_gguf(path)
    return caught.value


@pytest.fixture(params=DEFECTS)
def defect(request: pytest.FixtureRequest) -> Defect:
    return DEFECTS[request.param]


def test_defect_is_its_own_error_naming_field_and_byte(defect: Defect, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(defect.content)
    error = failure(path)
    assert (type(error), error.field, error.offset, error.path) == (
        defect.kind,
        defect.field,
        defect.offset,
        path,
    )


def test_defect_is_found_quickly_in_little_memory(defect: Defect, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(defect.content)
    start = time.perf_counter()
    failure(path)
    assert time.perf_counter() - start < MAX_SECONDS
    tracemalloc.start()
    try:
        failure(path)
        assert tracemalloc.get_traced_memory()[1] < MAX_MEMORY_BYTES
    finally:
        tracemalloc.stop()


def test_messages_are_distinct_per_defect(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    messages: dict[str, str] = {}
    for name, defect in DEFECTS.items():
        path.write_bytes(defect.content)
        message = str(failure(path))
        assert message not in messages, f"{name} reads like {messages[message]}"
        messages[message] = name


@pytest.mark.parametrize("name", LOOKALIKES)
def test_other_formats_are_named_with_the_remedy(name: str, tmp_path: Path) -> None:
    content, remedy = LOOKALIKES[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    error = failure(path)
    assert isinstance(error, errors.NotGGUFError)
    assert name.lower() in str(error).lower()
    assert remedy in str(error)


def no_such_file(folder: Path) -> Path:
    return folder / "absent.gguf"


def link_to_itself(folder: Path) -> Path:
    (folder / "loop.gguf").symlink_to(folder / "loop.gguf")
    return folder / "loop.gguf"


def below_a_file(folder: Path) -> Path:
    (folder / "file").write_bytes(b"x")
    return folder / "file" / "model.gguf"


def with_a_nul(folder: Path) -> Path:
    return folder / "a\0b.gguf"


@pytest.mark.parametrize("make", [no_such_file, link_to_itself, below_a_file, with_a_nul])
def test_unreadable_path(make: Callable[[Path], Path], tmp_path: Path) -> None:
    assert isinstance(failure(make(tmp_path)), errors.UnreadableFileError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_forbidden_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(hand.small_model())
    path.chmod(0)
    assert "ermission" in str(failure(path))


def test_failing_disk_is_an_unreadable_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(hand.small_model())

    def fail(*_arguments: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    error = failure(path)
    assert isinstance(error, errors.UnreadableFileError)
    assert "Input/output error" in str(error)


def test_directory_and_pipe_are_no_model_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, word in ((tmp_path, "directory"), (tmp_path / "pipe", "pipe")):
        error = failure(path)
        assert isinstance(error, errors.NotARegularFileError)
        assert word in str(error)


def test_names_in_messages_cannot_steer_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(hand.gguf([hand.entry("\x1b[2Jwiped\n" + "k" * 500, 99, b"")]))
    message = str(failure(path))
    assert message.isprintable()
    assert len(message.removeprefix(str(path))) < 200


def test_a_sparse_terabyte_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(key_then(hand.STRING, hand.u64(2**38)))
    os.truncate(path, 2**39)
    error = failure(path)
    assert (type(error), error.offset) == (errors.HeaderTooLargeError, AFTER_K + 4)


def test_a_key_of_a_gigabyte_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(hand.gguf(n_kv=1) + hand.u64(2**30))
    os.truncate(path, 2**31)
    error = failure(path)
    assert (type(error), error.offset) == (errors.NameLengthError, hand.HEADER_BYTES)


def test_an_array_of_a_hundred_million_bytes_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(key_then(hand.ARRAY, hand.u32(hand.UINT8) + hand.u64(100_000_000)))
    os.truncate(path, 2**31)
    error = failure(path)
    assert (type(error), error.field) == (errors.ArrayLengthError, "k")


def test_file_cut_while_its_header_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(hand.gguf([hand.array("k", hand.UINT8, [1] * 200_000)]))
    pread = os.pread

    def cut(descriptor: int, num_bytes: int, offset: int) -> bytes:
        data = pread(descriptor, num_bytes, offset)
        os.truncate(path, 100)
        return data

    monkeypatch.setattr(os, "pread", cut)
    error = failure(path)
    assert isinstance(error, errors.TruncatedHeaderError)
    assert "cut while being read" in str(error)


def assert_consistent(model: ModelFile) -> None:
    """What a successful read promises, whatever the bytes: data inside the file, and disjoint."""
    end = 0
    for tensor in sorted(model.tensors.values(), key=lambda tensor: tensor.offset):
        assert end <= tensor.offset
        assert tensor.num_bytes > 0
        end = tensor.offset + tensor.num_bytes
    assert end <= model.total_bytes
    assert set(model.metadata.offsets) == set(model.metadata.values)


@pytest.mark.parametrize("version", [2, 3])
def test_truncation_at_every_byte(version: int, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    content = hand.small_model(version)
    path.write_bytes(content)
    assert_consistent(read_gguf(path))
    for size in range(len(content) - 1, -1, -1):
        os.truncate(path, size)
        assert failure(path).path == path


def test_every_byte_flipped_is_an_error_or_a_valid_load(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    content = hand.small_model()
    header = content.index(b"output_norm.weight") + 64
    path.write_bytes(content)
    loads = 0
    with open(path, "r+b", buffering=0) as file:
        for offset in range(header):
            byte = content[offset]
            for changed in {byte ^ 1 << bit for bit in range(8)} | {0, 0xFF, byte ^ 0xFF} - {byte}:
                os.pwrite(file.fileno(), bytes([changed]), offset)
                try:
                    assert_consistent(read_gguf(path))
                    loads += 1
                except ModelFileError as error:
                    assert error.path == path  # noqa: PT017
            os.pwrite(file.fileno(), bytes([byte]), offset)
    assert 0 < loads < 11 * header
