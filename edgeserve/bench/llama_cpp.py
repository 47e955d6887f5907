"""llama.cpp as a contestant, through the library that llama-cpp-python brings."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeserve.bench.contestant import token_ids
from edgeserve.bench.workload import PIECE, Kind, Measure, Step
from edgeserve.errors import EdgeServeError, PeerMissingError

NAME = "llama.cpp"
_PACKAGE = "llama-cpp-python"
_CONTEXT_UNIT = 256


def load_llama_cpp() -> Any:
    """The package's module, quiet. Raises PeerMissingError where it is not installed."""
    try:
        module = importlib.import_module("llama_cpp")
    except (ImportError, OSError) as error:  # OSError: its library cannot be loaded
        raise PeerMissingError(NAME, _PACKAGE, str(error)) from error
    module.llama_log_set(_SILENT, ctypes.c_void_p(0))
    module.llama_backend_init()
    return module


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def _SILENT(_level: int, _text: bytes, _data: object) -> None:
    """Takes llama.cpp's log, and drops it."""


class LlamaCpp:
    """Flash attention on; a context of its own for each number of sequences, of the size needed.

    `repack` lets it rearrange weights at load, which makes some faster and others slower.
    """

    def __init__(
        self,
        module: Any,
        path: Path,
        measures: Sequence[Measure],
        num_threads: int,
        *,
        repack: bool,
    ) -> None:
        self.name = f"{NAME} ({'repacked' if repack else 'as in the file'})"
        self._module = module
        self._measures = measures
        self._num_threads = num_threads
        params = module.llama_model_default_params()
        params.use_extra_bufts = repack
        params.use_mmap = not repack
        self._model = module.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise EdgeServeError(f"{NAME} cannot load {path}: leave out --against {NAME}")
        self._vocab_size = module.llama_vocab_n_tokens(module.llama_model_get_vocab(self._model))
        self._context: Any = None
        self._num_sequences = 0
        self._filled = 0
        self._prepared: Measure | None = None
        self._batches: list[Any] = []

    def prepare(self, measure: Measure) -> None:
        if measure.num_sequences != self._num_sequences:
            self._open_context(measure.num_sequences)
        memory = self._module.llama_get_memory(self._context)
        self._module.llama_memory_seq_rm(memory, 0, min(self._filled, measure.depth), -1)
        self._filled = min(self._filled, measure.depth)
        if self._filled < measure.depth:
            rest = Measure(Kind.PREFILL, measure.depth - self._filled, self._filled)
            self._decode([self._batch(step) for step in rest.steps()])
            self._filled = measure.depth
        for sequence in range(1, measure.num_sequences):
            self._module.llama_memory_seq_rm(memory, sequence, -1, -1)
            if measure.depth:
                self._module.llama_memory_seq_cp(memory, 0, sequence, -1, -1)
        if self._prepared != measure:
            self._free_batches()
            self._batches = [self._batch(step) for step in measure.steps()]
            self._prepared = measure

    def run(self, measure: Measure) -> None:
        assert measure == self._prepared
        self._decode(self._batches)
        self._filled = measure.end

    def close(self) -> None:
        self._free_batches()
        self._close_context()
        if self._model is not None:
            self._module.llama_model_free(self._model)
            self._model = None

    def _open_context(self, num_sequences: int) -> None:
        self._close_context()
        longest = max(m.end for m in self._measures if m.num_sequences == num_sequences)
        each = -(-longest // _CONTEXT_UNIT) * _CONTEXT_UNIT
        params = self._module.llama_context_default_params()
        params.n_ctx = each * num_sequences
        params.n_seq_max = num_sequences
        params.n_batch = params.n_ubatch = PIECE
        params.n_threads = params.n_threads_batch = self._num_threads
        params.flash_attn_type = self._module.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self._context = self._module.llama_init_from_model(self._model, params)
        if not self._context:
            raise EdgeServeError(
                f"{NAME} makes no context of {params.n_ctx} tokens: lower --depths or --sequences"
            )
        self._num_sequences = num_sequences
        self._filled = 0

    def _close_context(self) -> None:
        if self._context is not None:
            self._module.llama_free(self._context)
            self._context = None

    def _batch(self, step: Step) -> Any:
        count = step.num_rows * step.num_sequences
        batch = self._module.llama_batch_init(count, 0, 1)
        ids = token_ids(step.first, step.num_rows, self._vocab_size)
        batch.n_tokens = count
        for row in range(count):
            sequence, at = divmod(row, step.num_rows)
            batch.token[row] = ids[at]
            batch.pos[row] = step.first + at
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = sequence
            batch.logits[row] = int(at >= step.num_rows - step.num_logits_rows)
        return batch

    def _free_batches(self) -> None:
        for batch in self._batches:
            self._module.llama_batch_free(batch)
        self._batches = []

    def _decode(self, batches: Sequence[Any]) -> None:
        for batch in batches:
            failed = self._module.llama_decode(self._context, batch)
            if failed:
                raise EdgeServeError(
                    f"{NAME} failed at a step of {batch.n_tokens} tokens ({failed})"
                )
        self._module.llama_synchronize(self._context)
