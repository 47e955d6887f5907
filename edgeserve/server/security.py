"""Who may ask: the Host and Origin headers, preflights, and keys. An ASGI layer over all routes.

A page of a foreign site, or a name that was pointed at this machine (DNS rebinding), must not
reach a server that runs without a key.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgeserve.frozen import frozen
from edgeserve.server.errors import ErrorShape, Problem

_LOCAL_SUFFIXES = (".localhost", ".local", ".internal")
_APP_SCHEMES = frozenset(("app", "tauri", "vscode-webview"))
_EXPOSED = "x-edgeserve-ignored, x-edgeserve-relaxed, x-edgeserve-adjusted, x-request-id"
_OPEN_ON_LOOPBACK = frozenset(("/health", "/metrics"))


@frozen
class SecurityPolicy:
    """`keys`: one of them must be shown; without any, none is asked for. `any_origin` is --cors.

    `is_loopback` says that only this machine reaches the server. `machine_name` and `hosts`
    are Hosts that are right as well.
    """

    keys: tuple[str, ...] = ()
    any_origin: bool = False
    is_loopback: bool = True
    machine_name: str = ""
    hosts: tuple[str, ...] = ()


ShapeOf = Callable[[str], ErrorShape]
"""An error's body, by the path that was asked for."""


class Security:
    """The layer."""

    def __init__(self, app: ASGIApp, policy: SecurityPolicy, shape_of: ShapeOf) -> None:
        self._app = app
        self._policy = policy
        self._shape_of = shape_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        origin = headers.get("origin")
        problem = self._foreign(headers, origin)
        allowing = {} if problem or origin is None else _cors_headers(origin)
        if problem is None and scope["method"] == "OPTIONS":
            await _respond(send, 204, {**allowing, **_preflight(headers)}, b"")
            return
        if problem is None:
            problem = self._unauthorised(scope["path"], headers)
        if problem is not None:
            body = self._shape_of(scope["path"])(problem)
            kind = {"content-type": "application/json"}
            await _respond(send, problem.status, {**kind, **allowing}, body)
            return
        await self._app(scope, receive, _with_headers(send, allowing) if allowing else send)

    def _foreign(self, headers: Mapping[str, str], origin: str | None) -> Problem | None:
        host = headers.get("host")
        if host is not None and not self._is_own_host(host):
            message = (
                f"Host {host!r} is not this machine; ask for localhost or its address, or bind a "
                "name of your own with --allow-host"
            )
            return Problem(403, message, "permission_error", code="foreign_host")
        if origin is not None and not self._policy.any_origin and not _is_own_origin(origin):
            message = f"Origin {origin!r} is not of this machine; --cors lets pages of any site ask"
            return Problem(403, message, "permission_error", code="foreign_origin")
        return None

    def _is_own_host(self, host: str) -> bool:
        name = _without_port(host).lower().rstrip(".")
        own = ("localhost", self._policy.machine_name, *self._policy.hosts)
        if name in map(str.lower, own) or name.endswith(_LOCAL_SUFFIXES):
            return True
        return _is_private_address(name)

    def _unauthorised(self, path: str, headers: Mapping[str, str]) -> Problem | None:
        keys = self._policy.keys
        if not keys or (self._policy.is_loopback and path in _OPEN_ON_LOOPBACK):
            return None
        shown = _key_shown(headers).encode("latin-1")
        if sum(hmac.compare_digest(shown, key.encode()) for key in keys):
            return None
        message = "the API key is wrong" if shown else "no API key was given; send Bearer KEY"
        return Problem(401, message, "authentication_error", code="invalid_api_key")


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _key_shown(headers: Mapping[str, str]) -> str:
    """From `Authorization: Bearer`, or Anthropic's `x-api-key`."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return headers.get("x-api-key", "").strip()


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def _is_private_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_private or address.is_link_local


def _is_own_origin(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
        host = (parts.hostname or "").lower()
    except ValueError:
        return False
    if parts.scheme in _APP_SCHEMES:
        return True
    if parts.scheme not in ("http", "https"):
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def machine_name() -> str:
    """What other machines call this one."""
    return socket.gethostname()


def _cors_headers(origin: str) -> dict[str, str]:
    return {
        "access-control-allow-origin": origin,
        "access-control-expose-headers": _EXPOSED,
        "vary": "origin",
    }


def _preflight(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        "allow": "GET, POST, DELETE, HEAD, OPTIONS",
        "access-control-allow-methods": "GET, POST, DELETE, HEAD, OPTIONS",
        "access-control-allow-headers": headers.get("access-control-request-headers", "*"),
        "access-control-allow-private-network": "true",
        "access-control-max-age": "600",
    }


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    added = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return sending


async def _respond(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    if status != 204:
        raw.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
