"""A model on its way to a request: the wait may be long, is watched, and can be given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.requests import Request
from starlette.types import Receive

from edgeserve.server.models import ModelRegistry, Served
from edgeserve.server.sse import ClientGoneError, client_gone


class Arriving:
    """Enters `using` in a task of its own. `aclose` leaves it, or gives up."""

    def __init__(self, using: AbstractAsyncContextManager[Served]) -> None:
        self._using = using
        self._entering = asyncio.ensure_future(using.__aenter__())

    async def within(self, receive: Receive, seconds: float | None) -> Served | None:
        """The model, or None where that takes longer. Raises ClientGoneError, and what loading
        raises."""
        watching = asyncio.ensure_future(client_gone(receive))
        first = asyncio.FIRST_COMPLETED
        try:
            await asyncio.wait((self._entering, watching), timeout=seconds, return_when=first)
            if self._entering.done():
                return await self.served()
            if watching.done():
                raise ClientGoneError
            return None
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def served(self) -> Served:
        """The model, however long it takes. Raises what loading raises."""
        return await self._entering

    async def aclose(self) -> None:
        self._entering.cancel()
        await asyncio.wait((self._entering,))
        if not self._entering.cancelled() and self._entering.exception() is None:
            await self._using.__aexit__(None, None, None)


@asynccontextmanager
async def model_for(
    request: Request, registry: ModelRegistry, name: str | None
) -> AsyncGenerator[Served]:
    """The model while a request needs it that does not stream. Raises ClientGoneError, and what
    `use` raises."""
    arriving = Arriving(registry.use(name))
    try:
        served = await arriving.within(request.receive, None)
        assert served is not None  # it has waited without a limit
        yield served
    finally:
        await arriving.aclose()
