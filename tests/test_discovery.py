"""Models that other programs keep: found where they lie, once each, whatever state they are in."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from edgeserve.config import Config
from edgeserve.errors import ModelNotFoundError
from edgeserve.loader import discovery
from edgeserve.loader.catalog import load_catalog
from edgeserve.loader.discovery import FoundModel, discover, peek_strings
from edgeserve.loader.store import ModelStore

from .recording_progress import RecordingProgress

DIGEST = "ab" * 32


def gguf(**general: str) -> bytes:
    """The start of a GGUF file: magic, version, counts, and these `general.*` strings."""
    keys = {f"general.{key}": value for key, value in general.items()}
    body = b"".join(
        struct.pack("<Q", len(key))
        + key.encode()
        + struct.pack("<IQ", 8, len(value.encode()))
        + value.encode()
        for key, value in keys.items()
    )
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + body


MODEL = gguf(architecture="llama", type="model")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        cache_dir=tmp_path / "own",
        hf_hub_cache=tmp_path / "hf",
        ollama_dirs=(tmp_path / "ollama",),
        lm_studio_dirs=(tmp_path / "lmstudio",),
        llama_cpp_dirs=(tmp_path / "llama.cpp",),
    )


def put(path: Path, content: bytes = MODEL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def put_hub(
    config: Config, repo: str, name: str, commit: str = "c1", ref: str | None = "c1"
) -> Path:
    folder = config.hf_hub_cache / f"models--{repo.replace('/', '--')}"
    blob = put(folder / "blobs" / f"{commit}-{name.replace('/', '-')}")
    link = folder / "snapshots" / commit / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(blob)
    if ref is not None:
        put(folder / "refs" / "main", ref.encode())
    return link


def put_ollama(config: Config, where: str, layers: object, content: bytes = MODEL) -> Path:
    folder = config.ollama_dirs[0]
    put(folder / "manifests" / where, json.dumps({"layers": layers}).encode())
    return put(folder / "blobs" / f"sha256-{DIGEST}", content)


def layer(kind: str, digest: str = DIGEST) -> dict[str, object]:
    return {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}"}


def names(config: Config) -> list[str]:
    return [model.name for model in discover(config)]


# --- each program --------------------------------------------------------------------------------


def test_hub_cache_gives_the_snapshot_of_main(config: Config) -> None:
    put_hub(config, "ada/m-GGUF", "m-Q8_0.gguf", commit="old", ref=None)
    link = put_hub(config, "ada/m-GGUF", "m-Q4_K_M.gguf", commit="new", ref="new")
    (found,) = discover(config)
    assert found == FoundModel(
        "huggingface", "hf:ada/m-GGUF:m-Q4_K_M.gguf", link, len(MODEL), "Q4_K_M", "llama"
    )


def test_hub_cache_without_a_ref_gives_the_newest_snapshot(config: Config) -> None:
    put_hub(config, "ada/m", "one.gguf", commit="c1", ref=None)
    put_hub(config, "ada/m", "two.gguf", commit="c2", ref=None)
    snapshots = config.hf_hub_cache / "models--ada--m" / "snapshots"
    os.utime(snapshots / "c1", (1, 1))
    assert names(config) == ["hf:ada/m:two.gguf"]


def test_ollama_models_have_the_programs_own_names(config: Config) -> None:
    blob = put_ollama(
        config,
        "registry.ollama.ai/library/llama3.2/1b",
        [layer("template", "cd" * 32), layer("model")],
    )
    (found,) = discover(config)
    assert (found.name, found.path, found.program) == ("ollama:llama3.2:1b", blob, "ollama")


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("registry.ollama.ai/library/m/latest", "ollama:m:latest"),
        ("registry.ollama.ai/ada/m/8b", "ollama:ada/m:8b"),
        ("hf.co/ada/m-GGUF/Q4_K_M", "ollama:hf.co/ada/m-GGUF:Q4_K_M"),
    ],
)
def test_ollama_registries_and_owners(config: Config, where: str, name: str) -> None:
    put_ollama(config, where, [layer("model")])
    assert names(config) == [name]


def test_ollama_adapter_that_we_would_not_apply_is_noted(config: Config) -> None:
    put_ollama(config, "registry.ollama.ai/library/m/x", [layer("model"), layer("adapter")])
    (found,) = discover(config)
    assert "adapter" in found.note


def test_lm_studio_and_llama_cpp_folders(config: Config) -> None:
    put(config.lm_studio_dirs[0] / "ada" / "m-GGUF" / "m-Q8_0.gguf")
    put(config.llama_cpp_dirs[0] / "ada_m_m-Q4_0.gguf")
    assert names(config) == ["lmstudio:ada/m-GGUF/m-Q8_0.gguf", "llamacpp:ada_m_m-Q4_0.gguf"]


def test_split_is_one_model_of_the_size_of_all_parts(config: Config) -> None:
    folder = config.lm_studio_dirs[0]
    for number in (1, 2):
        put(folder / f"m-Q8_0-0000{number}-of-00002.gguf")
    put(folder / "n-00001-of-00003.gguf")
    whole, partial = discover(config)
    assert (whole.size_bytes, whole.note) == (2 * len(MODEL), "")
    assert partial.note == "2 parts are missing"


# --- what is no model, or not twice --------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        gguf(architecture="clip"),
        gguf(type="mmproj", architecture="clip"),
        gguf(architecture="llama", type="adapter"),
        gguf(type="vocab"),
        b"not a model at all",
        b"",
    ],
)
def test_files_that_are_no_language_model_are_left_out(config: Config, content: bytes) -> None:
    put(config.lm_studio_dirs[0] / "innocent-name.gguf", content)
    assert names(config) == []


def test_projector_beside_a_model_is_left_out(config: Config) -> None:
    put(config.lm_studio_dirs[0] / "m" / "m-Q4_0.gguf")
    put(config.lm_studio_dirs[0] / "m" / "mmproj-m-f16.gguf")
    assert names(config) == ["lmstudio:m/m-Q4_0.gguf"]


def test_file_that_two_programs_share_is_listed_once(config: Config) -> None:
    link = put_hub(config, "ada/m", "m.gguf")
    config.lm_studio_dirs[0].mkdir()
    (config.lm_studio_dirs[0] / "soft.gguf").symlink_to(link)
    os.link(link.resolve(), config.lm_studio_dirs[0] / "hard.gguf")
    assert names(config) == ["hf:ada/m:m.gguf"]


def test_two_ollama_tags_of_one_blob_are_one_model(config: Config) -> None:
    put_ollama(config, "registry.ollama.ai/library/m/1b", [layer("model")])
    put_ollama(config, "registry.ollama.ai/library/m/latest", [layer("model")])
    assert names(config) == ["ollama:m:1b"]


# --- broken things -------------------------------------------------------------------------------


def test_missing_folders_are_nothing_found(config: Config) -> None:
    assert discover(config) == ()


def test_broken_links_are_passed_over(config: Config) -> None:
    link = put_hub(config, "ada/m", "m.gguf")
    link.resolve().unlink()
    config.lm_studio_dirs[0].mkdir()
    (config.lm_studio_dirs[0] / "gone.gguf").symlink_to("/no/such/file")
    assert discover(config) == ()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_named_pipes_are_passed_over(config: Config) -> None:
    folder = config.llama_cpp_dirs[0]
    put(folder / "model.gguf")
    os.mkfifo(folder / "pipe.gguf")
    assert list(discovery.files_below(folder)) == ["model.gguf"]


def test_link_to_a_folder_above_itself_does_not_loop(config: Config) -> None:
    put(config.lm_studio_dirs[0] / "m" / "m.gguf")
    (config.lm_studio_dirs[0] / "m" / "again").symlink_to(config.lm_studio_dirs[0])
    assert names(config) == ["lmstudio:m/m.gguf"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser can read every folder")
def test_unreadable_folder_is_passed_over(config: Config) -> None:
    put(config.lm_studio_dirs[0] / "open" / "m.gguf")
    closed = put(config.lm_studio_dirs[0] / "closed" / "m.gguf").parent
    closed.chmod(0)
    try:
        assert names(config) == ["lmstudio:open/m.gguf"]
    finally:
        closed.chmod(0o700)


def test_folder_that_fails_to_list_is_passed_over(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(config.lm_studio_dirs[0] / "closed" / "m.gguf")
    put(config.lm_studio_dirs[0] / "open" / "m.gguf")
    scandir = os.scandir

    def fail_in_closed(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail_in_closed)
    assert names(config) == ["lmstudio:open/m.gguf"]


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"layers": 7}',
        b'{"layers": [7, null]}',
        b'{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": 5}]}',
        b'{"layers": [{"mediaType": "application/vnd.ollama.image.model",'
        b' "digest": "sha256:../../../etc/passwd"}]}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_damaged_manifest_is_passed_over(config: Config, manifest: bytes) -> None:
    put(
        config.ollama_dirs[0] / "manifests" / "registry.ollama.ai" / "library" / "m" / "x", manifest
    )
    assert discover(config) == ()


def test_ollama_layer_that_is_not_gguf_is_left_out(config: Config) -> None:
    put_ollama(config, "registry.ollama.ai/library/m/x", [layer("model")], b"safetensors")
    assert discover(config) == ()


@pytest.mark.parametrize("num_bytes", range(0, len(MODEL), 3))
def test_header_cut_anywhere_is_no_crash(tmp_path: Path, num_bytes: int) -> None:
    path = put(tmp_path / "m.gguf", MODEL[:num_bytes])
    assert peek_strings(path) is None or num_bytes >= 4


def test_hostile_lengths_in_a_header_are_no_crash(tmp_path: Path) -> None:
    hostile = b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60) + struct.pack("<Q", 2**63 - 1)
    assert peek_strings(put(tmp_path / "m.gguf", hostile)) == {}


# --- using what was found ------------------------------------------------------------------------


def test_found_names_resolve_to_the_same_files_in_place(config: Config) -> None:
    put_hub(config, "ada/m", "m-Q4_0.gguf")
    put_ollama(config, "registry.ollama.ai/library/m/latest", [layer("model")])
    put(config.lm_studio_dirs[0] / "ada" / "n.gguf")
    put(config.llama_cpp_dirs[0] / "o.gguf")
    store = ModelStore(config, load_catalog())
    found = store.models()
    assert len(found) == 4
    for model in found:
        files = store.find(model.name)
        assert files is not None
        assert files.path == model.path
    assert store.find("ollama:m") is not None  # as the program itself takes it
    assert not config.cache_dir.exists()


def test_unknown_kept_model_lists_those_of_that_program(config: Config) -> None:
    put(config.llama_cpp_dirs[0] / "o.gguf")
    store = ModelStore(config, load_catalog())
    with pytest.raises(ModelNotFoundError, match=r"there are: llamacpp:o\.gguf"):
        store.obtain("llamacpp:p.gguf", RecordingProgress(), lambda _: True)
    with pytest.raises(ModelNotFoundError, match="keeps none here"):
        store.obtain("ollama:p", RecordingProgress(), lambda _: True)


def test_hub_file_of_a_catalogue_entry_goes_by_its_name(config: Config) -> None:
    put_hub(config, "Qwen/Qwen3-4B-GGUF", "Qwen3-4B-Q4_K_M.gguf")
    put_hub(config, "Qwen/Qwen3-4B-GGUF", "Qwen3-4B-Q8_0.gguf")
    store = ModelStore(config, load_catalog())
    assert [model.name for model in store.models()] == ["qwen3-4b", "qwen3-4b:Q8_0"]
    files = store.find("qwen3-4b:q8_0")
    assert files is not None
    assert files.entry is not None


def test_any_part_of_a_split_by_path_gives_all(config: Config, tmp_path: Path) -> None:
    first = put(tmp_path / "m-00001-of-00002.gguf")
    second = put(tmp_path / "m-00002-of-00002.gguf")
    store = ModelStore(config, load_catalog())
    files = store.find(str(second))
    assert files is not None
    assert files.parts == (first, second)
    first.unlink()
    with pytest.raises(ModelNotFoundError, match=r"m-00001-of-00002\.gguf is not beside it"):
        store.find(str(second))


def test_looking_for_models_does_not_need_the_network_or_write(config: Config) -> None:
    before = sorted(config.cache_dir.parent.rglob("*"))
    assert discovery.discover(config) == ()
    assert ModelStore(config, load_catalog()).models() == ()
    assert sorted(config.cache_dir.parent.rglob("*")) == before
