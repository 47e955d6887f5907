"""The library for systems that are not this one: it compiles, links, and exports its functions.
What of it can run here, by qemu, runs in test_kernels.py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .binary_exports import exported_names

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "native" / "include" / "edgeserve.h"
# Where pip puts cmake, ninja and zig; a test run need not have it on its path.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
OPTIMIZED_ENOUGH = "-O1 -DNDEBUG"
"""A third of -O3's time, and the same warnings but for those of the optimizer."""


def run(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env={**os.environ, "PATH": PATH},
    )


def need_zig() -> None:
    if importlib.util.find_spec("ziglang") is None and shutil.which("zig") is None:
        pytest.skip("zig is not installed: pip install --group cross")


def need_arm_compiler() -> None:
    if shutil.which("aarch64-linux-gnu-gcc") is None:
        pytest.skip("aarch64-linux-gnu-gcc is not installed")


def public_functions() -> set[str]:
    return set(re.findall(r"^ES_API [^(]*?\b(es_\w+)\(", HEADER.read_text(), re.MULTILINE))


def test_the_header_lists_functions() -> None:
    assert {"es_abi_version", "es_step", "es_kernel_set"} <= public_functions()


@pytest.mark.parametrize(
    ("target", "library", "kind"),
    [
        ("aarch64-linux", "libedgeserve.so", b"\x7fELF\x02\x01"),
        ("aarch64-macos", "libedgeserve.so", b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01"),
        ("x86_64-windows", "libedgeserve.pyd", b"MZ"),
    ],
    ids=["aarch64-linux", "aarch64-macos", "x86_64-windows"],
)
def test_library_builds_for(target: str, library: str, kind: bytes, tmp_path: Path) -> None:
    if target == "aarch64-linux":
        need_arm_compiler()
    else:
        need_zig()
    cmake = shutil.which("cmake", path=PATH)
    if cmake is None:
        pytest.skip("cmake is not installed")
    toolchain = ROOT / "tools" / "toolchains" / f"{target}.cmake"
    options = [f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DEDGESERVE_WERROR=ON"]
    options += [f"-DCMAKE_C_FLAGS_RELEASE={OPTIMIZED_ENOUGH}"]
    configured = run([cmake, "-S", ROOT, "-B", tmp_path, *options])
    assert configured.returncode == 0, configured.stdout + configured.stderr
    built = run([cmake, "--build", tmp_path, "--target", "edgeserve"])
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    assert (tmp_path / library).read_bytes().startswith(kind)
    names = exported_names(tmp_path / library)
    assert {name for name in names if name.startswith("es_")} == public_functions()


def test_big_endian_systems_are_refused(tmp_path: Path) -> None:
    need_zig()
    zig = shutil.which("python-zig", path=PATH) or shutil.which("zig", path=PATH)
    assert zig is not None
    # Compiling reads the headers only; linking would first build a C library for the target.
    command = [zig, "cc", "-target", "s390x-linux-musl", "-std=c11", "-c"]
    command += [f"-I{ROOT / 'native'}", f"-I{ROOT / 'native' / 'include'}"]
    command += ["-o", str(tmp_path / "o"), str(ROOT / "native" / "quants" / "plain.c")]
    refused = run([*command])
    assert refused.returncode != 0
    assert "edgeserve runs on little-endian machines only" in refused.stderr
