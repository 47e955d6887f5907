"""Rows to sample, and what came of them, between Python and C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeserve.binding.library import CData, NativeLibrary, check, load_library
from edgeserve.frozen import frozen
from edgeserve.types import SequenceBreakers

TOP_STRIDE = 20
"""Likeliest tokens that a sample can report."""


@frozen
class SampleRow:
    """es_sample_row: members by name, and the arrays it points at."""

    fields: Mapping[str, int | float]
    history: Sequence[int] = ()
    bias: Sequence[tuple[int, float]] = ()
    banned: Sequence[int] = ()
    samplers: Sequence[int] = ()
    mask: NDArray[np.uint32] | None = None
    breakers: SequenceBreakers | None = None


@frozen
class Sampled:
    """es_sampled, with the likeliest tokens as (id, logprob)."""

    token: int
    logprob: float
    rank: int
    finite: bool
    allowed: bool
    mu: float
    top: tuple[tuple[int, float], ...]


def sample_logits(
    logits: NDArray[np.float32], rows: Sequence[SampleRow], *, kernels: str | None = None
) -> list[Sampled]:
    """Samples rows of logits (R, vocab) that the caller holds."""
    library = load_library()
    keep: list[object] = []
    c_rows = sample_rows(library, rows, keep)
    out = SampleOutput(library, len(rows))
    logits = np.ascontiguousarray(logits, np.float32)
    name = library.ffi.NULL if kernels is None else library.ffi.new("char[]", kernels.encode())
    status = library.functions.es_sample_logits(
        library.ffi.from_buffer("float[]", logits),
        logits.shape[1],
        logits.shape[1],
        c_rows,
        len(rows),
        name,
        out.sampled,
        out.ids,
        out.logprobs,
        TOP_STRIDE,
    )
    check(library, status, "sampling")
    return out.results()


def sample_rows(library: NativeLibrary, rows: Sequence[SampleRow], keep: list[object]) -> CData:
    """es_sample_row[]; `keep` holds the arrays that the rows point at."""
    c_rows = library.ffi.new("es_sample_row[]", [row.fields for row in rows] or 1)
    keep.append(c_rows)

    def pointed(declaration: str, items: Sequence[object]) -> CData:
        made = library.ffi.new(f"{declaration}[]", list(items))
        keep.append(made)
        return made

    for c_row, row in zip(c_rows, rows, strict=False):
        if row.history:
            c_row.history = pointed("int32_t", row.history)
            c_row.n_history = len(row.history)
        if row.bias:
            c_row.bias_ids = pointed("int32_t", [token_id for token_id, _ in row.bias])
            c_row.bias_values = pointed("double", [bias for _, bias in row.bias])
            c_row.n_bias = len(row.bias)
        if row.banned:
            c_row.banned = pointed("int32_t", row.banned)
            c_row.n_banned = len(row.banned)
        if row.samplers:
            c_row.samplers = pointed("int32_t", row.samplers)
            c_row.n_samplers = len(row.samplers)
        if row.mask is not None:
            mask = np.ascontiguousarray(row.mask, np.uint32)
            keep.append(mask)
            c_row.mask = library.ffi.from_buffer("uint32_t[]", mask)
            c_row.n_mask_words = len(mask)
        if row.breakers is not None:
            c_row.breakers = _breakers(library, row.breakers, keep)
    return c_rows


def _breakers(library: NativeLibrary, breakers: SequenceBreakers, keep: list[object]) -> CData:
    """es_breakers, over the value's own bytes."""
    found = library.ffi.new("es_breakers *")
    found.alone = library.ffi.from_buffer("uint32_t[]", breakers.alone)
    found.heads = library.ffi.from_buffer("int32_t[]", breakers.heads)
    found.ends = library.ffi.from_buffer("int32_t[]", breakers.ends)
    found.tails = library.ffi.from_buffer("int32_t[]", breakers.tails)
    found.n_words, found.n_sequences = len(breakers.alone) // 4, len(breakers.heads) // 4
    found.n_tails = len(breakers.tails) // 4
    keep += [breakers, found]
    return found


class SampleOutput:
    """Room for the results of `num_rows` rows."""

    def __init__(self, library: NativeLibrary, num_rows: int) -> None:
        self._num_rows = num_rows
        size = max(1, num_rows)
        self.sampled = library.ffi.new("es_sampled[]", size)
        self.ids = library.ffi.new("int32_t[]", size * TOP_STRIDE)
        self.logprobs = library.ffi.new("double[]", size * TOP_STRIDE)

    def results(self) -> list[Sampled]:
        return [self._result(row) for row in range(self._num_rows)]

    def _result(self, row: int) -> Sampled:
        found = self.sampled[row]
        first = row * TOP_STRIDE
        end = first + found.n_top
        top = tuple((self.ids[i], self.logprobs[i]) for i in range(first, end))
        return Sampled(
            found.token,
            found.logprob,
            found.rank,
            bool(found.is_finite),
            bool(found.is_allowed),
            found.mu,
            top,
        )
