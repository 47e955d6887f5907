"""Server-sent events as they arrive: bytes in, each event's data out. Knows nobody's contents."""

from __future__ import annotations

from collections.abc import AsyncIterator

from edgeserve.errors import EventTooLongError

_MOST_BYTES = 16 << 20
"""Of one event: an answer's piece takes a few hundred."""


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each server-sent event, however the bytes are cut. Raises EventTooLongError.

    Lines end in LF or CRLF only: JSON may hold U+2028, at which text would be split.
    """
    held, data, num_bytes = list[bytes](), list[bytes](), 0
    async for chunk in chunks:
        first, *lines = chunk.split(b"\n")
        num_bytes += len(chunk)
        if num_bytes > _MOST_BYTES:
            raise EventTooLongError(_MOST_BYTES)
        held.append(first)
        for next_line in lines:
            line = b"".join(held).removesuffix(b"\r")
            held = [next_line]
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line:
                num_bytes = len(next_line)
                if data:
                    yield b"\n".join(data)
                    data.clear()
