"""Weights in the core's layout: memory for them, and filling it from bytes or from files."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from edgeserve.binding.library import CData, check, load_library
from edgeserve.frozen import frozen


class NativeWeight:
    """A weight matrix in the core's layout. Fill every row before it is used."""

    def __init__(self, quant_type: str, num_rows: int, num_cols: int) -> None:
        self._library = load_library()
        number = self._library.quant_types[quant_type].number
        out = self._library.ffi.new("es_weight **")
        status = self._library.functions.es_weight_create(number, num_rows, num_cols, out)
        check(self._library, status, f"a weight of {num_rows} x {num_cols} {quant_type}")
        self.handle: CData = out[0]
        self.num_bytes = int(self._library.functions.es_weight_bytes(self.handle))
        self.quant_type, self.num_rows, self.num_cols = quant_type, num_rows, num_cols

    def fill(self, first_row: int, num_rows: int, data: memoryview) -> None:
        """Rows as the file holds them. From several threads at once is fine; releases the GIL."""
        source = self._library.ffi.from_buffer("uint8_t[]", data)
        status = self._library.functions.es_weight_fill(
            self.handle, first_row, num_rows, source, data.nbytes
        )
        check(self._library, status, "filling a weight")

    def close(self) -> None:
        if self.handle is not None:
            self._library.functions.es_weight_free(self.handle)
            self.handle = None


@frozen
class WeightRows:
    """A weight, and the tensor whose rows it takes, from `first_row` on."""

    weight: NativeWeight
    tensor: str
    first_row: int


@frozen
class WeightPlace:
    """Where a weight's rows begin in an open file."""

    weight: NativeWeight
    descriptor: int
    offset: int


@frozen
class LoadFault:
    """Number `place` ended or could not be read at `offset`; `error_number` 0: the file ended."""

    place: int
    offset: int
    error_number: int


def load_weights(
    places: Sequence[WeightPlace], num_threads: int, cancelled: array[int]
) -> LoadFault | None:
    """Reads and repacks weights on `num_threads` threads; releases the GIL. None when all is well.

    Raises AbortedError once `cancelled[0]`, an int32 that another thread may set, is not 0.
    """
    library = load_library()
    c_places = library.ffi.new("es_weight_place[]", max(1, len(places)))
    for c_place, place in zip(c_places, places, strict=False):
        c_place.weight, c_place.file = place.weight.handle, place.descriptor
        c_place.offset = place.offset
    fault = library.ffi.new("es_load_fault *")
    flag = library.ffi.from_buffer("int32_t[]", cancelled)
    status = library.functions.es_weights_load(c_places, len(places), num_threads, flag, fault)
    if fault.place >= 0:
        return LoadFault(fault.place, fault.offset, fault.error)
    check(library, status, "loading weights")
    return None
