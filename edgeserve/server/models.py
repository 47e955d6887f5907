"""Which models are served, and who may use one now.

A surface asks by the name a client gave, and holds the model while it answers. Whether it was
loaded for that, or others had to go, is the registry's business.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from fnmatch import fnmatchcase
from typing import Literal, Protocol

from edgeserve.async_llm import AsyncLLM
from edgeserve.engine.accounting import EngineStats
from edgeserve.errors import EdgeServeError
from edgeserve.frozen import frozen
from edgeserve.server.errors import ModelLoadingError, ModelNotServedError
from edgeserve.server.library import ModelFacts

ModelState = Literal["loaded", "loading", "available"]

ANY_NAMES = ("", "default")
"""What clients send that do not care."""


@frozen
class Served:
    """A loaded model, and the name under which answers give it."""

    name: str
    llm: AsyncLLM
    created: int

    @property
    def vocab_size(self) -> int:
        return self.llm.model.tokenizer.vocab_size

    @property
    def fingerprint(self) -> str:
        """`system_fingerprint`: the program that computes."""
        return "edgeserve"

    def token_text(self, token_id: int) -> str:
        return self.llm.model.tokenizer.token_text(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        return self.llm.model.tokenizer.token_bytes(token_id)


@frozen
class ModelCard:
    """A model as it is listed. `served` is None until it is loaded; `about` is what is known of it
    by then."""

    name: str
    created: int
    state: ModelState
    served: Served | None = None
    about: ModelFacts | None = None


class ModelRegistry(Protocol):
    """The models of this server."""

    def use(self, name: str | None) -> AbstractAsyncContextManager[Served]:
        """The model of that name (None, "" and "default" are the usual one), kept while in use.

        Entering may take as long as loading does. Raises ModelNotServedError, ModelLoadingError,
        ModelTooLargeError, ModelBusyError, QueueFullError, and what loading raises.
        """
        ...

    async def refresh(self) -> None:
        """From now on the cards are of what is on this machine now."""
        ...

    def cards(self) -> Sequence[ModelCard]:
        """All that may be asked for, the usual one first."""
        ...

    def card(self, name: str) -> ModelCard:
        """Raises ModelNotServedError."""
        ...

    def earlier(self) -> Mapping[str, EngineStats]:
        """What was counted of models, by name, before they were unloaded."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether a request would be answered without waiting for the first model."""
        ...

    @property
    def failure(self) -> EdgeServeError | None:
        """Why there will be no model."""
        ...


class OneModel:
    """A registry of one model, which may come later. `aliases` may be globs."""

    def __init__(self, name: str, aliases: Sequence[str] = (), *, created: int) -> None:
        self._names = (name, *aliases)
        self._created = created
        self._served: Served | None = None
        self.failure: EdgeServeError | None = None

    @property
    def is_ready(self) -> bool:
        return self._served is not None

    def arrived(self, llm: AsyncLLM) -> None:
        """The model is loaded."""
        self._served = Served(self.name, llm, self._created)

    @property
    def name(self) -> str:
        """What answers say: the first alias that is no glob, else the model's own name."""
        return next((n for n in self._names[1:] if not is_glob(n)), self._names[0])

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncGenerator[Served]:
        if self.failure is not None:
            raise self.failure
        if self._served is None:
            raise ModelLoadingError
        if name is not None and name not in ANY_NAMES:
            self.card(name)
        yield self._served

    async def refresh(self) -> None:
        pass

    def earlier(self) -> Mapping[str, EngineStats]:
        return {}

    def cards(self) -> Sequence[ModelCard]:
        state: ModelState = "loading" if self._served is None else "loaded"
        names = [self.name, *(n for n in self._names if n != self.name and not is_glob(n))]
        return [ModelCard(name, self._created, state, self._served) for name in names]

    def card(self, name: str) -> ModelCard:
        cards = {card.name: card for card in self.cards()}
        if name in cards:
            return cards[name]
        if any(fnmatchcase(name, pattern) for pattern in self._names if is_glob(pattern)):
            return cards[self.name]
        raise ModelNotServedError(name, tuple(cards))


def is_glob(name: str) -> bool:
    """Whether a name stands for many."""
    return any(character in name for character in "*?[")
