"""Downloads: whatever a mirror does, the file equals its sha256, or it is an error and no file."""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgeserve.config import Config
from edgeserve.errors import (
    AmbiguousModelError,
    ChecksumError,
    DiskSpaceError,
    DownloadError,
    LicenseNotAcceptedError,
    ModelNotFoundError,
)
from edgeserve.loader import download
from edgeserve.loader.catalog import load_catalog
from edgeserve.loader.download import Expected, OpenedBytes, TransferInterrupted
from edgeserve.loader.store import ModelStore

from .hub_server import FakeHub, Fault, serving
from .recording_progress import RecordingProgress

REPO = "ada/tiny-GGUF"
FILE = "tiny-Q4_K_M.gguf"
CONTENT = b"GGUF" + random.Random(1).randbytes((5 << 20) // 2)  # two and a half chunks
HALF = 1 << 20


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(download.fetch.__kwdefaults__, "pause", lambda _seconds: None)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serving(FakeHub(REPO, {FILE: CONTENT, "README.md": b"hello"})) as hub:
        yield hub


def config_for(tmp_path: Path, hub: FakeHub, token: str | None = None) -> Config:
    return Config(
        cache_dir=tmp_path / "cache",
        hf_hub_cache=tmp_path / "hf",
        hf_endpoint=hub.endpoint,
        hf_token=token,
    )


def store_for(tmp_path: Path, hub: FakeHub) -> ModelStore:
    return ModelStore(config_for(tmp_path, hub), load_catalog())


def pull(
    tmp_path: Path,
    hub: FakeHub,
    source: str = f"hf:{REPO}",
    progress: RecordingProgress | None = None,
) -> Path:
    store = store_for(tmp_path, hub)
    return store.obtain(source, progress or RecordingProgress(), lambda _: False).path


def files_in(tmp_path: Path) -> list[str]:
    """Names of finished models: nothing hidden."""
    return [p.name for p in (tmp_path / "cache").rglob("*.gguf") if not p.name.startswith(".")]


def partials_in(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache").rglob("*.partial"))


def interrupt_after_first_chunk(tmp_path: Path, hub: FakeHub) -> None:
    with pytest.raises(KeyboardInterrupt):
        pull(tmp_path, hub, progress=RecordingProgress(interrupt_at=HALF))


# --- the plain course ----------------------------------------------------------------------------


def test_file_arrives_under_its_own_name_and_leaves_no_partial(
    tmp_path: Path, hub: FakeHub
) -> None:
    path = pull(tmp_path, hub)
    assert path == tmp_path / "cache" / "models" / "hub" / REPO / FILE
    assert path.read_bytes() == CONTENT
    assert partials_in(tmp_path) == []


def test_second_pull_asks_the_hub_nothing(tmp_path: Path, hub: FakeHub) -> None:
    pull(tmp_path, hub)
    asked = len(hub.requests)
    assert pull(tmp_path, hub).read_bytes() == CONTENT
    assert len(hub.requests) == asked


def test_progress_goes_up_to_the_size_and_every_begin_ends(tmp_path: Path, hub: FakeHub) -> None:
    progress = RecordingProgress()
    pull(tmp_path, hub, progress=progress)
    assert (FILE, len(CONTENT)) in progress.labels
    assert max(progress.updates) == len(CONTENT)
    assert progress.num_open == 0


def test_licence_of_the_card_is_said(tmp_path: Path, hub: FakeHub) -> None:
    progress = RecordingProgress()
    pull(tmp_path, hub, progress=progress)
    assert any("apache-2.0" in line for line in progress.said)


def test_token_goes_to_the_hub_and_not_to_where_it_redirects(tmp_path: Path, hub: FakeHub) -> None:
    with serving(FakeHub(REPO, {FILE: CONTENT})) as cdn:
        # Another name of this machine is another origin.
        hub.cdn = cdn.endpoint.replace("127.0.0.1", "localhost")
        store = ModelStore(config_for(tmp_path, hub, token="hf_secret"), load_catalog())
        path = store.obtain(f"hf:{REPO}", RecordingProgress(), lambda _: False).path
    assert path.read_bytes() == CONTENT
    assert set(hub.authorizations) == {"Bearer hf_secret"}
    assert cdn.authorizations == [None]


# --- interruption --------------------------------------------------------------------------------


def test_interruption_leaves_a_partial_that_the_next_pull_continues(
    tmp_path: Path, hub: FakeHub
) -> None:
    interrupt_after_first_chunk(tmp_path, hub)
    assert files_in(tmp_path) == []
    (partial,) = partials_in(tmp_path)
    kept = partial.stat().st_size
    assert HALF <= kept < len(CONTENT)
    assert pull(tmp_path, hub).read_bytes() == CONTENT
    assert hub.requests[-1][2] == f"bytes={kept}-"


def test_republished_file_does_not_continue_an_old_partial(tmp_path: Path, hub: FakeHub) -> None:
    interrupt_after_first_chunk(tmp_path, hub)
    hub.files[FILE] = CONTENT[::-1]
    assert pull(tmp_path, hub).read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("fault", ["ignores-range", "answers-416"])
def test_mirror_that_cannot_resume_sends_it_all_again(
    tmp_path: Path, hub: FakeHub, fault: Fault
) -> None:
    interrupt_after_first_chunk(tmp_path, hub)
    hub.fault = fault
    assert pull(tmp_path, hub).read_bytes() == CONTENT


def test_mirror_that_skips_bytes_is_an_error(tmp_path: Path, hub: FakeHub) -> None:
    interrupt_after_first_chunk(tmp_path, hub)
    hub.fault = "wrong-content-range"
    with pytest.raises(DownloadError, match="skipped bytes"):
        pull(tmp_path, hub)
    assert files_in(tmp_path) == []


def test_partial_that_went_bad_is_fetched_again_from_the_start(
    tmp_path: Path, hub: FakeHub
) -> None:
    interrupt_after_first_chunk(tmp_path, hub)
    (partial,) = partials_in(tmp_path)
    partial.write_bytes(b"x" * partial.stat().st_size)
    progress = RecordingProgress()
    assert pull(tmp_path, hub, progress=progress).read_bytes() == CONTENT
    assert any("fetching it again" in line for line in progress.said)


def test_partial_longer_than_the_file_is_dropped(tmp_path: Path, hub: FakeHub) -> None:
    interrupt_after_first_chunk(tmp_path, hub)
    (partial,) = partials_in(tmp_path)
    partial.write_bytes(CONTENT + b"tail")
    assert pull(tmp_path, hub).read_bytes() == CONTENT


# --- mirrors that misbehave ----------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["truncates", "short-length", "flips-once", "503-once"])
def test_passing_fault_is_overcome(tmp_path: Path, hub: FakeHub, fault: Fault) -> None:
    hub.fault, hub.stop_after = fault, 1_234_567
    assert pull(tmp_path, hub).read_bytes() == CONTENT


def test_truncated_download_continues_where_it_stopped(tmp_path: Path, hub: FakeHub) -> None:
    hub.fault, hub.stop_after = "truncates", HALF
    pull(tmp_path, hub)
    assert hub.requests[-1][2] == f"bytes={HALF}-"


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("flips-a-byte", ChecksumError, "damaged or altered"),
        ("always-truncates", DownloadError, "trying again resumes"),
        ("truncates-ignoring-range", DownloadError, "trying again resumes"),
        ("sends-more", DownloadError, "sends more than"),
        ("no-hash", DownloadError, "no sha256"),
        ("503", DownloadError, "HTTP status 503"),
    ],
)
def test_lasting_fault_is_an_error_and_no_file(
    tmp_path: Path, hub: FakeHub, fault: Fault, error: type[DownloadError], words: str
) -> None:
    hub.fault, hub.stop_after = fault, 1_500_000
    with pytest.raises(error, match=words):
        pull(tmp_path, hub)
    assert files_in(tmp_path) == []


