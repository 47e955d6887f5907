"""A wheel built from this tree: exactly the package, nothing stray, and it works where it lands."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
STRAY_NAMES = ["models", "tests", "tui", "metal", "native", "tools", "benches", "scripts"]
GENERATED = {"edgeserve/binding/_edgeserve_cdef.py", "edgeserve/binding/libedgeserve.so"}


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the working tree, by way of a source distribution: what the index hands out."""
    for package in ("scikit_build_core", "build"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: scripts/check installs it")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (source,) = folder.glob("*.tar.gz")
    settings = f"--config-settings=build-dir={folder / 'build'}"
    target = folder / "dist"
    pip("wheel", "--no-deps", "--no-build-isolation", settings, "-w", str(target), str(source))
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a plain installation of the wheel fills."""
    target = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--no-compile", "--target", str(target), str(wheel))
    return target


def run_python(installed: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Runs code that sees the installed wheel and its dependencies, but no editable install."""
    path = os.pathsep.join([str(installed), str(Path(np.__file__).parents[1])])
    return subprocess.run(
        [sys.executable, "-S", "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        cwd=installed,
        capture_output=True,
        text=True,
        check=False,
    )


def test_tag_is_any_python_and_this_platform(wheel: Path) -> None:
    assert wheel.name.startswith(f"edgeserve_llm-{VERSION}-py3-none-")
    assert not wheel.name.endswith("-any.whl")


def test_wheel_holds_the_package_the_library_and_nothing_else(wheel: Path) -> None:
    names = {info.filename for info in zipfile.ZipFile(wheel).infolist() if not info.is_dir()}
    tops = {PurePosixPath(name).parts[0] for name in names}
    assert tops == {"edgeserve", f"edgeserve_llm-{VERSION}.dist-info"}
    in_package = {name for name in names if name.startswith("edgeserve/")}
    suffixes = {".py", ".toml", ".typed", ".tcss"}
    # rglob does not enter the symlink edgeserve/models: its files come from the real folder.
    sources = {path.relative_to(ROOT) for path in (ROOT / "edgeserve").rglob("*")}
    for linked in (ROOT / "models", ROOT / "tui"):
        sources |= {Path("edgeserve") / path.relative_to(ROOT) for path in linked.rglob("*")}
    expected = {path.as_posix() for path in sources if path.suffix in suffixes}
    assert in_package == expected | GENERATED


def test_symlinked_folders_are_real_files_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        stored = archive.read("edgeserve/models/__init__.py")
    assert stored == (ROOT / "models" / "__init__.py").read_bytes()


def test_installed_package_finds_its_own_library(installed: Path) -> None:
    code = (
        "import importlib.util\n"
        "from edgeserve.binding.dequantize import dequantize\n"
        "print(importlib.util.find_spec('edgeserve.binding.libedgeserve').origin)\n"
        "print(dequantize('F16', bytes([0, 60]), 1)[0])\n"
    )
    ran = run_python(installed, code)
    library = installed / "edgeserve" / "binding" / "libedgeserve.so"
    assert ran.stdout.splitlines() == [str(library), "1.0"], ran.stderr


def test_package_and_its_folders_import(installed: Path) -> None:
    ran = run_python(installed, "import edgeserve, edgeserve.models; print(edgeserve.__file__)")
    assert ran.stdout.strip() == str(installed / "edgeserve" / "__init__.py"), ran.stderr


@pytest.mark.parametrize("name", STRAY_NAMES)
def test_nothing_stray_is_importable(installed: Path, name: str) -> None:
    ran = run_python(installed, f"import {name}")
    assert f"No module named '{name}'" in ran.stderr


def test_library_exports_only_the_public_interface(installed: Path) -> None:
    library = installed / "edgeserve" / "binding" / "libedgeserve.so"
    try:
        listing = subprocess.run(
            ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        pytest.skip("nm is not installed")
    exported = {line.split()[-1] for line in listing.stdout.splitlines()}
    header = (ROOT / "native" / "include" / "edgeserve.h").read_text(encoding="utf-8")
    declared = {name for name in exported if f" {name}(" in header or f" *{name}(" in header}
    assert {"es_abi_version", "es_dequantize"} <= exported
    assert exported - declared == set()


@pytest.mark.parametrize(
    ("flags", "kept"),
    [("-O2 -march=native -mtune=native -g1", "-O2 -g1"), ("-ffast-math -mavx2", "")],
)
def test_flags_from_the_environment_do_not_reach_the_library(
    tmp_path: Path, flags: str, kept: str
) -> None:
    """The compiler is called as if only the harmless flags had been there."""
    # The environment's own cmake and ninja, where the system has none.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    cmake = shutil.which("cmake", path=path)
    if cmake is None:
        pytest.skip("cmake is not installed: scripts/check installs it")

    def configure(cflags: str) -> tuple[str, str]:
        folder = tmp_path / str(len(cflags))
        command = [cmake, "-S", str(ROOT), "-B", str(folder), "-G", "Ninja"]
        command += ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
        environment = {**os.environ, "CFLAGS": cflags, "PATH": path}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        commands = (folder / "compile_commands.json").read_text(encoding="utf-8")
        return commands.replace(str(folder), ""), done.stderr

    commands, warning = configure(flags)
    assert "-ffp-contract=off" in commands
    assert commands == configure(kept)[0]
    assert f'using "{kept}"' in warning
