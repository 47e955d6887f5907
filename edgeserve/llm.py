"""The Python API: LLM, with vLLM's offline names where they fit a laptop."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Unpack

from edgeserve.build import LoadedModel, load_model
from edgeserve.config import Config
from edgeserve.engine.accounting import EngineStats
from edgeserve.engine.live_request import Request
from edgeserve.engine.output import (
    PromptRead,
    RequestEmbedded,
    RequestFailed,
    RequestFinished,
    RequestProgress,
)
from edgeserve.engine.shared_engine import SharedEngine
from edgeserve.engine_options import EngineFields, EngineOptions
from edgeserve.loader.model_files import LicenseGate
from edgeserve.loader.progress import Progress
from edgeserve.progress_bar import PromptProgress
from edgeserve.prompts import Embeddable, Prompt, embeddables_of, naming_prompt, prompts_of
from edgeserve.requests import (
    ChatFields,
    Conversation,
    RequestBuilder,
    SamplingFields,
    params_of,
)
from edgeserve.text.thinking import Thinking
from edgeserve.text.tool_descriptions import Tool
from edgeserve.token_stream import TokenStream
from edgeserve.types import EmbeddingOutput, RequestOutput, SamplingDefaults, SamplingParams


class LLM:
    """A model and its engine.

    `model` is a path, a name of the catalogue, `hf:owner/repo[:file or quant]` or `pypi:name`.
    `device` is "auto" (the CPU), "cpu" or "oracle" (numpy in `dtype`); `num_threads` None is the
    physical cores. `kv_cache_memory` is bytes for keys and values, held as `kv_cache_dtype` "f16",
    "q8_0" (half of them) or "q4_0" (a quarter, less precise); the context is `max_model_len`, or
    what the model was trained for and memory holds. `prefix_caching` False computes every prompt
    whole, where otherwise what begins alike is computed once. `speculation` "off" computes one
    token at a time, where otherwise several are when what comes next was said before: the answer
    is the same, sooner; `draft_model` names a smaller model that guesses what comes next.
    `progress` hears of a download;
    `license_gate` is asked before a model is fetched whose terms must be accepted.
    Safe to call from several threads. Close it, or use it as a context manager.

    Raises ModelNotFoundError, DownloadError, ModelFileError, UnsupportedModelError.
    """

    def __init__(
        self,
        model: str,
        *,
        config: Config | None = None,
        progress: Progress | None = None,
        license_gate: LicenseGate | None = None,
        **options: Unpack[EngineFields],
    ) -> None:
        self._model = load_model(
            model,
            EngineOptions(**options),
            config=config or Config.from_environment(),
            clock=time.monotonic,
            progress=progress,
            license_gate=license_gate,
        )
        self._engine = SharedEngine(self._model.engine)
        self._requests = RequestBuilder(self._model)

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

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
        return self._model.engine.stats

    @property
    def default_sampling(self) -> SamplingDefaults:
        """What stands in for sampling fields that a call leaves out."""
        return self._model.defaults

    @property
    def model(self) -> LoadedModel:
        """What was loaded."""
        return self._model

    @property
    def requests(self) -> RequestBuilder:
        """Makes requests of prompts and conversations."""
        return self._requests

    @property
    def has_chat_template(self) -> bool:
        return self._model.template is not None

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | None = None,
        *,
        progress: bool | None = None,
        priority: int = 0,
        schema: object = None,
        **fields: Unpack[SamplingFields],
    ) -> list[RequestOutput]:
        """Continues raw prompts, all at once. One output per prompt, in order.

        Strings are raw: control tokens are parsed, BOS is added as the model wants it, no chat
        template is applied. A lower `priority` is computed first. `schema` is a pydantic class or
        a JSON schema that answers keep to; each output's `.parsed` is then the value.
        `progress` shows a bar (by default for many prompts on a terminal).
        Raises InvalidRequestError, ContextLengthError or ConstraintError before anything is
        computed.
        """
        params = params_of(sampling_params, fields)
        requests: list[Request] = []
        for index, prompt in enumerate(prompts_of(prompts)):
            with naming_prompt(index):
                requests.append(self._requests.raw(prompt, params, priority, schema=schema))
        ends = self._run(requests, progress)
        return [end.output for end in ends if isinstance(end, RequestFinished)]

    def chat(
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
        """Answers one conversation: a user's text, or messages. Single in, single out.

        `continue_final_message` goes on in the last message, where otherwise a new one begins.
        `schema` is as `generate` has it.
        Raises TemplateError where the model has no chat template or it refuses the messages.
        """
        request = self._requests.chat(
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
        (end,) = self._run([request], progress=False)
        assert isinstance(end, RequestFinished)
        return end.output

    def embed(
        self,
        inputs: str | Sequence[Embeddable],
        *,
        pooling: str | None = None,
        dimensions: int | None = None,
        normalize: bool = True,
        progress: bool | None = None,
        priority: int = 0,
    ) -> list[EmbeddingOutput]:
        """A vector for each text, or list of token ids. Texts are raw, as `generate` reads them.

        `pooling` "mean" or "last" is what is made of a text's hidden states, None what the model's
        file or the `pooling` of this LLM says. The first `dimensions` elements are kept, as models
        trained for it allow; then vectors get length 1, but with `normalize` False.
        Raises NoPoolingError, InvalidRequestError, ContextLengthError before anything is computed.
        """
        params = self._requests.pooling(pooling, dimensions, normalize)
        requests: list[Request] = []
        for index, text in enumerate(embeddables_of(inputs)):
            with naming_prompt(index, "inputs"):
                requests.append(self._requests.embedding(text, params, priority))
        ends = self._run(requests, progress, of="inputs")
        return [end.output for end in ends if isinstance(end, RequestEmbedded)]

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
    ) -> TokenStream:
        """Like `chat`, piece by piece. {"prompt": …} or {"prompt_token_ids": …} is raw.

        Closing the stream cancels the request. Raises what `generate` and `chat` do.
        """
        request = self._requests.either(
            prompt,
            params_of(sampling_params, fields),
            continue_final_message=continue_final_message,
            asked=ChatFields(
                tools, tool_choice, parallel_tool_calls, thinking, chat_template_kwargs
            ),
            priority=priority,
            schema=schema,
        )
        self._engine.submit(request, wants_progress=True)
        return TokenStream(self._engine, request.request_id)

    def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Token ids of a raw text, as `generate` would read it."""
        return self._requests.tokenize(text, parse_special=parse_special, add_special=add_special)

    def detokenize(self, token_ids: Sequence[int], *, skip_special: bool = False) -> str:
        """The text that tokens stand for; invalid UTF-8 becomes U+FFFD.

        Raises InvalidRequestError for an id outside the vocabulary.
        """
        return self._requests.detokenize(token_ids, skip_special=skip_special)

    def close(self) -> None:
        """Drops live requests and gives memory back. Twice is fine."""
        self._engine.close()

    def _run(
        self, requests: Sequence[Request], progress: bool | None, of: str = "prompts"
    ) -> list[RequestFinished | RequestEmbedded]:
        ends: list[RequestFinished | RequestEmbedded] = []
        try:
            for index, request in enumerate(requests):
                with naming_prompt(index, of):
                    self._engine.submit(request, wants_progress=False)
            with PromptProgress(len(requests), progress) as bar:
                for request in requests:
                    ends.append(self._finish(request.request_id))
                    bar.advance(ends[-1].output)
        finally:
            for request in requests:
                self._engine.forget(request.request_id)
        return ends

    def _finish(self, request_id: str) -> RequestFinished | RequestEmbedded:
        while True:
            for event in self._engine.events_of(request_id):
                match event:
                    case RequestFinished() | RequestEmbedded():
                        return event
                    case RequestFailed():
                        raise event.error
                    case RequestProgress() | PromptRead():
                        pass
