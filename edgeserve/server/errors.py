"""From typed errors to what a client sees: a status, a body, headers.

A surface with bodies of its own makes them of the same Problem.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

import msgspec

from edgeserve import errors
from edgeserve.errors.base import shown
from edgeserve.frozen import frozen

_log = logging.getLogger("edgeserve.server")
_RETRY_AFTER_SECONDS = 2


@frozen
class Problem:
    """What went wrong with a request, in OpenAI's words. `error` is what was raised."""

    status: int
    message: str
    kind: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] | None = None
    error: BaseException | None = None


class ApiError(errors.EdgeServeError):
    """A refusal that only the server knows: what the address, a header or the body is wrong in."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.message)


class ModelNotServedError(errors.EdgeServeError):
    """A request names a model that this server does not serve."""

    def __init__(self, model: str, served: tuple[str, ...]) -> None:
        self.model = model
        self.served = served
        there = f"served: {', '.join(served)}" if served else "edgeserve pull fetches models"
        super().__init__(f"The model {shown(model)} does not exist here; {there}")


class ModelLoadingError(errors.EdgeServeError):
    """The model is not there yet."""

    def __init__(self) -> None:
        super().__init__("Loading model")


class ModelTooLargeError(errors.EdgeServeError):
    """A model alone needs more than all models of this server may have."""

    def __init__(self, model: str, needed_bytes: int, allowed_bytes: int) -> None:
        self.model = model
        self.needed_bytes = needed_bytes
        self.allowed_bytes = allowed_bytes
        super().__init__(
            f"the model {model!r} needs {needed_bytes:,} bytes and all models may have "
            f"{allowed_bytes:,}; ask for a smaller one, or raise --max-memory"
        )


class ModelBusyError(errors.EdgeServeError):
    """Others used all memory for models for as long as a request may wait."""

    def __init__(self, waited_s: float) -> None:
        self.waited_s = waited_s
        super().__init__(
            f"for {waited_s:g} seconds there was no memory for the model beside those that answer "
            "others; ask again later, or raise --max-memory"
        )


class ServerEndingError(errors.EdgeServeError):
    """The server was told to end, and an answer's time is up."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down")


@contextmanager
def cut_is_error() -> Generator[None]:
    """The task that writes an answer is cancelled when the server ends: its client is to be told.
    (Also when a client has gone away, who hears nothing of it.)"""
    try:
        yield
    except asyncio.CancelledError:
        raise ServerEndingError from None


ErrorShape = Callable[[Problem], bytes]
"""A surface's body of an error: JSON."""


def openai_body(problem: Problem) -> bytes:
    shown = {
        "message": problem.message,
        "type": problem.kind,
        "param": problem.param,
        "code": problem.code,
    }
    return msgspec.json.encode({"error": shown})


def problem_of(error: BaseException) -> Problem:
    """What a client is told of an error. One that nobody foresaw is logged, and said to be ours."""
    match error:
        case ApiError():
            return error.problem
        case errors.ContextLengthError():
            return _bad(error, "messages", "context_length_exceeded")
        case errors.InvalidRequestError():
            return _bad(error, error.parameter, None)
        case errors.TemplateError() | errors.NothingAllowedError() | errors.ConstraintLimitError():
            return _bad(error, None, None)
        case errors.OutOfBlocksError():
            return _bad(error, "messages", "context_length_exceeded")
        case ModelNotServedError():
            return Problem(404, str(error), param="model", code="model_not_found", error=error)
        case errors.QueueFullError():
            return _later(429, error, "rate_limit_error", "queue_full")
        case ModelTooLargeError():
            return _bad(error, "model", "model_too_large")
        case ModelLoadingError():
            return _later(503, error, "unavailable_error", "loading")
        case ModelBusyError():
            return _later(503, error, "unavailable_error", "model_busy")
        case errors.ModelError():
            message = f"the model cannot be loaded: {error}"
            return Problem(500, message, "server_error", "model", "model_not_loaded", error=error)
        case errors.ClosedError() | errors.OutOfMemoryError() | ServerEndingError():
            return _later(503, error, "unavailable_error", "unavailable")
        case errors.EdgeServeError():
            return Problem(500, str(error), "server_error", error=error)
        case _:
            _log.error("unforeseen error", exc_info=error)
            kind = type(error).__name__
            return Problem(500, f"the server failed ({kind}); its log says how", "server_error")


def _bad(error: Exception, param: str | None, code: str | None) -> Problem:
    return Problem(400, str(error), param=param, code=code, error=error)


def _later(status: int, error: Exception, kind: str, code: str) -> Problem:
    headers = {"retry-after": str(_RETRY_AFTER_SECONDS)}
    return Problem(status, str(error), kind, None, code, headers, error)
