"""The native executor behind Python objects: plan arrays and steps.

Owns every C object it makes, and the memory those point at. Checks nothing that C checks again;
a status that is not ok becomes a typed error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from edgeserve.binding.library import CData, check, load_library
from edgeserve.binding.samples import TOP_STRIDE, SampleBuffers, Sampled, SampleRow
from edgeserve.binding.weights import NativeWeight
from edgeserve.errors import ClosedError, LibraryError
from edgeserve.frozen import frozen

Fields = Mapping[str, int | float]
"""A C struct's members by name; the rest are -1 for indices, see `_filled`."""

_ROW_EMBED = 0


def kernel_sets() -> list[tuple[str, bool]]:
    """Every kernel set by name, best first, and whether it runs here."""
    library = load_library()
    runs = library.ffi.new("int32_t *")
    found: list[tuple[str, bool]] = []
    while (name := library.functions.es_kernel_set(len(found), runs)) != library.ffi.NULL:
        found.append((library.ffi.string(name).decode(), bool(runs[0])))
    return found


@frozen
class PlanArrays:
    """A lowered plan as C has it: rows of struct members; see native/include/edgeserve.h."""

    slot_widths: Sequence[int]
    regions: Sequence[Fields]
    row_ops: Sequence[Fields]
    linears: Sequence[Fields]
    attentions: Sequence[Fields]
    caches: Sequence[Fields]
    vectors: Sequence[NDArray[np.float32]]
    ropes: Sequence[tuple[NDArray[np.float64], bool, float]]
    weights: Sequence[NativeWeight]
    num_cache_groups: int
    logits: int
    hidden: int
    vocab_size: int
    max_rows: int
    max_position: int

    @property
    def embedding_width(self) -> int:
        """Of a batch's embeddings: of the widest slot that takes them."""
        outs = {int(op["out"]) for op in self.row_ops if op["kind"] == _ROW_EMBED}
        widths = [width for slot, width in enumerate(self.slot_widths) if slot in outs]
        return max(widths, default=0)


