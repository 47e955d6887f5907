"""Writes native/runtime/layout.h: the size of every public struct and the offset of every field.

The C compiler fills in the numbers, cffi computes its own from the same header, and the binding
compares them when it loads the library. After a change to native/include/edgeserve.h:
    python tools/generate_layout.py
"""

from pathlib import Path

import cffi
from generate_cdef import cdef_of

_NATIVE = Path(__file__).resolve().parents[1] / "native"
_HEAD = """\
// Generated from edgeserve.h by tools/generate_layout.py; tests/test_native.py says when it is old.
// clang-format off
#ifndef ES_RUNTIME_LAYOUT_H
#define ES_RUNTIME_LAYOUT_H

#include "edgeserve.h"

typedef struct {
    const char *name;
    int64_t value;
} layout_entry;

static const layout_entry layout[] = {
"""
_TAIL = """\
};

#endif
"""


def layout_of(header: str) -> str:
    """The C file for a header's structs; opaque ones have no layout to share."""
    ffi = cffi.FFI()
    ffi.cdef(cdef_of(header))
    lines: list[str] = []
    for struct in ffi.list_types()[0]:
        c_type = ffi.typeof(struct)
        if c_type.kind != "struct" or c_type.fields is None:
            continue
        lines.append(f'    {{"{struct}", (int64_t)sizeof({struct})}},\n')
        for field, _ in c_type.fields:
            name = f"{struct}.{field}"
            lines.append(f'    {{"{name}", (int64_t)offsetof({struct}, {field})}},\n')
    return _HEAD + "".join(lines) + _TAIL


def main() -> None:
    header = (_NATIVE / "include" / "edgeserve.h").read_text(encoding="utf-8")
    (_NATIVE / "runtime" / "layout.h").write_text(layout_of(header), encoding="utf-8")


if __name__ == "__main__":
    main()
