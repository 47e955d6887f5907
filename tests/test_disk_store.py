"""DiskStore: what was stored is read back after a restart, or is a miss; never anything else.

Damage of every kind, several processes at once, the bound, the daily limit, clocks that go back.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeserve.cache import disk_writer
from edgeserve.cache.disk_folder import DiskFolder, segment_files
from edgeserve.cache.disk_format import NewBlock, segment_of
from edgeserve.cache.disk_store import DiskStore
from edgeserve.cli import main

from .disk_blocks import BLOCK_BYTES, IDENTITY, chain

OTHER = bytes(16)
BOUND = 1 << 20
PAIR_BYTES = 2240  # of two blocks on disk, in one segment or in two
NOON = 1_700_000_000.0
DAY = 86_400.0


class Disk:
    """A folder, stores over it that come and go, and the time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = NOON

    def open(
        self, identity: bytes = IDENTITY, *, bound: int = BOUND, daily: int = 1 << 30
    ) -> DiskStore:
        folder = DiskFolder(self.root, lambda: self.now)
        about = {"model": "tiny"}
        store = DiskStore(folder, identity, about, bound_bytes=bound, daily_bytes=daily)
        assert store.wait_ready(10)
        return store

    def keep(self, *chains: Sequence[NewBlock], **options: int) -> None:
        """Each in a segment of its own, a second after the other."""
        for blocks in chains:
            self.now += 1
            store = self.open(**options)
            for block in blocks:
                store.add(block)
            store.close(10)

    def use(self, blocks: Sequence[NewBlock]) -> None:
        self.now += 1
        store = self.open()
        store.add_used([(blocks[-1].group, blocks[-1].key)])
        store.close(10)

    def found(self, blocks: Sequence[NewBlock], identity: bytes = IDENTITY) -> list[bytes | None]:
        """What a new process reads of them, up to the first that is not there."""
        store = self.open(identity)
        found = read(store, blocks)
        store.close(10)
        return found

    @property
    def folder(self) -> Path:
        return self.root / IDENTITY.hex()

    def segments(self) -> list[Path]:
        """The oldest first."""
        return [file.path for file in sorted(segment_files(self.folder), key=lambda f: f.used_ns)]

    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in segment_files(self.folder))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "prompts")


def read(store: DiskStore, blocks: Sequence[NewBlock]) -> list[bytes | None]:
    reading = store.read([(block.group, block.key) for block in blocks], BLOCK_BYTES)
    found: list[bytes | None] = []
    while len(found) < len(blocks) and (not found or found[-1] is not None):
        assert reading.wait(10)
        found.append(reading.next())
    return found


def data(blocks: Sequence[NewBlock]) -> list[bytes | None]:
    return [block.data for block in blocks]


def test_blocks_are_read_after_a_restart_and_only_by_their_owner(disk: Disk) -> None:
    blocks = [
        *chain("a", 5),
        NewBlock(3, b"k" * 32, b"b" * 32, b"another group's, of another size"),
    ]
    disk.keep(blocks)
    assert disk.found(blocks) == data(blocks)
    assert disk.found(blocks[::-1]) == data(blocks[::-1])
    assert disk.found(chain("b", 2)) == [None]
    paths = [disk.root, *disk.root.rglob("*")]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in paths}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_store_wants_what_is_neither_stored_nor_on_its_way(disk: Disk) -> None:
    disk.keep(chain("a", 1))
    store = disk.open()
    (stored,), (new,) = chain("a", 1), chain("b", 1)
    assert (store.has(0, stored.key), store.wants(0, stored.key)) == (True, False)
    assert (store.has(0, new.key), store.wants(0, new.key)) == (False, True)
    store.add(new)
    assert not store.wants(0, new.key)
    store.close(10)


# --- damage --------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def age(path: Path) -> None:
    path.write_bytes(b"ESKV0000" + path.read_bytes()[8:])


def claim_more(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:8] + b"\xff" * 8 + path.read_bytes()[16:])


def replace_whole(path: Path) -> None:
    path.write_bytes(b"something else" * 1000)


def put_another_models(path: Path) -> None:
    blocks = chain("a", 3)
    path.write_bytes(segment_of(OTHER, blocks)[0] + b"".join(block.data for block in blocks))


@pytest.mark.parametrize(
    "damage", [cut, empty, lengthen, age, claim_more, replace_whole, put_another_models]
)
def test_damaged_file_is_a_miss_and_removed(disk: Disk, damage: Callable[[Path], None]) -> None:
    disk.keep(chain("a", 3), chain("b", 3))
    damaged, whole = disk.segments()
    damage(damaged)
    assert disk.found(chain("a", 3)) == [None]
    assert disk.segments() == [whole]
    assert disk.found(chain("b", 3)) == data(chain("b", 3))


