"""The seam to the models on this machine: what there is, what it would be, and loading it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from edgeserve.async_llm import AsyncLLM
from edgeserve.frozen import frozen
from edgeserve.types import SamplingDefaults


@frozen
class ModelFacts:
    """What can be said of a model without a request. `facts` are by llama-server's names,
    `max_model_len` is what it has here."""

    facts: Mapping[str, object]
    max_model_len: int
    default_sampling: SamplingDefaults


@frozen
class Described:
    """A model that is not loaded, by its header: `num_bytes` are all that it will take."""

    about: ModelFacts
    num_bytes: int


@frozen
class ListedModel:
    """A model on this machine. `created` is its file's time, in seconds."""

    name: str
    created: int


class ModelLibrary(Protocol):
    """The models on this machine. What is no coroutine looks at disks: not for the event loop."""

    def models(self) -> Sequence[ListedModel]:
        """All there are now."""
        ...

    def describe(self, name: str) -> Described:
        """From its header, which is kept until the file changes.

        Raises ModelNotFoundError where it is no longer there, ModelError, KVMemoryError.
        """
        ...

    async def load(self, name: str) -> AsyncLLM:
        """Raises what `describe` and loading raise."""
        ...
