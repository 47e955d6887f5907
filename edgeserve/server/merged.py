"""Several streams read as one, each piece as soon as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")


async def merged(
    streams: Sequence[AsyncIterable[T]], num_at_once: int
) -> AsyncIterator[tuple[int, T]]:
    """(which stream, its piece), of so many at once, in order. The first error of any ends all."""
    if len(streams) == 1:
        async for piece in streams[0]:
            yield 0, piece
        return
    pieces: asyncio.Queue[tuple[int, T] | None] = asyncio.Queue()
    room = asyncio.Semaphore(num_at_once)

    async def read(index: int, stream: AsyncIterable[T]) -> None:
        try:
            async with room:
                async for piece in stream:
                    pieces.put_nowait((index, piece))
        finally:
            pieces.put_nowait(None)

    readers = [asyncio.ensure_future(read(at, stream)) for at, stream in enumerate(streams)]
    try:
        num_live = len(readers)
        while num_live:
            piece = await pieces.get()
            if piece is not None:
                yield piece
                continue
            num_live -= 1
            for reader in readers:
                if reader.done():
                    await reader
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
