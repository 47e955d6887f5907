"""The kernel sets against each other, the contract and libm, by C programs that see the core's
inside. Where a cross compiler and qemu are installed, 64-bit ARM and older processors too."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ["accuracy_test", "contract_test", "kernels_test", "load_test", "matmul_test"]
# The same, each with a set whose intrinsics are emulated.
EMULATED_SETS = ["avxvnni", "avx512"]
EMULATED_PROGRAMS = ["contract_test", "kernels_test", "matmul_test"]
EMULATED = [f"{program}_{name}" for program in EMULATED_PROGRAMS for name in EMULATED_SETS]
IS_X86 = platform.machine() in ("x86_64", "AMD64")

EXACT_1 = {
    "rms_norm": "0c7ec0b957b2df7d",
    "add": "6bbcf5cb9b05c789",
    "scale": "d993dca327da5750",
    "add_scaled": "74ff37ca69e2804c",
    "gated_silu": "e6335e4b454bc8b1",
    "gated_gelu_tanh": "9f736cb868ff91fd",
    "gated_relu_squared": "40eb7d79360a3bc1",
    "soft_cap": "92e20e4c4a04caab",
    "rope": "14d632cc46d99349",
    "quantize": "0977cf9739237a5b",
    "argmax": "f9c835ec963d742c",
    "sum_exp": "707cb99815e075b8",
    "store": "f495004d6c9c9109",
    "attention": "5345b9f6989544a0",
    "store_q8_0": "bc418960280c75b7",
    "attention_q8_0": "ea07b8e19f1c1deb",
    "store_q4_0": "c49e13eabd2a37ee",
    "attention_q4_0": "75931db2f6cfce9c",
    "attention_rows": "7fb22c9d2f5ae864",
}
"""What kernels_test prints for the numerics class `exact-1`. Another value is another class: a
change of arithmetic needs a decision record, and only a change of the test's inputs does not."""

Build = Callable[..., Path]


def run(command: list[str | Path], timeout: int = 900) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return ran.stdout


def tool(*names: str) -> str:
    """The first of these programs that is installed; skips where none is."""
    found = [path for name in names if (path := shutil.which(name)) is not None]
    if not found:
        pytest.skip(f"{names[0]} is not installed")
    return found[0]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds test programs with these CMake options, and returns their folder."""
    cmake = tool("cmake")

    def build_in(programs: list[str], *options: str) -> Path:
        folder = tmp_path_factory.mktemp("build")
        run([cmake, "-S", ROOT, "-B", folder, "-DEDGESERVE_WERROR=ON", *options])
        run([cmake, "--build", folder, "--parallel", "2", "--target", *programs])
        return folder

    return build_in


@pytest.fixture(scope="session")
def native(build: Build) -> Path:
    return build(PROGRAMS + EMULATED if IS_X86 else PROGRAMS)


@pytest.fixture(scope="session")
def native_checks(native: Path) -> str:
    return run([native / "kernels_test"])


@pytest.fixture(scope="session")
def arm(build: Build) -> Path:
    tool("aarch64-linux-gnu-gcc")
    return build(
        PROGRAMS, f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'tools' / 'toolchains' / 'aarch64-linux.cmake'}"
    )


def checksums(output: str, kernel_set: str) -> dict[str, str]:
    """What a set computed, by kernel."""
    words = [line.split() for line in output.splitlines() if line.startswith(f"{kernel_set} ")]
    return {kernel: checksum for _, kernel, checksum in words}


def test_every_kernel_set_gives_the_bits_of_ref(native_checks: str) -> None:
    assert native_checks.endswith(" passed, 0 failed\n")


def test_bits_are_those_of_the_numerics_class(native_checks: str) -> None:
    assert checksums(native_checks, "ref") == EXACT_1


def test_results_are_those_of_the_contract(native: Path) -> None:
    assert run([native / "contract_test"]).endswith(" passed, 0 failed\n")


def test_every_matmul_gives_the_bits_of_ref(native: Path) -> None:
    assert run([native / "matmul_test"]).endswith(" passed, 0 failed\n")


@pytest.mark.skipif(not IS_X86, reason="they are emulated with AVX2")
@pytest.mark.parametrize("name", EMULATED_SETS)
@pytest.mark.parametrize("program", EMULATED_PROGRAMS)
def test_sets_give_the_bits_of_ref_on_emulated_instructions(
    native: Path, program: str, name: str
) -> None:
    sets = run([native / f"kernels_test_{name}", "sets"]).split()
    assert {name, "avx2", "ref"} <= set(sets)
    assert run([native / f"{program}_{name}"]).endswith(" passed, 0 failed\n")


def test_weights_are_loaded_from_files_as_they_are_filled(native: Path) -> None:
    assert run([native / "load_test"]).endswith(" passed, 0 failed\n")


def test_errors_stay_within_their_bounds(native: Path) -> None:
    assert run([native / "accuracy_test"]).endswith(" passed, 0 failed\n")


def test_arm_gives_the_same_bits(native_checks: str, arm: Path) -> None:
    qemu = tool("qemu-aarch64-static", "qemu-aarch64")
    output = run([qemu, "-cpu", "max", arm / "kernels_test"])
    expected = checksums(native_checks, "ref")
    assert len(expected) > 10
    for name in ("i8mm", "neon", "ref"):
        assert checksums(output, name) == expected
    assert run([qemu, "-cpu", "max", arm / "contract_test"]).endswith(" passed, 0 failed\n")


def test_arm_gives_the_same_bits_in_every_matmul(native: Path, arm: Path) -> None:
    qemu = tool("qemu-aarch64-static", "qemu-aarch64")
    output = run([qemu, "-cpu", "max", arm / "matmul_test", "quick"])
    assert output.endswith(" passed, 0 failed\n")
    expected = checksums(run([native / "matmul_test", "quick"]), "ref")
    assert len(expected) == 16
    for name in ("i8mm", "neon", "ref"):
        assert checksums(output, name) == expected


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        ("max", ["i8mm", "neon", "ref"]),
        ("cortex-a76", ["neon", "ref"]),
        ("cortex-a72", ["ref"]),
    ],
)
def test_arm_processors_get_the_sets_they_can_run(arm: Path, cpu: str, expected: list[str]) -> None:
    qemu = tool("qemu-aarch64-static", "qemu-aarch64")
    assert run([qemu, "-cpu", cpu, arm / "kernels_test", "sets"]).split() == expected


@pytest.mark.parametrize(("cpu", "expected"), [("Haswell", ["avx2", "ref"]), ("Nehalem", ["ref"])])
def test_x86_processors_get_the_sets_they_can_run(
    native: Path, cpu: str, expected: list[str]
) -> None:
    qemu = tool("qemu-x86_64-static", "qemu-x86_64")
    assert run([qemu, "-cpu", cpu, native / "kernels_test", "sets"]).split() == expected
    checked = run([qemu, "-cpu", cpu, native / "kernels_test", "quick"])
    assert checked.endswith(" passed, 0 failed\n")
