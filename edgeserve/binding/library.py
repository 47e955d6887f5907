"""Finds, loads and checks the native library. What its functions do is its callers' business."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol, cast

from edgeserve.errors import AbortedError, LibraryError, OutOfMemoryError
from edgeserve.frozen import frozen

_LIBRARY = "edgeserve.binding.libedgeserve"
_CDEF = "edgeserve.binding._edgeserve_cdef"
_REMEDY = (
    "reinstall it with: pip install --force-reinstall edgeserve-llm (or, in a clone: pip install .)"
)

CData = Any
"""A C value as cffi hands it out: a pointer, a struct or an array. cffi ships no types for it."""


class FFI(Protocol):
    """The part of cffi's generated FFI object that edgeserve uses."""

    error: type[Exception]

    def dlopen(self, name: str | None) -> Any: ...

    NULL: CData

    def new(self, cdecl: str, init: object = None) -> CData: ...
    def buffer(self, cdata: CData, size: int) -> memoryview: ...
    def cast(self, cdecl: str, value: object) -> CData: ...
    def string(self, cdata: CData) -> bytes: ...
    def from_buffer(
        self, cdecl: str, python_buffer: object, require_writable: bool = False
    ) -> CData: ...
    def list_types(self) -> tuple[list[str], list[str], list[str]]: ...
    def typeof(self, cdecl: str) -> Any: ...
    def sizeof(self, cdecl: str) -> int: ...
    def offsetof(self, cdecl: str, field: str) -> int: ...


class NativeFunctions(Protocol):
    """native/include/edgeserve.h, as Python calls it."""

    ES_ABI_VERSION: int
    ES_OK: int
    ES_ERR_MEMORY: int
    ES_ERR_ABORTED: int

    def es_abi_version(self) -> int: ...
    def es_layout(self, name: bytes) -> int: ...
    def es_status_text(self, status: int) -> CData: ...
    def es_type_count(self) -> int: ...
    def es_type_at(self, index: int, out: CData) -> int: ...
    def es_dequantize(
        self, type: int, src: CData, src_bytes: int, n_elements: int, dst: CData
    ) -> int: ...
    def es_weight_create(self, type: int, n_rows: int, n_cols: int, out: CData) -> int: ...
    def es_weight_fill(
        self, weight: CData, first_row: int, n_rows: int, src: CData, src_bytes: int
    ) -> int: ...
    def es_weights_load(
        self, places: CData, n_places: int, n_threads: int, cancelled: CData, fault: CData
    ) -> int: ...
    def es_weight_bytes(self, weight: CData) -> int: ...
    def es_weight_free(self, weight: CData) -> None: ...
    def es_executor_create(
        self, plan: CData, n_threads: int, kernels: CData, n_blocks: int, out: CData
    ) -> int: ...
    def es_executor_free(self, executor: CData) -> None: ...
    def es_executor_kernels(self, executor: CData) -> CData: ...
    def es_step(self, executor: CData, batch: CData) -> int: ...
    def es_profile(self, executor: CData, nanoseconds: CData, n: int) -> int: ...
    def es_abort(self, executor: CData, raised: int) -> None: ...
    def es_logits(self, executor: CData, out: CData, n_rows: CData, stride: CData) -> int: ...
    def es_hidden(self, executor: CData, out: CData, n_rows: CData, stride: CData) -> int: ...
    def es_block_bytes(self, executor: CData, cache_group: int) -> int: ...
    def es_blocks_grow(self, executor: CData, n_blocks: int) -> int: ...
    def es_blocks_copy(
        self, executor: CData, cache_group: int, pairs: CData, n_pairs: int
    ) -> int: ...
    def es_blocks_read(
        self, executor: CData, cache_group: int, ids: CData, n_ids: int, bytes: CData
    ) -> int: ...
    def es_blocks_write(
        self, executor: CData, cache_group: int, ids: CData, n_ids: int, bytes: CData
    ) -> int: ...
    def es_sample(
        self,
        executor: CData,
        rows: CData,
        n_rows: int,
        out: CData,
        top_ids: CData,
        top_logprobs: CData,
        top_stride: int,
    ) -> int: ...
    def es_sample_logits(
        self,
        logits: CData,
        stride: int,
        vocab_size: int,
        rows: CData,
        n_rows: int,
        kernels: CData,
        out: CData,
        top_ids: CData,
        top_logprobs: CData,
        top_stride: int,
    ) -> int: ...
    def es_n_cores(self) -> int: ...
    def es_kernel_set(self, index: int, runs: CData) -> CData: ...
    def es_meter_create(self, kernels: CData, n_threads: int, n_bytes: int, out: CData) -> int: ...
    def es_meter_free(self, meter: CData) -> None: ...
    def es_meter_read(self, meter: CData) -> float: ...
    def es_meter_int8(self, meter: CData) -> float: ...