def test_block_that_rots_while_the_store_is_open_is_a_miss(disk: Disk) -> None:
    disk.keep(chain("a", 3), chain("b", 3))
    store = disk.open()
    path = disk.segments()[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert read(store, chain("a", 3)) == [*data(chain("a", 2)), None]
    assert not any(store.has(0, block.key) for block in chain("a", 3))
    assert not path.exists()
    assert read(store, chain("b", 3)) == data(chain("b", 3))
    store.close(10)


def test_file_that_is_erased_while_the_store_is_open_is_a_miss(disk: Disk) -> None:
    disk.keep(chain("a", 3))
    store = disk.open()
    disk.segments()[0].unlink()
    assert read(store, chain("a", 3)) == [None]
    assert store.wants(0, chain("a", 3)[0].key)
    store.close(10)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_whatever_bit_flips_what_is_read_is_what_was_stored_or_nothing(
    tmp_path: Path, draw: st.DataObject
) -> None:
    disk = Disk(tmp_path / draw.draw(st.uuids()).hex)
    blocks = chain("a", 3)
    disk.keep(blocks)
    (path,) = disk.segments()
    content = bytearray(path.read_bytes())
    at = draw.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << draw.draw(st.integers(0, 7))
    path.write_bytes(content)
    found = disk.found(blocks)
    assert found[-1] is None
    assert found[:-1] == data(blocks)[: len(found) - 1]


def test_what_is_not_ours_is_left_alone_and_never_followed(disk: Disk, tmp_path: Path) -> None:
    disk.keep(chain("a", 1))
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    names = [f"{at:024x}.kv" for at in range(3)]
    (disk.folder / names[0]).symlink_to(outside)
    os.mkfifo(disk.folder / names[1])
    (disk.folder / names[2]).mkdir()
    (disk.folder / "notes.txt").write_text("mine")
    (disk.root / "notes").mkdir()
    assert disk.found(chain("a", 1)) == data(chain("a", 1))
    disk.keep(chain("b", 1), bound=1200)  # room for one, so that the first one has to go
    assert disk.found(chain("a", 1)) == [None]
    DiskFolder(disk.root).clear()
    assert sorted(path.name for path in disk.folder.iterdir()) == [*names, "notes.txt"]
    assert (outside.read_bytes(), (disk.root / "notes").is_dir()) == (b"mine", True)


# --- how much, and what goes ---------------------------------------------------------------------


def test_bound_holds_and_what_was_of_no_use_longest_goes_first(disk: Disk) -> None:
    chains = [chain(str(at), 2) for at in range(6)]
    bound = 4 * PAIR_BYTES
    disk.keep(*chains[:4])
    disk.use(chains[0])
    for blocks in chains[4:]:
        disk.keep(blocks, bound=bound)
        assert disk.num_bytes() <= bound
    kept = [disk.found(blocks) == data(blocks) for blocks in chains]
    assert kept == [True, False, False, True, True, True]


def test_bound_is_for_all_models_together(disk: Disk) -> None:
    disk.keep(chain("old", 2), identity=OTHER)
    disk.keep(chain("new", 2), bound=3000)
    assert disk.found(chain("old", 2), OTHER) == [None]
    assert disk.found(chain("new", 2)) == data(chain("new", 2))


def test_beginning_of_a_prefix_outlives_its_end(disk: Disk) -> None:
    whole = chain("a", 6)
    disk.keep(whole[:2], whole[2:4], chain("b", 2), whole[4:])
    disk.keep(chain("c", 2), chain("d", 2), bound=4 * PAIR_BYTES)
    assert disk.found(chain("b", 2)) == [None]
    assert disk.found(whole) == [*data(whole[:4]), None]


def test_block_larger_than_the_bound_is_not_kept(disk: Disk) -> None:
    disk.keep(chain("a", 1), chain("b", 1), bound=500)
    assert disk.num_bytes() == 0


def test_clock_that_goes_back_costs_what_was_used_in_its_future_first(disk: Disk) -> None:
    disk.keep(chain("past", 2))
    disk.now += 10 * DAY
    disk.keep(chain("future", 2))
    disk.now -= 10 * DAY
    disk.keep(chain("now", 2), bound=2 * PAIR_BYTES)
    assert disk.found(chain("future", 2)) == [None]
    for name in ("past", "now"):
        assert disk.found(chain(name, 2)) == data(chain(name, 2))


def test_daily_limit_ends_with_the_day_and_not_with_the_clock(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    limit = 5000
    disk.keep(chain("a", 2), chain("b", 2), daily=limit)
    disk.keep(chain("c", 2), daily=limit)
    assert disk.found(chain("c", 2)) == [None]
    assert ["limit" in record.message for record in caplog.records] == [True]
    disk.now -= 3 * DAY
    disk.keep(chain("c", 2), daily=limit)
    assert disk.found(chain("c", 2)) == [None]
    assert disk.found(chain("a", 2)) == data(chain("a", 2))
    disk.now += 4 * DAY
    disk.keep(chain("c", 2), daily=limit)
    assert disk.found(chain("c", 2)) == data(chain("c", 2))


# --- when the disk fails -------------------------------------------------------------------------


def test_disk_that_is_full_turns_the_store_off_with_one_line(
    disk: Disk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.keep(chain("a", 1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = disk.open()
    monkeypatch.setattr(Path, "rename", full)
    for name in "bcd":
        store.add(chain(name, 1)[0])
    store.close(10)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left" in caplog.text
    assert not store.is_on
    assert not store.has(0, chain("a", 1)[0].key)
    assert not store.wants(0, b"")
    assert [path.suffix for path in disk.folder.glob("*.*")].count(".tmp") == 0


def test_nearly_full_disk_is_not_filled_up(
    disk: Disk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nearly:
        f_bavail, f_frsize = 1 << 18, 1024

    monkeypatch.setattr(os, "statvfs", lambda _: Nearly)
    disk.keep(chain("a", 1))
    assert disk.num_bytes() == 0
    assert "No space left" in caplog.text


def test_folder_that_cannot_be_made_turns_the_store_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    store = Disk(tmp_path / "file" / "prompts").open()
    assert not store.is_on
    store.add(chain("a", 1)[0])
    store.add_used([(0, b"")])
    store.refresh()
    store.close(10)
    assert len(caplog.records) == 1


def test_disk_that_hangs_delays_closing_no_longer_than_said(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_writer, "_PENDING_BYTES", 2 * BLOCK_BYTES)
    store, go_on = disk.open(), Event()
    monkeypatch.setattr(DiskFolder, "open_model", lambda *_: go_on.wait(20))
    assert store.has_room
    for block in chain("a", 2):
        store.add(block)
    assert not store.has_room
    assert not store.wait_for_room(0.01)
    store.close(0.05)
    assert not go_on.is_set()
    go_on.set()


def test_lock_that_somebody_sits_on_costs_what_waits_and_no_more(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeserve.cache.disk_folder._LOCK_SECONDS", 0.05)
    disk.keep(chain("a", 1))
    store = disk.open()
    with DiskFolder(disk.root).locked() as is_ours:
        assert is_ours
        store.add(chain("b", 1)[0])
        store.close(10)
    assert store.is_on
    assert disk.found(chain("b", 1)) == [None]
    assert disk.found(chain("a", 1)) == data(chain("a", 1))


# --- several processes ---------------------------------------------------------------------------


def start_writer(disk: Disk, name: str, count: int, bound: int) -> subprocess.Popen[str]:
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "tests.disk_blocks", str(disk.root), name]
    command += [str(count), str(bound)]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)


def test_processes_write_at_once_and_find_each_others(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeserve.cache.disk_store._RESCAN_SECONDS", 0.0)
    store = disk.open()
    writers = [start_writer(disk, name, 5, BOUND) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    written = [chain(f"{name} {at}", 3) for name in "ab" for at in range(5)]
    assert not store.has(0, written[0][0].key)
    store.refresh()
    for blocks in written:
        assert read(store, blocks) == data(blocks)
    store.close(10)


def test_bound_holds_between_processes(disk: Disk) -> None:
    bound = 5 * 3300
    writers = [start_writer(disk, name, 5, bound) for name in "ab"]
    largest = 0
    while any(writer.poll() is None for writer in writers):
        largest = max(largest, disk.num_bytes())
    assert [writer.returncode for writer in writers] == [0, 0]
    assert 2 * 3300 < largest <= bound
    assert 2 * 3300 < disk.num_bytes() <= bound


def test_process_killed_at_any_moment_leaves_nothing_half(disk: Disk) -> None:
    writer = start_writer(disk, "a", 1000, BOUND)
    assert writer.stdout is not None
    while int(writer.stdout.readline()) < 4:
        pass
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    leftover = disk.folder / f"{0:024x}.tmp"
    leftover.write_bytes(b"half")
    for at in range(4):
        blocks = chain(f"a {at}", 3)
        assert disk.found(blocks) == data(blocks)
    num_segments = len(disk.segments())
    disk.keep(chain("b", 3))
    assert len(disk.segments()) == num_segments + 1
    assert not leftover.exists()


def test_forked_process_does_not_wait_for_threads_it_lacks(disk: Disk) -> None:
    store = disk.open()
    store.add(chain("a", 1)[0])
    child = os.fork()
    if child == 0:
        store.close(60)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.close(10)
    assert disk.found(chain("a", 1)) == data(chain("a", 1))


# --- edgeserve cache -----------------------------------------------------------------------------


def test_cache_command_shows_what_is_kept_and_erases_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESERVE_CACHE", str(tmp_path))
    monkeypatch.setenv("EDGESERVE_DISK_CACHE", "5000000")
    assert main(["cache"]) == 0
    assert "0 kB, at most 5 MB" in capsys.readouterr().out
    disk = Disk(tmp_path / "prompts")
    disk.keep(chain("a", 3), chain("b", 2))
    assert main(["cache"]) == 0
    shown = capsys.readouterr().out
    assert str(disk.root) in shown
    assert [words for words in ("5 blocks", "tiny", "5 kB") if words not in shown] == []
    assert main(["cache", "--json"]) == 0
    assert f'"size_bytes": {disk.num_bytes()},' in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert "freed 5 kB" in capsys.readouterr().out
    assert list(disk.root.rglob("*.kv")) == []
    assert disk.found(chain("a", 3)) == [None]
