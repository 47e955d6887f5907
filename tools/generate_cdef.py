"""Turns native/include/edgeserve.h into the binding's cffi module (ABI mode, out of line).

CMake runs it at build: `python generate_cdef.py edgeserve.h _edgeserve_cdef.py`. The module it
writes holds declarations only, no path of a library.
"""

import re
import sys
from pathlib import Path

import cffi

_KEPT = re.compile(r"#\s*define\s+\w+\s+-?\d+\s*(//.*)?$")


def cdef_of(header: str) -> str:
    """The declarations of a C header: preprocessor lines go, plain integer constants stay."""
    lines = (
        line for line in header.splitlines() if not line.startswith("#") or _KEPT.fullmatch(line)
    )
    return "\n".join(lines).replace("ES_API ", "")


def main() -> None:
    header, target = map(Path, sys.argv[1:])
    ffi = cffi.FFI()
    ffi.set_source(target.stem, None)
    ffi.cdef(cdef_of(header.read_text(encoding="utf-8")))
    ffi.emit_python_code(str(target))


if __name__ == "__main__":
    main()
