"""Every path in one spelling, with and without /v1; and an id for every request."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MAX_ID = 128


class OnePath:
    """An ASGI layer: `/v1/models/` is `/models`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = plain_path(scope["path"])
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)


def plain_path(path: str) -> str:
    stripped = "/" + path.strip("/")
    while stripped == "/v1" or stripped.startswith("/v1/"):
        stripped = stripped[3:] or "/"
    return stripped


class RequestIds:
    """An ASGI layer: `x-request-id` on every answer, the client's own where it sent one."""

    def __init__(self, app: ASGIApp, new_id: Callable[[], str]) -> None:
        self._app = app
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        is_fit = 0 < len(given) <= _MAX_ID and given.isascii() and given.isprintable()
        request_id = given if is_fit else f"req_{self._new_id()}"
        scope.setdefault("state", {})["request_id"] = request_id

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = (b"x-request-id", request_id.encode())
                message = {**message, "headers": [*message.get("headers", ()), added]}
            await send(message)

        await self._app(scope, receive, sending)
