"""This machine's limits, as the native library measures them: reading memory, multiplying int8."""

from __future__ import annotations

from edgeserve.binding.library import CData, check, load_library

_MEMORY_BYTES = 256 << 20  # beyond what caches hold


class NativeMeter:
    """es_meter. Its memory is taken once, so that measuring again costs a pass over it."""

    def __init__(
        self, *, num_threads: int, kernels: str | None, num_bytes: int = _MEMORY_BYTES
    ) -> None:
        self._library = load_library()
        ffi = self._library.ffi
        out = ffi.new("es_meter **")
        name = ffi.NULL if kernels is None else ffi.new("char[]", kernels.encode())
        status = self._library.functions.es_meter_create(name, num_threads, num_bytes, out)
        check(self._library, status, "measuring this machine")
        self._handle: CData = out[0]

    def read_bytes_per_s(self) -> float:
        """Of one pass over memory, on all threads."""
        return float(self._library.functions.es_meter_read(self._handle))

    def int8_per_s(self) -> float:
        """int8 operations, of which a product and its sum are two, on all threads."""
        return float(self._library.functions.es_meter_int8(self._handle))

    def close(self) -> None:
        if self._handle is not None:
            self._library.functions.es_meter_free(self._handle)
            self._handle = None
