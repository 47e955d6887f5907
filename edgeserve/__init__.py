"""edgeserve: run a GGUF language model on the machine in front of you.

    from edgeserve import LLM, SamplingParams

The names below are imported on first use, so that `import edgeserve` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgeserve.async_llm import AsyncLLM
    from edgeserve.async_token_stream import AsyncTokenStream
    from edgeserve.errors import EdgeServeError
    from edgeserve.llm import LLM
    from edgeserve.token_stream import TokenStream
    from edgeserve.types import (
        CompletionOutput,
        Constraint,
        EmbeddingOutput,
        RequestOutput,
        SamplingParams,
        TokenChunk,
    )

__all__ = [
    "LLM",
    "AsyncLLM",
    "AsyncTokenStream",
    "CompletionOutput",
    "Constraint",
    "EdgeServeError",
    "EmbeddingOutput",
    "RequestOutput",
    "SamplingParams",
    "TokenChunk",
    "TokenStream",
]

_HOMES = {
    "LLM": "edgeserve.llm",
    "AsyncLLM": "edgeserve.async_llm",
    "AsyncTokenStream": "edgeserve.async_token_stream",
    "TokenStream": "edgeserve.token_stream",
    "EdgeServeError": "edgeserve.errors",
    "CompletionOutput": "edgeserve.types",
    "Constraint": "edgeserve.types",
    "EmbeddingOutput": "edgeserve.types",
    "RequestOutput": "edgeserve.types",
    "SamplingParams": "edgeserve.types",
    "TokenChunk": "edgeserve.types",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'edgeserve' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
