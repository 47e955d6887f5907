"""What a request may cost before anyone looks at what it asks: bytes, depth, seconds."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import msgspec
from starlette.requests import ClientDisconnect, Request

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.server.errors import ApiError, Problem
from edgeserve.server.fields import Fields
from edgeserve.server.sse import ClientGoneError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_NUMBERS = (b"NaN", b"Infinity")
_READ_AGAIN_BYTES = 256 << 10
"""Of a larger body the field that is NaN is not looked for: everybody else would wait for it."""


@frozen
class BodyLimits:
    """The largest body, and how long it may take to arrive."""

    max_bytes: int = 64 << 20
    max_seconds: float = 120.0


async def read_body(request: Request, limits: BodyLimits) -> Fields:
    """The request's body, an object. Raises ApiError (400, 408, 413), InvalidRequestError."""
    value = decoded(await _bytes_of(request, limits))
    if not isinstance(value, dict):
        raise InvalidRequestError("body", value, "an object")
    return Fields(cast("dict[str, object]", value))


async def _bytes_of(request: Request, limits: BodyLimits) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.max_bytes:
        raise _too_large(limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.max_seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > limits.max_bytes:
                    raise _too_large(limits)
    except TimeoutError:
        message = f"the body did not arrive within {limits.max_seconds:g} seconds"
        raise ApiError(Problem(408, message, code="request_timeout")) from None
    except ClientDisconnect:
        raise ClientGoneError from None
    return bytes(body)


def decoded(body: bytes) -> object:
    """The value of a JSON text. Raises ApiError with what is wrong, and at which byte."""
    text = body.removeprefix(_BYTE_ORDER_MARK)
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise _bad_json("it is nested too deep") from None
    except msgspec.DecodeError as error:
        if len(text) <= _READ_AGAIN_BYTES and any(word in text for word in _NOT_NUMBERS):
            return _decoded_with_nan(text, error)
        raise _bad_json("it is empty" if not text.strip() else str(error)) from None


def _decoded_with_nan(text: bytes, error: Exception) -> object:
    """What Python's json writes, and JSON has not: so that the field can be named that is NaN."""
    try:
        value: object = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # no lone surrogates
    except RecursionError:
        raise _bad_json("it is nested too deep") from None
    except ValueError:
        raise _bad_json(str(error)) from None
    return value


def _bad_json(reason: str) -> ApiError:
    return ApiError(Problem(400, f"the body is no JSON: {reason}", code="invalid_json"))


def _too_large(limits: BodyLimits) -> ApiError:
    message = (
        f"the body is larger than {limits.max_bytes:,} bytes; --max-body-size says how much may be"
    )
    return ApiError(Problem(413, message, code="body_too_large"))
