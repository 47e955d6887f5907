"""The chats on disk, from an event loop: one thread of their own does what is asked, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from edgeserve.chats.store import ChatStore

T = TypeVar("T")


class ChatKeeper:
    """Owns a ChatStore, which is opened on its thread at `open`."""

    def __init__(self, make: Callable[[], ChatStore]) -> None:
        self._make = make
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chats")
        self._store: ChatStore | None = None

    async def open(self) -> None:
        """Raises ChatsError where the file cannot be used. Twice is fine."""
        if self._store is None:
            loop = asyncio.get_running_loop()
            self._store = await loop.run_in_executor(self._thread, self._make)

    def take(self, make: Callable[[], ChatStore]) -> None:
        """Another file, where the first could not be opened."""
        self._make = make

    async def run(self, call: Callable[[ChatStore], T]) -> T:
        """What the call returns or raises (ChatsError). Calls are done in the order of asking."""
        await self.open()
        assert self._store is not None
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, self._store)

    async def close(self) -> None:
        """After everything that was asked before."""
        if self._store is not None:
            await self.run(lambda store: store.close())
        self._thread.shutdown(wait=False)
