"""A client that is made once it is needed, on a thread: its imports do not keep the screen back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from edgeserve.errors import NoModelInUseError
from edgeserve.tui.client import (
    Answer,
    ChatClient,
    EngineFigures,
    LoadProgress,
    ModelInUse,
    OfferedModel,
    PromptSize,
    Question,
)


class LateClient:
    """The client that `make` returns, as if it were there already. `place` is the client's."""

    def __init__(self, make: Callable[[], ChatClient], place: str) -> None:
        self.place = place
        self._make = make
        self._making: asyncio.Task[ChatClient] | None = None
        self._client: ChatClient | None = None

    @property
    def model(self) -> ModelInUse | None:
        return None if self._client is None else self._client.model

    async def models(self) -> Sequence[OfferedModel]:
        return await (await self.made()).models()

    async def use(self, name: str, progress: Callable[[LoadProgress], None]) -> ModelInUse:
        return await (await self.made()).use(name, progress)

    def accept_license(self, name: str) -> None:
        """Terms are asked for by the client, so it is there."""
        if self._client is not None:
            self._client.accept_license(name)

    def ask(self, question: Question) -> Answer:
        if self._client is None:  # questions wait for a model, which only a client can have
            raise NoModelInUseError
        return self._client.ask(question)

    async def size(self, question: Question) -> PromptSize | None:
        return await (await self.made()).size(question)

    async def figures(self) -> EngineFigures | None:
        return None if self._client is None else await self._client.figures()

    async def aclose(self) -> None:
        if self._making is not None:
            await (await self.made()).aclose()

    async def made(self) -> ChatClient:
        if self._making is None:
            self._making = asyncio.create_task(asyncio.to_thread(self._make))
        client = await asyncio.shield(self._making)
        self._client = client
        return client