def test_mirror_that_brings_nothing_new_is_not_asked_for_ever(tmp_path: Path, hub: FakeHub) -> None:
    hub.fault, hub.stop_after = "truncates-ignoring-range", 1_500_000
    with pytest.raises(DownloadError):
        pull(tmp_path, hub)
    assert hub.num_downloads <= 1 + download._MAX_STRIKES


def test_altered_bytes_are_deleted_and_the_error_has_both_hashes(
    tmp_path: Path, hub: FakeHub
) -> None:
    hub.fault = "flips-a-byte"
    with pytest.raises(ChecksumError) as caught:
        pull(tmp_path, hub)
    assert caught.value.expected == hashlib.sha256(CONTENT).hexdigest()
    assert caught.value.actual != caught.value.expected
    assert partials_in(tmp_path) == []


def test_unreachable_hub_says_so(tmp_path: Path) -> None:
    config = Config(tmp_path / "cache", tmp_path / "hf", hf_endpoint="http://127.0.0.1:9")
    store = ModelStore(config, load_catalog())
    with pytest.raises(DownloadError, match="cannot be reached"):
        store.obtain(f"hf:{REPO}", RecordingProgress(), lambda _: False)


def test_unknown_repository_is_not_found(tmp_path: Path, hub: FakeHub) -> None:
    with pytest.raises(ModelNotFoundError, match="no such repository"):
        pull(tmp_path, hub, "hf:ada/other")


