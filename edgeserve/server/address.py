"""Where a server listens. The socket alone, so that it can be there before all else is imported."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen

_BACKLOG = 2048
_LARGEST_PORT = 65535


@frozen
class Listening:
    """Where, and how an end is made of it. `port` 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8080
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    shutdown_seconds: int = 10


def bind(listening: Listening) -> socket.socket:
    """Raises InvalidRequestError where the address is taken, or nobody's."""
    if not 0 <= listening.port <= _LARGEST_PORT:  # getaddrinfo takes it modulo 65536
        allowed = f"from 0 to {_LARGEST_PORT}; 0 takes a free one"
        raise InvalidRequestError("--port", listening.port, allowed)
    try:
        found = socket.getaddrinfo(
            listening.host, listening.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            allowed = (
                f"free on {listening.host}, where another program listens on it; --port 0 takes "
                "a free one"
            )
            raise InvalidRequestError("--port", listening.port, allowed) from error
        where = f"{listening.host}:{listening.port}"
        allowed = f"an address of this machine with a free port ({error.strerror or error})"
        raise InvalidRequestError("--host and --port", where, allowed) from error
    return bound


def base_url(listening: Listening, bound: socket.socket) -> str:
    scheme = "https" if listening.ssl_certfile else "http"
    host = listening.host
    if host in ("0.0.0.0", "::", ""):
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{bound.getsockname()[1]}"
