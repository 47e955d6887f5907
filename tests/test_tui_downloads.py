"""Models behind the chat that do not come: broken files, downloads that are cut, or cannot be."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from edgeserve.config import Config
from edgeserve.loader import download
from edgeserve.loader.catalog import load_catalog
from edgeserve.local_shelf import LocalShelf
from edgeserve.tui.local_client import LocalClient

from .chat_app import Table, drive
from .hub_server import FakeHub, serving
from .other_process import process_that_said
from .tiny_models import write_tiny_model

REPO = "ada/tiny-GGUF"
NAME = f"hf:{REPO}"

_UNWRITTEN_BYTES = 64 << 10
"""At most so much of what came may not have been on its way to the disk."""


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(download.fetch.__kwdefaults__, "pause", lambda _seconds: None)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return Path(write_tiny_model(folder / "tiny.gguf", "llama", context=512))


@pytest.fixture
def hub(tiny: Path) -> Iterator[FakeHub]:
    # Large enough that its beginning is a part worth keeping: what follows a model is not read.
    content = tiny.read_bytes() + random.Random(1).randbytes(3 << 20)
    with serving(FakeHub(REPO, {"tiny-Q4_K_M.gguf": content})) as hub:
        yield hub


def _client(folder: Path, hub: FakeHub | None = None) -> LocalClient:
    config = Config(
        cache_dir=folder / "cache",
        hf_hub_cache=folder / "hf",
        hf_endpoint="" if hub is None else hub.endpoint,
        disk_cache=False,
    )
    return LocalClient(LocalShelf(config, load_catalog(), {}))


def _drive(folder: Path, client: LocalClient, body: Callable[[Table], object], model: str) -> None:
    async def then_closed(table: Table) -> None:
        try:
            await body(table)  # type: ignore[misc]
        finally:
            await table.chat.switch.cancel()
            await client.aclose()

    drive(folder, then_closed, client=client, model=model)  # type: ignore[arg-type]


def _truncated(tiny: Path, path: Path) -> None:
    path.write_bytes(tiny.read_bytes()[:-5000])


def _foreign(_: Path, path: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + bytes(5000))


def _missing(_: Path, path: Path) -> None:
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("break_it", [_truncated, _foreign, _missing])
def test_a_model_that_does_not_load_keeps_the_question_for_the_next(
    tmp_path: Path, tiny: Path, break_it: Callable[[Path, Path], None]
):
    broken = tmp_path / "broken.gguf"
    break_it(tiny, broken)

    async def body(table: Table) -> None:
        await table.says("The model did not load")
        await table.says("broken.gguf")
        await table.type("/set max_tokens 3", "enter")
        await table.type("Not lost", "enter")
        await table.says("your question waits for a model: f4")
        await table.type(f"/model {tiny}", "enter")
        await table.until(lambda: len(table.texts()) == 2 and not table.chat.talk.is_answering)
        assert table.texts()[0] == "Not lost"
        assert not table.chat.talk.turns[-1].error

    _drive(tmp_path, _client(tmp_path), body, str(broken))


def test_a_download_that_is_stopped_goes_on_where_it_was(tmp_path: Path, hub: FakeHub):
    hub.fault, hub.stop_after = "stalls", 2 << 20

    async def cut(table: Table) -> None:
        await table.until(hub.stalled.is_set)
        await table.says("fetching")
        await table.chat.switch.cancel()  # what x in the models screen does
        await table.until(lambda: not table.chat.switch.loading)
        hub.release.set()

    async def resumed(table: Table) -> None:
        await table.until(lambda: table.chat.desk.client.model is not None)
        await table.type("/set max_tokens 3", "enter")
        await table.ask("Hi")

    _drive(tmp_path, _client(tmp_path, hub), cut, NAME)
    hub.fault = "none"
    _drive(tmp_path, _client(tmp_path, hub), resumed, NAME)
    ranges = [wanted for _, path, wanted in hub.requests if path.endswith(".gguf") and wanted]
    assert ranges, "it began again at the first byte"


_FETCHES = """
import asyncio, sys
from pathlib import Path
from tests.chat_app import Table, drive
from tests.hub_server import FakeHub
from tests.test_tui_downloads import NAME, REPO, _client

folder, endpoint = Path(sys.argv[1]), sys.argv[2]

async def body(table: Table) -> None:
    await table.says("2.1 MB of")
    print("fetching", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await table.type("/quit", "enter")
    await table.until(lambda: not table.app.is_running)

drive(folder, body, client=_client(folder, FakeHub(REPO, {}, endpoint=endpoint)), model=NAME)
"""


def another_process(folder: Path, hub: FakeHub) -> AbstractContextManager[subprocess.Popen[str]]:
    """Its chat shows a download on which nothing comes any more; a line makes it quit."""
    return process_that_said("fetching", _FETCHES, str(folder), hub.endpoint)


@pytest.mark.parametrize("way", ["quit", "kill"])
def test_a_download_goes_on_after_the_program_ended_in_the_middle_of_it(
    tmp_path: Path, hub: FakeHub, way: str
):
    """Quitting waits for no byte: here none comes before the test lets it."""
    if way == "kill" and os.name == "nt":
        pytest.skip("kill -9 is POSIX")
    hub.fault, hub.stop_after = "stalls", 2 << 20
    with another_process(tmp_path, hub) as process:
        if way == "kill":
            process.kill()
            process.wait(30)
        else:
            process.communicate("quit\n", timeout=20)
            assert process.returncode == 0
    assert not hub.release.is_set()
    hub.release.set()
    hub.fault = "none"

    async def resumed(table: Table) -> None:
        await table.until(lambda: table.chat.desk.client.model is not None)
        await table.type("/set max_tokens 3", "enter")
        await table.ask("Hi")

    _drive(tmp_path, _client(tmp_path, hub), resumed, NAME)
    ranges = [wanted for _, path, wanted in hub.requests if path.endswith(".gguf")]
    assert len(ranges) == 2
    start = int((ranges[1] or "").removeprefix("bytes=").rstrip("-"))
    assert (2 << 20) - _UNWRITTEN_BYTES <= start <= 2 << 20


@pytest.mark.parametrize(
    ("fault", "said"),
    [("503", "503"), ("always-truncates", "resum"), ("flips-a-byte", "sha256")],
)
def test_a_download_that_fails_says_why_and_the_question_waits(
    tmp_path: Path, hub: FakeHub, fault: str, said: str
):
    hub.fault, hub.stop_after = fault, 1 << 20  # type: ignore[assignment]

    async def body(table: Table) -> None:
        await table.says("The model did not load")
        await table.says(said)
        await table.type("Not lost", "enter")
        await table.says("your question waits for a model: f4")
        hub.fault = "none"
        await table.type("/set max_tokens 3", "enter")
        await table.type(f"/model {NAME}", "enter")
        await table.until(lambda: len(table.texts()) == 2 and not table.chat.talk.is_answering)

    _drive(tmp_path, _client(tmp_path, hub), body, NAME)


def test_a_disk_without_room_for_a_model_is_told_before_it_is_fetched(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
):
    usage = shutil.disk_usage(tmp_path)

    async def body(table: Table) -> None:
        await table.says("The model did not load")
        await table.says("free")
        assert hub.num_downloads == 0

    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    _drive(tmp_path, _client(tmp_path, hub), body, NAME)