def test_offline_switch_asks_nobody(tmp_path: Path, hub: FakeHub) -> None:
    config = Config(tmp_path / "cache", tmp_path / "hf", hf_endpoint=hub.endpoint, hf_offline=True)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE"):
        ModelStore(config, load_catalog()).obtain(
            f"hf:{REPO}", RecordingProgress(), lambda _: False
        )
    assert hub.requests == []


# --- which file ----------------------------------------------------------------------------------


def test_quantisation_is_matched_in_any_case(tmp_path: Path, hub: FakeHub) -> None:
    hub.files = {"tiny-Q8_0.gguf": b"GGUFeight", "tiny-q4_k_m.gguf": b"GGUFfour"}
    assert pull(tmp_path, hub, f"hf:{REPO}:q8_0").read_bytes() == b"GGUFeight"
    assert pull(tmp_path, hub, f"hf:{REPO}:Q4_K_M").read_bytes() == b"GGUFfour"


def test_without_a_quantisation_q4_k_m_is_taken(tmp_path: Path, hub: FakeHub) -> None:
    hub.files = {
        "mmproj-model-Q4_K_M.gguf": b"GGUFprojector",
        "tiny-F16.gguf": b"GGUFsixteen",
        "tiny-Q4_K_M.gguf": b"GGUFfour",
    }
    assert pull(tmp_path, hub).name == "tiny-Q4_K_M.gguf"


def test_missing_quantisation_lists_what_there_is(tmp_path: Path, hub: FakeHub) -> None:
    with pytest.raises(ModelNotFoundError, match="no Q5_K_M in it; there are: tiny-Q4_K_M"):
        pull(tmp_path, hub, f"hf:{REPO}:Q5_K_M")


def test_ambiguous_quantisation_lists_the_choices(tmp_path: Path, hub: FakeHub) -> None:
    hub.files = {"a-Q4_0.gguf": b"GGUF", "b-Q4_0.gguf": b"GGUF"}
    with pytest.raises(AmbiguousModelError) as caught:
        pull(tmp_path, hub, f"hf:{REPO}:Q4_0")
    assert caught.value.choices == ("a-Q4_0.gguf", "b-Q4_0.gguf")


