"""The chats on disk, from an event loop: one thread of their own does what is asked, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from edgeserve.errors import ChatsDamagedError, ChatsError
from edgeserve.tui.happenings import Repaired

if TYPE_CHECKING:
    from edgeserve.chats.salvage import Salvage
    from edgeserve.chats.store import ChatStore

T = TypeVar("T")


class ChatKeeper:
    """Owns a ChatStore, which is opened on its thread at `open`. A file that is found damaged is
    repaired on the spot, and `tell` hears of it."""

    def __init__(
        self, make: Callable[[], ChatStore], tell: Callable[[Repaired], None] | None = None
    ) -> None:
        self._make = make
        self._tell = tell
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chats")
        self._store: ChatStore | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Raises ChatsError where the file cannot be used. Twice is fine."""
        if self._is_closed:  # what comes late is nobody's any more
            raise ChatsError("the chats are closed; open them again")
        if self._store is None:
            loop = asyncio.get_running_loop()
            self._store = await loop.run_in_executor(self._thread, self._make)

    def take(self, make: Callable[[], ChatStore]) -> None:
        """Another file, where the first could not be opened."""
        self._make = make

    async def run(self, call: Callable[[ChatStore], T]) -> T:
        """What the call returns or raises (ChatsError). Calls are done in the order of asking."""
        await self.open()
        loop, store = asyncio.get_running_loop(), self._store
        assert store is not None

        def told(salvage: Salvage) -> None:
            if self._tell is not None:
                loop.call_soon_threadsafe(self._tell, Repaired(salvage))

        return await loop.run_in_executor(self._thread, _called, call, store, told)

    async def close(self) -> None:
        """After everything that was asked before. Twice is fine."""
        store, self._store, self._is_closed = self._store, None, True
        if store is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, store.close)
        self._thread.shutdown(wait=False)


def _called(call: Callable[[ChatStore], T], store: ChatStore, told: Callable[[Salvage], None]) -> T:
    """A call is one transaction, so one that met damage has done nothing yet."""
    try:
        return call(store)
    except ChatsDamagedError:
        salvage = store.repair()
        if salvage is not None:
            told(salvage)
        return call(store)
