"""Rows to sample, and what came of them, between Python and C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from edgeserve.binding.library import CData, NativeLibrary, check, load_library
from edgeserve.frozen import frozen
from edgeserve.types import SequenceBreakers

TOP_STRIDE = 20
"""Likeliest tokens that a sample can report."""
_SAMPLED = Struct("2d5i4x")
"""es_sampled."""


@frozen
class SampleRow:
    """es_sample_row: `fields` are members by name that stay from token to token, as the very same
    object where nothing has changed; then this token's own, and the arrays it points at."""

    fields: Mapping[str, int | float]
    token: int = 0
    seed: int = 0
    position: int = 0
    num_top: int = -1
    mu: float = 0.0
    chained: bool = False
    num_prompt: int = 0
    history: Sequence[int] = ()
    bias: Sequence[tuple[int, float]] = ()
    banned: Sequence[int] = ()
    samplers: Sequence[int] = ()
    mask: NDArray[np.uint32] | None = None
    breakers: SequenceBreakers | None = None

    @property
    def has_arrays(self) -> bool:
        return bool(
            self.history
            or self.bias
            or self.banned
            or self.samplers
            or self.mask is not None
            or self.breakers is not None
        )


@frozen
class Sampled:
    """es_sampled, with the likeliest tokens as (id, logprob)."""

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]
    finite: bool
    allowed: bool
    mu: float


def sample_logits(
    logits: NDArray[np.float32], rows: Sequence[SampleRow], *, kernels: str | None = None
) -> list[Sampled]:
    """Samples rows of logits (R, vocab) that the caller holds."""
    library = load_library()
    buffers = SampleBuffers(library)
    buffers.fill(rows)
    logits = np.ascontiguousarray(logits, np.float32)
    name = library.ffi.NULL if kernels is None else library.ffi.new("char[]", kernels.encode())
    status = library.functions.es_sample_logits(
        library.ffi.from_buffer("float[]", logits),
        logits.shape[1],
        logits.shape[1],
        buffers.rows,
        len(rows),
        name,
        buffers.sampled,
        buffers.ids,
        buffers.logprobs,
        TOP_STRIDE,
    )
    check(library, status, "sampling")
    return buffers.results()


class SampleBuffers:
    """What es_sample reads and writes, kept from step to step: of a row that goes on only what has
    changed is written again."""

    def __init__(self, library: NativeLibrary) -> None:
        self._library = library
        self._num_rows = 0
        self._filled: list[Mapping[str, int | float] | None] = []
        self._pointed: list[object] = []
        self._make_room(1)

    def fill(self, rows: Sequence[SampleRow]) -> None:
        if len(rows) > len(self._filled):
            self._make_room(2 * len(rows))
        self._num_rows = len(rows)
        self._pointed.clear()
        for at, row in enumerate(rows):
            if row.fields is not self._filled[at]:
                self.rows[at] = self._library.ffi.new("es_sample_row *", row.fields)[0]
                self._filled[at] = row.fields
            c_row = self.rows[at]
            c_row.token = row.token
            c_row.seed = row.seed
            c_row.position = row.position
            c_row.n_top = row.num_top
            c_row.mu = row.mu
            c_row.chained = row.chained
            c_row.n_prompt = row.num_prompt
            if row.has_arrays:
                self._filled[at] = None  # the next row here may have none
                self._point(c_row, row)

    def results(self) -> list[Sampled]:
        """Of the rows that were filled in last."""
        num_bytes = self._num_rows * _SAMPLED.size
        found = _SAMPLED.iter_unpack(self._library.ffi.buffer(self.sampled, num_bytes))
        return [
            Sampled(token, logprob, rank, self._top(at, n_top), finite != 0, allowed != 0, mu)
            for at, (logprob, mu, token, rank, finite, allowed, n_top) in enumerate(found)
        ]

    def _top(self, row: int, count: int) -> tuple[tuple[int, float], ...]:
        if count == 0:
            return ()
        first = row * TOP_STRIDE
        return tuple((self.ids[i], self.logprobs[i]) for i in range(first, first + count))

    def _make_room(self, size: int) -> None:
        new = self._library.ffi.new
        self.rows = new("es_sample_row[]", size)
        self.sampled = new("es_sampled[]", size)
        self.ids = new("int32_t[]", size * TOP_STRIDE)
        self.logprobs = new("double[]", size * TOP_STRIDE)
        self._filled = [None] * size

    def _point(self, c_row: CData, row: SampleRow) -> None:
        ffi = self._library.ffi

        def pointed(declaration: str, items: Sequence[object]) -> CData:
            made = ffi.new(f"{declaration}[]", list(items))
            self._pointed.append(made)
            return made

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
            self._pointed.append(mask)
            c_row.mask = ffi.from_buffer("uint32_t[]", mask)
            c_row.n_mask_words = len(mask)
        if row.breakers is not None:
            c_row.breakers = _breakers(self._library, row.breakers, self._pointed)


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
