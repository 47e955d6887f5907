"""Finding, loading and checking the native library."""

from __future__ import annotations

import importlib.machinery
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from edgeserve.binding.library import NativeLibrary, check_abi, load_library
from edgeserve.errors import LibraryError

PACKAGE = Path(__file__).resolve().parents[1] / "edgeserve"


class OtherLibrary:
    """The real library, answering the loader's questions as another build of it would."""

    ES_ABI_VERSION = 1

    def __init__(self, real: NativeLibrary, version: int = 1, **layout: int) -> None:
        self._real = real
        self._version = version
        self._layout = {name.replace("__", "."): value for name, value in layout.items()}

    def es_abi_version(self) -> int:
        return self._version

    def es_layout(self, name: bytes) -> int:
        return self._layout.get(name.decode(), self._real.functions.es_layout(name))


def test_library_is_loaded_once() -> None:
    assert load_library() is load_library()


def test_same_build_is_accepted() -> None:
    library = load_library()
    check_abi(library.ffi, OtherLibrary(library))


def test_other_interface_version_is_refused_with_the_remedy() -> None:
    library = load_library()
    with pytest.raises(LibraryError, match=r"version 7 .* needs 1; reinstall it with: pip") as e:
        check_abi(library.ffi, OtherLibrary(library, version=7))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    "name", ["es_type_info", "es_type_info__name", "es_type_info__block_bytes"]
)
@pytest.mark.parametrize("value", [-1, 40])
def test_other_struct_layout_is_refused_by_name(name: str, value: int) -> None:
    library = load_library()
    with pytest.raises(LibraryError, match=name.replace("__", r"\.") + f" at {value} "):
        check_abi(library.ffi, OtherLibrary(library, **{name: value}))


def test_a_library_without_our_symbols_is_refused() -> None:
    ffi = load_library().ffi
    with pytest.raises(LibraryError, match="not edgeserve's"):
        check_abi(ffi, ffi.dlopen(None))


def test_missing_library_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", Mock(return_value=None))
    with pytest.raises(LibraryError, match="missing; reinstall it with: pip") as caught:
        load_library.__wrapped__()
    assert "\n" not in str(caught.value)


def test_damaged_library_is_one_line_with_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    damaged = tmp_path / "libedgeserve.so"
    damaged.write_bytes(b"\x7fELF")
    spec = importlib.machinery.ModuleSpec("libedgeserve", None, origin=str(damaged))
    monkeypatch.setattr("importlib.util.find_spec", Mock(return_value=spec))
    with pytest.raises(LibraryError, match=r"cannot load .*libedgeserve\.so"):
        load_library.__wrapped__()


def test_source_tree_that_was_not_built_says_so(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("*.so", "_edgeserve_cdef.py", "__pycache__", "models")
    shutil.copytree(PACKAGE, tmp_path / "edgeserve", ignore=ignore)
    site_packages = Path(np.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{site_packages}"}
    code = (
        "from edgeserve.binding.library import load_library\n"
        "from edgeserve.errors import LibraryError\n"
        "try: load_library()\n"
        "except LibraryError as error: print(error)\n"
    )
    # -S: no site hooks, so that an editable install cannot lend its library.
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stdout.count("\n") == 1, ran.stderr
    assert "a source tree that was not built" in ran.stdout


def test_every_status_has_its_own_text() -> None:
    library = load_library()
    statuses = library.ffi.typeof("es_status").elements
    texts = [library.status_text(status) for status in statuses]
    assert len(set(texts)) == len(statuses) > 5
    assert "unknown status" not in texts
    assert library.status_text(99) == "unknown status"
