"""What a user may set about an engine, and the checks of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypedDict

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.pooling_params import POOLINGS
from edgeserve.runner.kv_types import KV_TYPES

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "float64": 8}
"""What the oracle computes in, by numpy's name."""

_DEVICES = ("auto", "cpu", "oracle")
_SPECULATIONS = ("auto", "off", "ngram", "lookahead")
_BOUNDS = {
    "num_threads": (1, 1024),
    "max_model_len": (2, None),  # a token of prompt and one of answer
    "kv_cache_memory": (1, None),
    "max_num_batched_tokens": (1, 65536),
    "max_num_seqs": (1, None),
    "disk_cache": (0, None),
}


class EngineFields(TypedDict, total=False):
    """EngineOptions' fields, for calls that give them one by one."""

    device: str
    dtype: str
    num_threads: int | None
    max_model_len: int | None
    kv_cache_memory: int | None
    kv_cache_dtype: str
    max_num_batched_tokens: int
    max_num_seqs: int
    target_itl_ms: float | None
    chat_template: str | None
    prefix_caching: bool
    speculation: str
    draft_model: str | None
    disk_cache: int | None
    pooling: str | None


@frozen(kw_only=True)
class EngineOptions:
    """What a user may set about an engine; None means decided by model and machine.

    `device` "auto" is the CPU; "oracle" the numpy executor, whose `dtype` is "float32" or
    "float64". `kv_cache_memory` is bytes for K and V, which `kv_cache_dtype` "q8_0" halves
    and "q4_0" quarters, for some of the precision. Without `prefix_caching` every prompt is
    computed whole. `target_itl_ms` is what a prompt may make live streams wait between tokens; by
    default four times what they would wait without it. `speculation` "auto" and "ngram" guess what
    comes next from what was said before, where that pays; "lookahead" also from what the model says
    after wrong guesses; "off" computes one token at a time.
    `draft_model` names a smaller model with the same vocabulary, which "auto" then asks too.
    `disk_cache` is bytes on disk for what prefix caching keeps, which a restart then finds again; 0
    or False keeps nothing there, None what the environment says. `pooling` "mean" or "last" is how
    one vector is made of a text, where a call does not say; None is as the model's file says.
    """

    device: str = "auto"
    dtype: str = "float32"
    num_threads: int | None = None
    max_model_len: int | None = None
    kv_cache_memory: int | None = None
    kv_cache_dtype: str = "f16"
    max_num_batched_tokens: int = 512
    max_num_seqs: int = 64
    target_itl_ms: float | None = None
    chat_template: str | None = None
    prefix_caching: bool = True
    speculation: str = "auto"
    draft_model: str | None = None
    disk_cache: int | None = None
    pooling: str | None = None

    def __post_init__(self) -> None:
        if self.device not in _DEVICES:
            raise InvalidRequestError("device", self.device, " or ".join(_DEVICES))
        if self.dtype not in tuple(DTYPE_BYTES):
            raise InvalidRequestError("dtype", self.dtype, " or ".join(DTYPE_BYTES))
        if self.speculation not in _SPECULATIONS:
            raise InvalidRequestError("speculation", self.speculation, " or ".join(_SPECULATIONS))
        self._check_draft_model()
        if self.kv_cache_dtype not in tuple(KV_TYPES):
            raise InvalidRequestError("kv_cache_dtype", self.kv_cache_dtype, " or ".join(KV_TYPES))
        if self.device == "oracle" and self.kv_cache_dtype != "f16":
            raise InvalidRequestError(
                "kv_cache_dtype",
                self.kv_cache_dtype,
                "left out with device oracle, whose cache is of its dtype",
            )
        if self.pooling is not None and self.pooling not in POOLINGS:
            raise InvalidRequestError("pooling", self.pooling, " or ".join(POOLINGS))
        if self.target_itl_ms is not None:
            _check_milliseconds("target_itl_ms", self.target_itl_ms)
        if self.disk_cache is False:
            object.__setattr__(self, "disk_cache", 0)
        for name, (low, high) in _BOUNDS.items():
            _check_option(name, getattr(self, name), low, high)
        if self.chat_template is not None and not isinstance(self.chat_template, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError("chat_template", self.chat_template, "a template's text")
        if not isinstance(self.prefix_caching, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError("prefix_caching", self.prefix_caching, "True or False")

    def _check_draft_model(self) -> None:
        name = self.draft_model
        if name is None:
            return
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError("draft_model", name, "a model's name or path")
        if self.speculation != "auto":
            allowed = f"left out with speculation {self.speculation}"
            raise InvalidRequestError("draft_model", name, allowed)


def _check_option(name: str, value: object, low: int, high: int | None) -> None:
    """None, where a field may be None at all, is "decided by model and machine"."""
    if value is None and name not in ("max_num_batched_tokens", "max_num_seqs"):
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InvalidRequestError(name, value, f"an integer of {low} or more")
    if high is not None and value > high:
        raise InvalidRequestError(name, value, f"at most {high:,}")


def _check_milliseconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidRequestError(name, value, "a positive number")
