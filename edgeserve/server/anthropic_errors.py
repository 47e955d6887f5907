"""Errors as Anthropic's clients read them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from edgeserve.errors import ContextLengthError
from edgeserve.server.errors import Problem

_KINDS: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def anthropic_error(problem: Problem) -> bytes:
    """An ErrorShape."""
    other = "invalid_request_error" if problem.status < 500 else "api_error"
    kind = _KINDS.get(problem.status, other)
    shown = {"type": kind, "message": _message(problem)}
    return msgspec.json.encode({"type": "error", "error": shown})


def _message(problem: Problem) -> str:
    """Agents look for this text to know that a conversation has to be shortened."""
    error = problem.error
    if isinstance(error, ContextLengthError):
        return (
            f"prompt is too long: {error.num_prompt_tokens} tokens > {error.max_model_len} maximum"
        )
    return problem.message
