"""HTTP over a bare socket, for what no client library would send or do."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 30
_CHUNK = 65536


def address_of(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


@contextmanager
def connected(url: str, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    """A connection; a small buffer lets a server notice soon that nobody reads."""
    with socket.socket() as connection:
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(SECONDS)
        connection.connect(address_of(url))
        yield connection


def post(path: str, body: Any) -> bytes:
    """The bytes of a request."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def until_closed(connection: socket.socket) -> bytes:
    """All that comes; also what came before a reset."""
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(_CHUNK):
            received += piece
    return bytes(received)


def until(connection: socket.socket, wanted: bytes, begun: bytes = b"") -> bytes:
    """All up to some bytes that must come, with what has come already."""
    received = bytearray(begun)
    while wanted not in received:
        piece = connection.recv(_CHUNK)
        assert piece, bytes(received)
        received += piece
    return bytes(received)


def statuses(received: bytes) -> list[int]:
    """Of all the answers on a connection."""
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) [A-Z]", received)]


def reset(connection: socket.socket) -> None:
    """Ends it as a program does that was killed: RST, not FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def wait_for(condition: Any, seconds: float = SECONDS) -> None:
    """Until a condition holds that is another program's to make true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
