"""The C code under the sanitizers, and the rules of native/ that no compiler checks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / "native"
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SOURCES = sorted(path for path in NATIVE.rglob("*.c") if path.parent.name != "tests")
DEQUANTIZING = [
    *(
        NATIVE / "quants" / f"{name}.c"
        for name in ["codebook", "dequantize", "floats", "k_quants", "plain"]
    ),
    NATIVE / "runtime" / "abi.c",
]

THREADS = [
    *(NATIVE / "runtime" / f"{name}.c" for name in ["float_control", "os_linux", "threads"]),
    NATIVE / "tests" / "threads_test.c",
]


def compile_c(target: Path, sources: list[Path], *flags: str) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler named cc")
    command = [compiler, "-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    command += ["-ffp-contract=off", f"-I{NATIVE}", f"-I{NATIVE / 'include'}", *flags]
    command += [*map(str, sources), "-o", str(target)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def sanitizers(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags that turn the sanitizers on; skips where the compiler has no runtime for them."""
    folder = tmp_path_factory.mktemp("sanitizers")
    source = folder / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    if compile_c(folder / "empty", [source], *SANITIZE).returncode != 0:
        pytest.skip("cc has no address and undefined-behaviour sanitizers")
    return SANITIZE


def test_dequantizing_is_clean_under_the_sanitizers(tmp_path: Path, sanitizers: list[str]) -> None:
    program = tmp_path / "dequantize_test"
    built = compile_c(program, [*DEQUANTIZING, NATIVE / "tests" / "dequantize_test.c"], *sanitizers)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([program], capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "16 types\n"), ran.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="compiles the pool with os_linux.c")
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_the_thread_pool_is_clean_under_the_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    flags = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    source = tmp_path / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    if compile_c(tmp_path / "empty", [source], *flags).returncode != 0:
        pytest.skip(f"cc has no {sanitizer} sanitizer")
    program = tmp_path / "threads_test"
    built = compile_c(program, THREADS, *flags, "-pthread")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([program], capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert ran.stdout.endswith(" passed, 0 failed\n")


def test_cmake_lists_every_source() -> None:
    listed = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    missing = [
        str(path.relative_to(ROOT)) for path in SOURCES if str(path.relative_to(ROOT)) not in listed
    ]
    assert missing == []


def test_public_header_compiles_alone(tmp_path: Path) -> None:
    source = tmp_path / "alone.c"
    source.write_text('#include "edgeserve.h"\nint main(void) { return ES_OK; }\n')
    built = compile_c(tmp_path / "alone", [source])
    assert built.returncode == 0, built.stderr


@pytest.mark.parametrize(
    ("flag", "message"), [("-ffast-math", "-ffast-math"), ("-march=haswell", "-march")]
)
def test_flags_that_would_change_results_or_portability_do_not_compile(
    tmp_path: Path, flag: str, message: str
) -> None:
    source = NATIVE / "runtime" / "abi.c"
    built = compile_c(tmp_path / "abi.o", [source], "-c", flag)
    if "unrecognized" in built.stderr or "unknown" in built.stderr or "bad value" in built.stderr:
        pytest.skip(f"cc does not know {flag}")
    assert built.returncode != 0
    assert f"must not be built with {message}" in built.stderr


def test_layout_table_is_current(tmp_path: Path) -> None:
    tree = tmp_path / "native"
    (tree / "runtime").mkdir(parents=True)
    shutil.copytree(NATIVE / "include", tree / "include")
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    generator = tmp_path / "tools" / "generate_layout.py"
    subprocess.run([sys.executable, str(generator)], check=True)
    current = (NATIVE / "runtime" / "layout.h").read_text(encoding="utf-8")
    generated = (tree / "runtime" / "layout.h").read_text(encoding="utf-8")
    assert current == generated, "run: python tools/generate_layout.py"
