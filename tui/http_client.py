"""A ChatClient of any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import cast

import httpx

from edgeserve.errors import (
    ClosedError,
    EdgeServeError,
    ModelNotFoundError,
    NoModelInUseError,
    ServerRefusedError,
)
from edgeserve.remote_models import (
    RemoteModel,
    base_url,
    is_loopback,
    key_headers,
    remote_models,
)
from edgeserve.tui.client import (
    EngineFigures,
    LoadProgress,
    ModelInUse,
    OfferedModel,
    PromptSize,
    Question,
)
from edgeserve.tui.http_answer import HttpAnswer
from edgeserve.tui.http_chunks import ChunkReader
from edgeserve.tui.http_dialect import Dialect
from edgeserve.tui.http_figures import figures_of

_ASKING_S = 15.0
_NO_LIST = (404, 405, 501)


class HttpClient:
    """Answers by the server at `url`, as base_url reads it. `clock` gives seconds.

    Raises InvalidRequestError for what is no address.
    """

    def __init__(
        self, url: str, api_key: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = base_url(url)
        self._key = api_key
        self._clock = clock
        self._http = httpx.AsyncClient(
            headers=key_headers(api_key),
            # A prompt may be read for minutes without a word.
            timeout=httpx.Timeout(_ASKING_S, read=None),
            trust_env=not is_loopback(self._url),
        )
        self._model: ModelInUse | None = None
        self._dialect = Dialect("")
        self._answers: set[HttpAnswer] = set()
        self._has_figures = True
        self._closed = False

    @property
    def place(self) -> str:
        return self._url.removesuffix("/v1")

    @property
    def model(self) -> ModelInUse | None:
        return self._model

    async def models(self) -> Sequence[OfferedModel]:
        """Raises ServerUnreachableError, ServerRefusedError."""
        return [
            OfferedModel(each.id, each.id, here=True, size_bytes=each.size_bytes)
            for each in await self._listed()
        ]

    def accept_license(self, name: str) -> None:
        """Nothing is fetched here, so there is nothing to accept."""

    async def use(self, name: str, progress: Callable[[LoadProgress], None]) -> ModelInUse:
        if self._closed:
            raise ClosedError
        progress(LoadProgress("load", 0, None))
        try:
            listed = await self._listed()
        except ServerRefusedError as error:
            if error.status not in _NO_LIST:
                raise
            listed = [RemoteModel(name)]  # a server without a list may have any model
        found = next((each for each in listed if each.id == name), None)
        if found is None:
            there = ", ".join(each.id for each in listed[:8]) or "none"
            raise ModelNotFoundError(
                f"{name}: the server at {self.place} lists no such model; it lists {there}"
            )
        dialect = Dialect(found.owner)
        context = found.max_model_len
        if dialect.has_props:
            context = await self._props_context() or context
        self._dialect = dialect
        self._model = ModelInUse(
            name,
            context,
            thinks=found.thinks is not False,
            fingerprint=found.fingerprint,
            sampling=found.sampling,
        )
        return self._model

    def ask(self, question: Question) -> HttpAnswer:
        seed, error = question.settings.seed, None
        if seed is None and self._dialect.takes_seed:
            seed = int.from_bytes(os.urandom(4), "little") >> 1  # so that it can be asked again
        if self._closed or self._model is None:
            error = ClosedError() if self._closed else NoModelInUseError()
        name = "" if self._model is None else self._model.name
        answer = HttpAnswer(
            self._http,
            self._url,
            self._dialect.body(question, name, seed),
            ChunkReader(self._url, seed, self._clock, self._dialect.echo(question)),
            self._answers.discard,
            error,
        )
        self._answers.add(answer)
        return answer

    async def size(self, question: Question) -> PromptSize | None:
        if self._model is None or self._closed or not self._dialect.renders:
            return None
        body = self._dialect.conversation(question, self._model.name)
        prompt = await self._asked("/apply-template", body, "prompt")
        if not isinstance(prompt, str):
            return None
        body = {"model": self._model.name, "content": prompt, "parse_special": True}
        tokens = await self._asked("/tokenize", body, "tokens")
        return PromptSize(len(cast("list[object]", tokens))) if isinstance(tokens, list) else None

    async def figures(self) -> EngineFigures | None:
        if self._closed or not self._has_figures or self._model is None:
            return None
        try:
            response = await self._http.get(f"{self.place}/metrics", timeout=_ASKING_S)
        except httpx.HTTPError:
            return None
        found = figures_of(response.text, self._model.name) if response.is_success else None
        self._has_figures = found is not None  # a server that has none is not asked again
        return found

    async def aclose(self) -> None:
        self._closed = True
        for answer in list(self._answers):
            await answer.stop()
        await self._http.aclose()

    async def _listed(self) -> Sequence[RemoteModel]:
        if self._closed:
            raise ClosedError
        return await asyncio.to_thread(remote_models, self._url, self._key, timeout_s=_ASKING_S)

    async def _props_context(self) -> int | None:
        try:
            response = await self._http.get(f"{self.place}/props", timeout=_ASKING_S)
            found = response.json()["default_generation_settings"]["n_ctx"]
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return None
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    async def _asked(self, path: str, body: object, field: str) -> object:
        """A field of the answer; None where there is no good one."""
        try:
            response = await self._http.post(f"{self.place}{path}", json=body, timeout=_ASKING_S)
            return response.json()[field] if response.is_success else None
        except (httpx.HTTPError, ValueError, LookupError, TypeError, EdgeServeError):
            return None
