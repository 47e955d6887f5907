"""The reference's samplers, one after another, on logits and on the tokens before them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeserve.types import ResolvedSampling

_ENTRY = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class ReferenceSamplers:
    """llama.cpp's samplers with the knobs of `sampling`, in its order. XTC's coin must be sure."""

    def __init__(
        self,
        llama_cpp: ModuleType,
        sampling: ResolvedSampling,
        vocab: object = None,
        breakers: Sequence[str] = (),
    ) -> None:
        self._llama_cpp = llama_cpp
        self._vocab = vocab
        self._breakers = [text.encode() for text in breakers]
        self._samplers = [self._make(name, sampling) for name in sampling.samplers]

    def close(self) -> None:
        for sampler in self._samplers:
            self._llama_cpp.llama_sampler_free(sampler)

    def accept(self, tokens: Sequence[int]) -> None:
        for sampler in self._samplers:
            for token_id in tokens:
                self._llama_cpp.llama_sampler_accept(sampler, token_id)

    def apply(
        self, logits: NDArray[np.float32]
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], int]:
        """The tokens that are left, their logits, and the one that mirostat chose, or -1."""
        c = self._llama_cpp
        entries = np.zeros(len(logits), _ENTRY)
        entries["id"], entries["logit"] = np.arange(len(logits)), logits
        data = entries.ctypes.data_as(ctypes.POINTER(c.llama_token_data))
        array = c.llama_token_data_array(data, len(logits), -1, False)
        for sampler in self._samplers:
            c.llama_sampler_apply(sampler, ctypes.byref(array))
        # XTC drops tokens by moving the array's beginning.
        first = (ctypes.addressof(array.data.contents) - entries.ctypes.data) // _ENTRY.itemsize
        left = entries[first : first + array.size]
        chosen = int(left["id"][array.selected]) if array.selected >= 0 else -1
        left = left[left["logit"] > -np.inf]
        return left["id"].copy(), left["logit"].copy(), chosen

    def _make(self, name: str, s: ResolvedSampling) -> Any:
        c = self._llama_cpp
        match name:
            case "penalties":
                penalties = s.repetition_penalty, s.frequency_penalty, s.presence_penalty
                return c.llama_sampler_init_penalties(10**6, s.penalty_window, *penalties)
            case "dry":
                texts = (ctypes.c_char_p * len(self._breakers))(*self._breakers)
                knobs = s.dry_multiplier, s.dry_base, s.dry_allowed_length, s.dry_window
                return c.llama_sampler_init_dry(self._vocab, *knobs, texts, len(texts))
            case "top_n_sigma":
                return c.llama_sampler_init_top_n_sigma(s.top_n_sigma)
            case "top_k":
                return c.llama_sampler_init_top_k(s.top_k)
            case "typical_p":
                return c.llama_sampler_init_typical(s.typical_p, s.min_keep)
            case "top_p":
                return c.llama_sampler_init_top_p(s.top_p, s.min_keep)
            case "min_p":
                return c.llama_sampler_init_min_p(s.min_p, s.min_keep)
            case "xtc":
                assert s.xtc_probability == 1.0
                return c.llama_sampler_init_xtc(1.0, s.xtc_threshold, s.min_keep, 1)
            case "temperature":
                heat = s.temperature, s.dynatemp_range, s.dynatemp_exponent
                return c.llama_sampler_init_temp_ext(*heat)
            case _:
                return c.llama_sampler_init_mirostat_v2(1, s.mirostat_tau, s.mirostat_eta)
