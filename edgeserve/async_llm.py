"""AsyncLLM: the Python API for asyncio. The same requests and answers as LLM's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Unpack

from edgeserve.async_token_stream import AsyncTokenStream
from edgeserve.build import LoadedModel, load_model
from edgeserve.config import Config
from edgeserve.constrained_models import ConstrainedModels
from edgeserve.engine.accounting import EngineStats
from edgeserve.engine.async_engine import AsyncEngine
from edgeserve.engine.live_request import Request
from edgeserve.engine.output import RequestEmbedded, RequestFailed, RequestFinished
from edgeserve.engine.prompt_cost import PromptCost
from edgeserve.engine_options import EngineFields, EngineOptions
from edgeserve.errors import InvalidRequestError
from edgeserve.loader.model_files import LicenseGate, ModelFiles
from edgeserve.loader.progress import Progress
from edgeserve.model_facts import model_facts
from edgeserve.prompts import Embeddable, Prompt, embeddables_of, naming_prompt
from edgeserve.requests import (
    ChatFields,
    Conversation,
    RequestBuilder,
    SamplingFields,
    params_of,
)
from edgeserve.text.thinking import Thinking
from edgeserve.text.tool_descriptions import Tool
from edgeserve.types import (
    EmbeddingOutput,
    PoolingParams,
    RequestOutput,
    SamplingDefaults,
    SamplingParams,
)


class AsyncLLM:
    """A model, and its engine on a thread of its own. Many requests at once share its steps.

        async with await AsyncLLM.create("smollm2") as llm:
            async for chunk in llm.stream("Hello!"):
                print(chunk.text, end="")

    Event loops in several threads may use one. Close it, or use it as a context manager.
    """

    def __init__(self, model: LoadedModel, *, max_queued_requests: int = 256) -> None:
        """Takes the model over. `create` is the usual way."""
        if max_queued_requests < 1:
            raise InvalidRequestError("max_queued_requests", max_queued_requests, "at least 1")
        self._model = model
        self._requests = RequestBuilder(model)
        self._engine = AsyncEngine(model.engine, max_queued_requests=max_queued_requests)

    @classmethod
    async def create(
        cls,
        model: str | ModelFiles,
        *,
        max_queued_requests: int = 256,
        config: Config | None = None,
        progress: Progress | None = None,
        license_gate: LicenseGate | None = None,
        constrained: ConstrainedModels | None = None,
        **options: Unpack[EngineFields],
    ) -> AsyncLLM:
        """Loads a model beside the event loop. Arguments and errors are LLM's; a model may also be
        given by its files, which are then taken as they are. Of the `constrained` (servers have
        them) the first answer with tools or a schema waits no longer than others.

        At most `max_queued_requests` wait for their first step; one more is a QueueFullError.
        """
        load = partial(
            load_model,
            model,
            EngineOptions(**options),
            config=config or Config.from_environment(),
            clock=time.monotonic,
            progress=progress,
            license_gate=license_gate,
            constrained=constrained,
        )
        executor = ThreadPoolExecutor(1, "edgeserve-load")
        loading = executor.submit(load)
        executor.shutdown(wait=False)
        try:
            loaded = await asyncio.shield(asyncio.wrap_future(loading))
        except asyncio.CancelledError:
            loading.add_done_callback(_close_model)
            raise
        return cls(loaded, max_queued_requests=max_queued_requests)

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def max_model_len(self) -> int:
        """Prompt and output together, in tokens."""
        return self._model.engine.limits.max_model_len

    @property
    def context_note(self) -> str | None:
        """Where memory holds less than the model was trained for: how much, and what holds all."""
        return self._model.context_note

    @property
    def stats(self) -> EngineStats:
        """What the engine has done so far, and where its time went."""
        return self._engine.stats

    @property
    def default_sampling(self) -> SamplingDefaults:
        """What stands in for sampling fields that a call leaves out."""
        return self._model.defaults

    @property
    def facts(self) -> Mapping[str, object]:
        """What the model is, by the names that llama-server gives it."""
        return model_facts(self._model)

    @property
    def has_chat_template(self) -> bool:
        return self._model.template is not None

    @property
    def requests(self) -> RequestBuilder:
        """Makes requests that `open` takes. Its methods compute: call them off the event loop."""
        return self._requests

    @property
    def model(self) -> LoadedModel:
        """What was loaded."""
        return self._model

    def open(self, request: Request) -> AsyncTokenStream:
        """Queues a request at once, and returns its stream.

        Raises InvalidRequestError, ContextLengthError, OutOfBlocksError, QueueFullError.
        """
        return AsyncTokenStream.opened(self._engine, request)

    def later(self, request: Request) -> AsyncTokenStream:
        """The stream of a request that is queued when its first piece is asked for: for one of
        many, of which no more than `num_at_once` should be queued.

        Raises InvalidRequestError, ContextLengthError, OutOfBlocksError.
        """
        self._model.engine.validate(request)
        return AsyncTokenStream(self._engine, lambda: request)

    @property
    def num_at_once(self) -> int:
        """So many requests of one caller leave no place unused, and fit the queue."""
        return min(self._model.engine.limits.max_num_seqs, self._engine.max_queued_requests)

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        schema: object = None,
        **fields: Unpack[SamplingFields],
    ) -> RequestOutput:
        """Continues a raw prompt, as `LLM.generate` does. Cancelling the task cancels the request.

        Raises InvalidRequestError, ContextLengthError, OutOfBlocksError, QueueFullError.
        """
        params = params_of(sampling_params, fields)
        return await self._finish(
            await asyncio.to_thread(self._requests.raw, prompt, params, priority, schema=schema)
        )

    async def chat(
        self,
        messages: Conversation,
        sampling_params: SamplingParams | None = None,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, object] | None = None,
        priority: int = 0,
        schema: object = None,
        tools: Sequence[Mapping[str, object] | Tool] | None = None,
        tool_choice: object = None,
        parallel_tool_calls: bool = True,
        thinking: Thinking = Thinking(),  # noqa: B008  frozen
        **fields: Unpack[SamplingFields],
    ) -> RequestOutput:
        """Answers a conversation, as `LLM.chat` does. Cancelling the task cancels the request.

        Raises TemplateError, and what `generate` does.
        """
        prepare = partial(
            self._requests.chat,
            messages,
            params_of(sampling_params, fields),
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            asked=ChatFields(
                tools, tool_choice, parallel_tool_calls, thinking, chat_template_kwargs
            ),
            priority=priority,
            schema=schema,
        )
        return await self._finish(await asyncio.to_thread(prepare))

    async def embed(
        self,
        inputs: str | Sequence[Embeddable],
        *,
        pooling: str | None = None,
        dimensions: int | None = None,
        normalize: bool = True,
        priority: int = 0,
    ) -> list[EmbeddingOutput]:
        """A vector for each text, as `LLM.embed` makes it. Cancelling the task cancels all of them.

        However many there are, no more are queued at once than are computed at once.
        Raises NoPoolingError, and what `generate` does.
        """
        params = self._requests.pooling(pooling, dimensions, normalize)
        prepare = partial(self._embeddings, inputs, params, priority)
        requests = await asyncio.to_thread(prepare)
        room = asyncio.Semaphore(self.num_at_once)

        async def embedded(request: Request) -> EmbeddingOutput:
            async with room:
                end = await self._end(request)
            assert isinstance(end, RequestEmbedded)
            return end.output

        tasks = [asyncio.ensure_future(embedded(request)) for request in requests]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            raise

    def stream(
        self,
        prompt: Conversation | Mapping[str, object],
        sampling_params: SamplingParams | None = None,
        *,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, object] | None = None,
        priority: int = 0,
        schema: object = None,
        tools: Sequence[Mapping[str, object] | Tool] | None = None,
        tool_choice: object = None,
        parallel_tool_calls: bool = True,
        thinking: Thinking = Thinking(),  # noqa: B008  frozen
        **fields: Unpack[SamplingFields],
    ) -> AsyncTokenStream:
        """Like `chat`, piece by piece. {"prompt": …} or {"prompt_token_ids": …} is raw.

        The request is queued when the first piece is asked for, or by the stream's `start`.
        """
        prepare = partial(
            self._requests.either,
            prompt,
            params_of(sampling_params, fields),
            continue_final_message=continue_final_message,
            asked=ChatFields(
                tools, tool_choice, parallel_tool_calls, thinking, chat_template_kwargs
            ),
            priority=priority,
            schema=schema,
        )
        return AsyncTokenStream(self._engine, prepare)

    def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Token ids of a raw text, as `generate` would read it."""
        return self._requests.tokenize(text, parse_special=parse_special, add_special=add_special)

    def detokenize(self, token_ids: Sequence[int], *, skip_special: bool = False) -> str:
        """The text that tokens stand for; see LLM.detokenize."""
        return self._requests.detokenize(token_ids, skip_special=skip_special)

    async def prompt_cost(self, prompt_token_ids: Sequence[int]) -> PromptCost:
        """What reading a prompt would take now: tokens in memory, on disk, seconds for the others.
        Holds nothing; told between two steps. Raises ClosedError."""
        return await self._engine.prompt_cost(prompt_token_ids)

    async def close(self) -> None:
        """Ends live requests with ClosedError and gives memory back. Twice is fine."""
        await self._engine.close()

    def _embeddings(self, inputs: object, params: PoolingParams, priority: int) -> list[Request]:
        """All of them checked, before the first is computed."""
        requests: list[Request] = []
        for index, text in enumerate(embeddables_of(inputs)):
            with naming_prompt(index, "inputs"):
                requests.append(self._requests.embedding(text, params, priority))
                self._model.engine.validate(requests[-1])
        return requests

    async def _finish(self, request: Request) -> RequestOutput:
        end = await self._end(request)
        assert isinstance(end, RequestFinished)
        return end.output

    async def _end(self, request: Request) -> RequestFinished | RequestEmbedded:
        events = self._engine.submit(request, wants_progress=False)
        try:
            event = await events.get()
        except BaseException:  # the task was cancelled, or dropped
            self._engine.forget(request.request_id)
            raise
        match event:
            case RequestFinished() | RequestEmbedded():
                return event
            case RequestFailed():
                raise event.error
            case _:
                raise AssertionError("progress was not asked for")


def _close_model(loading: Future[LoadedModel]) -> None:
    """What arrives when nobody waits for it any more; its memory would stay taken."""
    if loading.exception() is None:
        loading.result().engine.close()