class NativeExecutor:
    """es_executor. One call at a time, and `close` waits for it; `abort` waits for no call.

    Raises ClosedError after `close`.
    """

    def __init__(
        self, plan: PlanArrays, *, num_threads: int, num_blocks: int, kernels: str | None
    ) -> None:
        self._library = load_library()
        self._ffi = self._library.ffi
        self._functions = self._library.functions
        self._num_cache_groups = plan.num_cache_groups
        self._vocab_size = plan.vocab_size
        self._hidden_width = plan.slot_widths[plan.hidden]
        self._embedding_width = plan.embedding_width
        self._calling, self._freeing = Lock(), Lock()
        keep: list[object] = []
        c_plan = self._c_plan(plan, keep)
        out = self._ffi.new("es_executor **")
        name = self._ffi.NULL if kernels is None else self._ffi.new("char[]", kernels.encode())
        status = self._functions.es_executor_create(c_plan, num_threads, name, num_blocks, out)
        check(self._library, status, f"the executor (kernels: {kernels or 'best'})")
        self._handle: CData = out[0]
        self._batch = self._ffi.new("es_batch *")
        self._samples = SampleBuffers(self._library)
        self.kernels = self._ffi.string(self._functions.es_executor_kernels(out[0])).decode()
        """The kernel set that runs."""

    def step(
        self,
        token_ids: NDArray[np.int32],
        positions: NDArray[np.int32],
        first_row: NDArray[np.int32],
        num_logits_rows: NDArray[np.int32],
        num_hidden_rows: NDArray[np.int32],
        block_tables: NDArray[np.int32],
        embeddings: NDArray[np.float32] | None,
    ) -> None:
        """One forward pass over a batch's arrays, which are C-contiguous: runner/batch.py.

        Raises AbortedError, or LibraryError for ids and blocks that do not exist, and for arrays
        whose sizes do not go together.
        """
        rows, groups, stride = len(token_ids), len(num_logits_rows), block_tables.shape[-1]
        int32s = {
            "token_ids": (token_ids, (rows,)),
            "positions": (positions, (rows,)),
            "first_row": (first_row, (groups + 1,)),
            "n_logits_rows": (num_logits_rows, (groups,)),
            "n_hidden_rows": (num_hidden_rows, (groups,)),
            "block_tables": (block_tables, (self._num_cache_groups, groups, stride)),
        }
        with self._calling:
            batch = self._batch
            for name, (array, shape) in int32s.items():
                _require(name, array, np.int32, shape)
                setattr(batch, name, self._ffi.from_buffer("int32_t[]", array))
            batch.embeddings = self._ffi.NULL
            if embeddings is not None:
                _require("embeddings", embeddings, np.float32, (rows, self._embedding_width))
                batch.embeddings = self._ffi.from_buffer("float[]", embeddings)
            batch.n_rows, batch.n_groups, batch.table_stride = rows, groups, stride
            check(self._library, self._functions.es_step(self._opened, batch), "a step")

    def profile_into(self, nanoseconds: NDArray[np.uint64] | None) -> None:
        """From the next step on, adds each region's time, and last what comes before them."""
        null = nanoseconds is None
        into = self._ffi.NULL if null else self._ffi.from_buffer("uint64_t[]", nanoseconds, True)
        with self._calling:
            status = self._functions.es_profile(self._opened, into, 0 if null else len(nanoseconds))
            check(self._library, status, "profiling")
            self._profile = nanoseconds  # C writes to it

    def abort(self, raised: bool) -> None:
        """Makes the running step, and those after it, end early; or no longer. Never waits."""
        with self._freeing:
            if self._handle is not None:
                self._functions.es_abort(self._handle, int(raised))

    def logits(self) -> NDArray[np.float32]:
        """A copy of the last step's logits, (R, vocab)."""
        return self._copied(self._functions.es_logits, self._vocab_size, "reading logits")

    def hidden(self) -> NDArray[np.float32]:
        """A copy of the last step's hidden states, (H, width)."""
        return self._copied(self._functions.es_hidden, self._hidden_width, "reading hidden states")

    def sample(self, rows: Sequence[SampleRow]) -> list[Sampled]:
        """One result for each row of the last step's logits."""
        with self._calling:
            made = self._samples
            made.fill(rows)
            status = self._functions.es_sample(
                self._opened,
                made.rows,
                len(rows),
                made.sampled,
                made.ids,
                made.logprobs,
                TOP_STRIDE,
            )
            check(self._library, status, "sampling")
            return made.results()

    def block_bytes(self, cache_group: int) -> int:
        with self._calling:
            return int(self._functions.es_block_bytes(self._opened, cache_group))

    def copy_blocks(self, cache_group: int, pairs: Sequence[tuple[int, int]]) -> None:
        flat = self._ffi.new("int32_t[]", [block for pair in pairs for block in pair] or [0])
        with self._calling:
            status = self._functions.es_blocks_copy(self._opened, cache_group, flat, len(pairs))
        check(self._library, status, "copying KV blocks")

    def read_blocks(self, cache_group: int, block_ids: Sequence[int]) -> bytes:
        num_bytes = self.block_bytes(cache_group) * len(block_ids)
        data = bytearray(max(1, num_bytes))
        ids = self._ffi.new("int32_t[]", list(block_ids) or [0])
        into = self._ffi.from_buffer("uint8_t[]", data, require_writable=True)
        with self._calling:
            status = self._functions.es_blocks_read(
                self._opened, cache_group, ids, len(block_ids), into
            )
        check(self._library, status, "reading KV blocks")
        return bytes(data[:num_bytes])

    def write_blocks(self, cache_group: int, block_ids: Sequence[int], data: bytes) -> None:
        expected = self.block_bytes(cache_group) * len(block_ids)
        if len(data) != expected:
            raise LibraryError(f"{len(data)} bytes for {expected} of KV blocks")
        ids = self._ffi.new("int32_t[]", list(block_ids) or [0])
        source = self._ffi.from_buffer("uint8_t[]", data)
        with self._calling:
            status = self._functions.es_blocks_write(
                self._opened, cache_group, ids, len(block_ids), source
            )
        check(self._library, status, "writing KV blocks")

    def grow(self, num_blocks: int) -> None:
        with self._calling:
            status = self._functions.es_blocks_grow(self._opened, num_blocks)
        check(self._library, status, f"a KV pool of {num_blocks} blocks")

    def close(self) -> None:
        """Ends a step that another thread is in, and frees everything. Twice is fine."""
        self.abort(True)
        with self._calling, self._freeing:
            if self._handle is not None:
                self._functions.es_executor_free(self._handle)
                self._handle = None

    def _copied(
        self, read: Callable[[CData, CData, CData, CData], int], width: int, what: str
    ) -> NDArray[np.float32]:
        """Rows that C holds until the next step."""
        data = self._ffi.new("const float **")
        num_rows, stride = self._ffi.new("int32_t *"), self._ffi.new("int64_t *")
        with self._calling:
            check(self._library, read(self._opened, data, num_rows, stride), what)
            count = num_rows[0] * stride[0]
            flat = np.frombuffer(self._ffi.buffer(data[0], count * 4), np.float32)
            return flat.reshape(num_rows[0], stride[0])[:, :width].copy()

    @property
    def _opened(self) -> CData:
        if self._handle is None:
            raise ClosedError
        return self._handle

    def _c_plan(self, plan: PlanArrays, keep: list[object]) -> CData:
        """The es_plan; `keep` holds what it points at until C has copied it."""
        c_plan = self._ffi.new("es_plan *")
        keep.append(c_plan)

        def array(declaration: str, items: Sequence[object]) -> CData:
            made = self._ffi.new(f"{declaration}[]", list(items) or 1)
            keep.append(made)
            return made

        c_plan.slot_widths = array("int32_t", plan.slot_widths)
        c_plan.regions = array("es_region", plan.regions)
        c_plan.row_ops = array("es_row_op", plan.row_ops)
        c_plan.linears = array("es_linear", plan.linears)
        c_plan.attentions = array("es_attention", plan.attentions)
        c_plan.caches = array("es_cache", plan.caches)
        c_plan.weights = array("es_weight *", [weight.handle for weight in plan.weights])
        vectors = [
            {"data": self._ffi.from_buffer("float[]", vector), "length": len(vector)}
            for vector in plan.vectors
        ]
        c_plan.vectors = array("es_vector", vectors)
        ropes = [
            {
                "frequencies": self._ffi.from_buffer("double[]", frequencies),
                "n_pairs": len(frequencies),
                "interleaved": int(interleaved),
                "magnitude": magnitude,
            }
            for frequencies, interleaved, magnitude in plan.ropes
        ]
        c_plan.ropes = array("es_rope", ropes)
        for kind in ("regions", "row_ops", "linears", "attentions", "vectors", "ropes", "caches"):
            setattr(c_plan, f"n_{kind}", len(getattr(plan, kind)))
        c_plan.n_weights = len(plan.weights)
        c_plan.n_slots = len(plan.slot_widths)
        c_plan.n_cache_groups = plan.num_cache_groups
        c_plan.logits = plan.logits
        c_plan.hidden = plan.hidden
        c_plan.vocab_size = plan.vocab_size
        c_plan.max_rows = plan.max_rows
        c_plan.max_position = plan.max_position
        return c_plan


def _require(
    name: str, array: NDArray[np.generic], dtype: type[np.generic], shape: tuple[int, ...]
) -> None:
    """What C cannot see: whether an array is as long as it will be read."""
    if array.dtype != dtype or array.shape != shape:
        raise LibraryError(
            f"a step: {name} is {array.dtype} {array.shape}, and must be {dtype.__name__} {shape}"
        )