def test_all_parts_of_a_split_are_fetched(tmp_path: Path, hub: FakeHub) -> None:
    names = [f"Q8_0/tiny-Q8_0-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    hub.files = {name: f"GGUF{name}".encode() for name in names}
    store = store_for(tmp_path, hub)
    model = store.obtain(f"hf:{REPO}:Q8_0", RecordingProgress(), lambda _: False)
    assert [part.name for part in model.parts] == [name.split("/")[1] for name in names]
    assert all(part.read_bytes().startswith(b"GGUFQ8_0") for part in model.parts)


def test_split_that_the_hub_has_in_part_is_refused(tmp_path: Path, hub: FakeHub) -> None:
    hub.files = {"tiny-Q8_0-00001-of-00002.gguf": b"GGUF"}
    with pytest.raises(ModelNotFoundError, match="lacks some of its 2 parts"):
        pull(tmp_path, hub)


def test_file_in_the_hub_clients_cache_is_used_where_it_is(tmp_path: Path, hub: FakeHub) -> None:
    repo = tmp_path / "hf" / "models--ada--tiny-GGUF"
    snapshot = repo / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    (snapshot / FILE).write_bytes(b"GGUF there")
    assert pull(tmp_path, hub) == snapshot / FILE
    assert hub.requests == []


def test_terms_are_asked_for_before_the_hub_is(tmp_path: Path, hub: FakeHub) -> None:
    store = store_for(tmp_path, hub)
    asked: list[str] = []

    def refuse(entry: object) -> bool:
        asked.append(getattr(entry, "name", ""))
        return False

    with pytest.raises(LicenseNotAcceptedError, match="Gemma Terms of Use"):
        store.obtain("gemma3-1b", RecordingProgress(), refuse)
    with pytest.raises(LicenseNotAcceptedError):
        store.obtain("hf:ggml-org/gemma-3-1b-it-GGUF", RecordingProgress(), refuse)
    assert asked == ["gemma3-1b", "gemma3-1b"]
    assert hub.requests == []


def test_catalogue_entry_of_the_hub_is_fetched_from_its_repository(tmp_path: Path) -> None:
    content = b"GGUFqwen"
    hub = FakeHub("Qwen/Qwen3-8B-GGUF", {"Qwen3-8B-Q6_K.gguf": content})
    with serving(hub):
        store = store_for(tmp_path, hub)
        model = store.obtain("qwen3-8b:q6_k", RecordingProgress(), lambda _: False)
    assert model.path.read_bytes() == content
    assert model.entry is not None
    assert model.entry.name == "qwen3-8b"


# --- the disk, and other processes ---------------------------------------------------------------


def test_full_disk_is_an_error_before_the_first_byte(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(DiskSpaceError) as caught:
        pull(tmp_path, hub)
    assert caught.value.free_bytes == 1000
    assert caught.value.needed_bytes > len(CONTENT)
    assert hub.num_downloads == 0


def test_cache_folder_that_cannot_be_made_is_an_error_with_the_remedy(
    tmp_path: Path, hub: FakeHub
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DownloadError, match="EDGESERVE_CACHE"):
        pull(tmp_path, hub)


class TellingProgress(RecordingProgress):
    """Passes on to another process what it is told."""

    def __init__(self, heard: multiprocessing.Queue[str]) -> None:
        super().__init__()
        self._heard = heard

    def say(self, line: str) -> None:
        self._heard.put(line)


def _pull_in_process(
    tmp_path: Path,
    endpoint: str,
    heard: multiprocessing.Queue[str],
    results: multiprocessing.Queue[bytes],
) -> None:
    config = Config(tmp_path / "cache", tmp_path / "hf", hf_endpoint=endpoint)
    store = ModelStore(config, load_catalog())
    path = store.obtain(f"hf:{REPO}", TellingProgress(heard), lambda _: False).path
    results.put(hashlib.sha256(path.read_bytes()).digest())


def test_second_process_waits_for_the_first_and_downloads_nothing(
    tmp_path: Path, hub: FakeHub
) -> None:
    spawn = multiprocessing.get_context("spawn")
    heard: multiprocessing.Queue[str] = spawn.Queue()
    results: multiprocessing.Queue[bytes] = spawn.Queue()
    args = (tmp_path, hub.endpoint, heard, results)
    workers = [spawn.Process(target=_pull_in_process, args=args) for _ in range(2)]
    hub.fault, hub.stop_after = "stalls", HALF
    workers[0].start()
    assert hub.stalled.wait(timeout=60)
    workers[1].start()
    while "is being fetched already" not in heard.get(timeout=60):
        pass
    hub.fault = "none"
    hub.release.set()
    digests = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
    assert set(digests) == {hashlib.sha256(CONTENT).digest()}
    ranges = [wanted for _, path, wanted in hub.requests if "/resolve/" in path]
    assert ranges == [None, f"bytes={HALF}-"]


# --- any order of bytes --------------------------------------------------------------------------


def test_any_sequence_of_breaks_ends_in_the_right_file(tmp_path: Path) -> None:
    content = random.Random(2).randbytes(10_000)
    expected = Expected("f", len(content), hashlib.sha256(content).hexdigest())
    for seed in range(50):
        draw = random.Random(seed)

        @contextmanager
        def open_at(offset: int, draw: random.Random = draw) -> Iterator[OpenedBytes]:
            start = offset if draw.random() < 0.7 else draw.randint(0, offset)
            stop = min(len(content), start + draw.randint(0, 4000))

            def chunks() -> Iterator[bytes]:
                yield content[start:stop]
                if draw.random() < 0.5:
                    raise TransferInterrupted("cut")

            yield OpenedBytes(start, chunks())

        target = tmp_path / str(seed)
        try:
            download.fetch(target, expected, open_at, RecordingProgress())
        except DownloadError:
            assert not target.exists()
        else:
            assert target.read_bytes() == content
