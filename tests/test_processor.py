"""What the system says of its processor, on trees of files such as Linux has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgeserve.loader.processor import Processor, read_huge_pages, read_processor, why_not

AVX2 = ("avx2", "fma", "f16c")
AVX512 = ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def processor(machine: str, *features: str) -> Processor:
    return Processor(machine, None, frozenset(features), 4, 2, 4, None)


def test_name_and_features_of_x86(tmp_path: Path) -> None:
    cpuinfo = "processor\t: 0\nmodel name\t: A Fast One\nflags\t\t: fpu avx2 fma\n\nflags\t\t: x\n"
    found = read_processor(write(tmp_path, {"proc/cpuinfo": cpuinfo}), "x86_64")
    assert (found.machine, found.name) == ("x86_64", "A Fast One")
    assert found.features == {"fpu", "avx2", "fma"}
    assert found.logical == os.cpu_count()


def test_features_of_arm(tmp_path: Path) -> None:
    cpuinfo = "processor\t: 0\nFeatures\t: fp asimd asimddp\n"
    found = read_processor(write(tmp_path, {"proc/cpuinfo": cpuinfo}), "aarch64")
    assert found.features == {"fp", "asimd", "asimddp"}


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    found = read_processor(tmp_path, "arm64")
    assert (found.features, found.physical, found.limit) == (frozenset(), None, None)
    assert read_huge_pages(tmp_path).setting is None


def test_threads_of_one_core_are_one_physical_core(tmp_path: Path) -> None:
    siblings = ["0,2\n", "1,3\n", "0,2\n", "1,3\n", "4\n"]
    files = {
        f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list": text
        for i, text in enumerate(siblings)
    }
    assert read_processor(write(tmp_path, files)).physical == 3


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_affinity_is_counted(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert read_processor(tmp_path).allowed == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, None),
        ({"a/b": "max 100000"}, None),
        ({"a/b": "150000 100000"}, 2),
        ({"": "max 100000", "a": "100000 100000", "a/b": "400000 100000"}, 1),
        ({"a/b/c": "100000 100000"}, None),  # another group's
        ({"a": "garbage", "a/b": "5"}, None),
        ({"a/b": "100000 0"}, None),
    ],
)
def test_the_tightest_limit_of_the_control_group_counts(
    tmp_path: Path, limits: dict[str, str], expected: int | None
) -> None:
    files = {f"sys/fs/cgroup/{group}/cpu.max": text for group, text in limits.items()}
    write(tmp_path, files | {"proc/self/cgroup": "5:cpu:/old\n0::/a/b\n"})
    assert read_processor(tmp_path).limit == expected


@pytest.mark.parametrize(
    ("kernel_set", "found", "expected"),
    [
        ("neon", processor("x86_64", *AVX2), "for 64-bit ARM"),
        ("avx2", processor("arm64"), "for x86-64"),
        ("avx2", processor("riscv64", *AVX2), "for x86-64"),
        ("avx2", processor("AMD64", "avx2", "fma"), "this processor has no f16c"),
        (
            "avx512",
            processor("x86_64", *AVX2, *AVX512[:3]),
            "this processor has no avx512vl, avx512_vnni",
        ),
        ("avxvnni", processor("x86_64", *AVX2), "this processor has no avx_vnni"),
        ("avxvnni", processor("x86_64", "avx_vnni", *AVX2), "this build leaves it out"),
        ("neon", processor("aarch64", "asimd"), "this processor has no asimddp"),
        ("i8mm", processor("aarch64", "asimd", "asimddp"), "this processor has no i8mm"),
        (
            "neon",
            processor("arm64"),
            "this processor or its system lacks one of asimddp",
        ),
        ("avx512", processor("x86_64", *AVX2, *AVX512), "this build leaves it out"),
        ("new", processor("x86_64", *AVX2), "this build leaves it out"),
    ],
)
def test_why_a_kernel_set_does_not_run(kernel_set: str, found: Processor, expected: str) -> None:
    assert why_not(kernel_set, found) == expected


@pytest.mark.parametrize(
    ("text", "setting", "used"),
    [
        ("always [madvise] never\n", "madvise", True),
        ("[always] madvise never\n", "always", True),
        ("always madvise [never]\n", "never", False),
        ("nonsense", None, False),
    ],
)
def test_huge_pages(tmp_path: Path, text: str, setting: str | None, used: bool) -> None:
    write(tmp_path, {"sys/kernel/mm/transparent_hugepage/enabled": text})
    found = read_huge_pages(tmp_path)
    assert (found.setting, found.are_used) == (setting, used)