@frozen
class QuantType:
    """A quant type that the library can widen. Plain floats are blocks of one element."""

    name: str
    number: int
    block_elements: int
    block_bytes: int


@frozen
class NativeLibrary:
    """The loaded library, the cffi object that makes its arguments, and its quant types by name."""

    path: str
    ffi: FFI
    functions: NativeFunctions
    quant_types: Mapping[str, QuantType]

    def status_text(self, status: int) -> str:
        return self.ffi.string(self.functions.es_status_text(status)).decode()


@cache
def load_library() -> NativeLibrary:
    """The native library, loaded and checked once per process. Raises LibraryError."""
    ffi = _load_declarations()
    path = _find_library()
    try:
        functions = cast(NativeFunctions, ffi.dlopen(path))
    except OSError as error:
        raise LibraryError(f"cannot load {path}: {error}; {_REMEDY}") from error
    check_abi(ffi, functions)
    return NativeLibrary(path, ffi, functions, _read_quant_types(ffi, functions))


def native_num_cores() -> int:
    """es_n_cores."""
    return int(load_library().functions.es_n_cores())


def check(library: NativeLibrary, status: int, what: str) -> None:
    """Raises the error that `status` stands for."""
    functions = library.functions
    if status == functions.ES_OK:
        return
    if status == functions.ES_ERR_MEMORY:
        raise OutOfMemoryError(what)
    if status == functions.ES_ERR_ABORTED:
        raise AbortedError(what)
    raise LibraryError(f"{what}: {library.status_text(status)}")


def check_abi(ffi: FFI, functions: NativeFunctions) -> None:
    """Raises LibraryError unless version and struct layouts are those of our declarations."""
    try:
        version = functions.es_abi_version()
    except ffi.error as error:
        raise LibraryError(f"the native library is not edgeserve's: {error}; {_REMEDY}") from error
    if version != functions.ES_ABI_VERSION:
        raise LibraryError(
            f"the native library has interface version {version} and this package needs "
            f"{functions.ES_ABI_VERSION}; {_REMEDY}"
        )
    for name, expected in _expected_layout(ffi).items():
        actual = functions.es_layout(name.encode())
        if actual != expected:
            raise LibraryError(
                f"the native library lays out {name} at {actual} and this package at {expected}; "
                f"{_REMEDY}"
            )


def _expected_layout(ffi: FFI) -> dict[str, int]:
    """Sizes of our structs and offsets of their fields, as cffi computed them."""
    layout: dict[str, int] = {}
    typedefs, _, _ = ffi.list_types()
    for struct in typedefs:
        c_type = ffi.typeof(struct)
        if c_type.kind != "struct":
            continue
        try:
            # Asked before the fields: cffi 2.1 aborts on those of an opaque struct.
            layout[struct] = ffi.sizeof(struct)
        except ffi.error:
            continue  # opaque: its layout is the library's own business
        for field, _ in c_type.fields:
            layout[f"{struct}.{field}"] = ffi.offsetof(struct, field)
    return layout


def _load_declarations() -> FFI:
    try:
        return cast(FFI, importlib.import_module(_CDEF).ffi)
    except ModuleNotFoundError as error:
        raise LibraryError(
            f"the native library's declarations are missing ({error}): this looks like a source "
            f"tree that was not built; {_REMEDY}"
        ) from error


def _find_library() -> str:
    # Asking the import system finds it in a wheel and in an editable install, where the library
    # lies in site-packages and this file does not.
    spec = importlib.util.find_spec(_LIBRARY)
    if spec is None or spec.origin is None:
        raise LibraryError(f"the native library is missing; {_REMEDY}")
    return spec.origin


def _read_quant_types(ffi: FFI, functions: NativeFunctions) -> dict[str, QuantType]:
    info = ffi.new("es_type_info *")
    quant_types: dict[str, QuantType] = {}
    for index in range(functions.es_type_count()):
        functions.es_type_at(index, info)
        name = ffi.string(info.name).decode()
        quant_types[name] = QuantType(name, info.type, info.block_elements, info.block_bytes)
    return quant_types
