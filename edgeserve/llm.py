"""The Python API: LLM, with vLLM's offline names where they fit a laptop."""

from __future__ import annotations

import itertools
import operator
import secrets
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import SupportsIndex, TypedDict, Unpack, cast

from edgeserve.build import EngineOptions, load_model
from edgeserve.config import Config
from edgeserve.engine.engine import Request
from edgeserve.engine.output import RequestFailed, RequestFinished, RequestProgress
from edgeserve.engine.shared_engine import SharedEngine
from edgeserve.errors import EdgeServeError, InvalidRequestError, NotYetError, TemplateError
from edgeserve.loader.progress import Progress
from edgeserve.loader.store import LicenseGate
from edgeserve.progress_bar import PromptProgress
from edgeserve.token_stream import TokenStream
from edgeserve.types import Message, RequestOutput, SamplingDefaults, SamplingParams

Prompt = str | Mapping[str, object]
"""A raw prompt: text, {"prompt": text} or {"prompt_token_ids": ids}."""

Conversation = str | Sequence[Message]
"""A chat: one user message as text, or messages in OpenAI's shape."""


class SamplingFields(TypedDict, total=False):
    """SamplingParams' fields, for calls that give them one by one."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float] | None
    seed: int | None
    n: int
    max_tokens: int | None
    min_tokens: int
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    logprobs: int | None
    prompt_logprobs: int | None
    skip_special_tokens: bool


class LLM:
    """A model and its engine.

    `model` is a path, a name of the catalogue, `hf:owner/repo[:file or quant]` or `pypi:name`.
    `device` is "auto" (the CPU), "cpu" or "oracle" (numpy in `dtype`); `num_threads` None is the
    physical cores. `kv_cache_memory` is bytes for keys and values; the context is
    `max_model_len`, or what the model was trained for and memory holds. `progress` hears of a
    download; `license_gate` is asked before a model is fetched whose terms must be accepted.
    Safe to call from several threads. Close it, or use it as a context manager.

    Raises ModelNotFoundError, DownloadError, ModelFileError, UnsupportedModelError.
    """

    def __init__(
        self,
        model: str,
        *,
        device: str = "auto",
        dtype: str = "float32",
        num_threads: int | None = None,
        max_model_len: int | None = None,
        kv_cache_memory: int | None = None,
        max_num_batched_tokens: int = 512,
        max_num_seqs: int = 64,
        chat_template: str | None = None,
        config: Config | None = None,
        progress: Progress | None = None,
        license_gate: LicenseGate | None = None,
    ) -> None:
        options = EngineOptions(
            device=device,
            dtype=dtype,
            num_threads=num_threads,
            max_model_len=max_model_len,
            kv_cache_memory=kv_cache_memory,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            chat_template=chat_template,
        )
        self._model = load_model(
            model,
            options,
            config=config or Config.from_environment(),
            clock=time.monotonic,
            progress=progress,
            license_gate=license_gate,
        )
        self._engine = SharedEngine(self._model.engine)
        self._numbers = itertools.count(1)

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
    def default_sampling(self) -> SamplingDefaults:
        """What stands in for sampling fields that a call leaves out."""
        return self._model.defaults

    @property
    def has_chat_template(self) -> bool:
        return self._model.template is not None

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | None = None,
        *,
        progress: bool | None = None,
        schema: object = None,
        **fields: Unpack[SamplingFields],
    ) -> list[RequestOutput]:
        """Continues raw prompts, all at once. One output per prompt, in order.

        Strings are raw: control tokens are parsed, BOS is added as the model wants it, no chat
        template is applied. `progress` shows a bar (by default for many prompts on a terminal).
        Raises InvalidRequestError or ContextLengthError before anything is computed.
        """
        _refuse_not_yet(schema=schema)
        params = _params(sampling_params, fields)
        requests: list[Request] = []
        for index, prompt in enumerate(_prompts(prompts)):
            with _naming_prompt(index):
                requests.append(self._raw_request(prompt, params))
        return self._run(requests, progress)

    def chat(
        self,
        messages: Conversation,
        sampling_params: SamplingParams | None = None,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, object] | None = None,
        schema: object = None,
        tools: Sequence[Mapping[str, object]] | None = None,
        **fields: Unpack[SamplingFields],
    ) -> RequestOutput:
        """Answers one conversation: a user's text, or messages. Single in, single out.

        `continue_final_message` goes on in the last message, where otherwise a new one begins.
        Raises TemplateError where the model has no chat template or it refuses the messages.
        """
        _refuse_not_yet(schema=schema, tools=tools)
        ids, text = self._render(
            messages, add_generation_prompt, continue_final_message, chat_template_kwargs
        )
        request = self._request(text, ids, _params(sampling_params, fields))
        return self._run([request], progress=False)[0]

    def stream(
        self,
        prompt: Conversation | Mapping[str, object],
        sampling_params: SamplingParams | None = None,
        *,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, object] | None = None,
        schema: object = None,
        tools: Sequence[Mapping[str, object]] | None = None,
        **fields: Unpack[SamplingFields],
    ) -> TokenStream:
        """Like `chat`, piece by piece. {"prompt": …} or {"prompt_token_ids": …} is raw.

        Closing the stream cancels the request. Raises what `generate` and `chat` do.
        """
        _refuse_not_yet(schema=schema, tools=tools)
        params = _params(sampling_params, fields)
        if isinstance(prompt, Mapping):
            request = self._raw_request(prompt, params)
        else:
            ids, text = self._render(prompt, None, continue_final_message, chat_template_kwargs)
            request = self._request(text, ids, params)
        self._engine.submit(request, wants_progress=True)
        return TokenStream(self._engine, request.request_id)

    def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Token ids of a raw text, as `generate` would read it."""
        return self._model.tokenizer.encode(
            text, parse_special=parse_special, add_special=add_special
        )

    def detokenize(self, token_ids: Sequence[int], *, skip_special: bool = False) -> str:
        """The text that tokens stand for; invalid UTF-8 becomes U+FFFD.

        Raises InvalidRequestError for an id outside the vocabulary.
        """
        vocab_size = self._model.tokenizer.vocab_size
        for index, token_id in enumerate(token_ids):
            if not 0 <= token_id < vocab_size:
                raise InvalidRequestError(
                    f"token_ids[{index}]", token_id, f"from 0 to {vocab_size - 1}"
                )
        return self._model.tokenizer.decode(token_ids, skip_special=skip_special)

    def close(self) -> None:
        """Drops live requests and gives memory back. Twice is fine."""
        self._engine.close()

    def _run(self, requests: Sequence[Request], progress: bool | None) -> list[RequestOutput]:
        outputs: list[RequestOutput] = []
        try:
            for index, request in enumerate(requests):
                with _naming_prompt(index):
                    self._engine.submit(request, wants_progress=False)
            with PromptProgress(len(requests), progress) as bar:
                for request in requests:
                    outputs.append(self._finish(request.request_id))
                    bar.advance(outputs[-1])
        finally:
            for request in requests:
                self._engine.forget(request.request_id)
        return outputs

    def _finish(self, request_id: str) -> RequestOutput:
        while True:
            for event in self._engine.events_of(request_id):
                match event:
                    case RequestFinished():
                        return event.output
                    case RequestFailed():
                        raise event.error
                    case RequestProgress():
                        pass

    def _request(self, text: str | None, ids: Sequence[int], params: SamplingParams) -> Request:
        seed = secrets.randbits(63) if params.seed is None else params.seed
        return Request(f"request-{next(self._numbers)}", text, tuple(ids), params, seed)

    def _raw_request(self, prompt: Prompt, params: SamplingParams) -> Request:
        text: object = prompt
        if isinstance(prompt, Mapping) and set(prompt) <= {"prompt", "prompt_token_ids"}:
            text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
            if ids is not None:
                label = text if isinstance(text, str) else None
                return self._request(label, _token_ids(ids), params)
        if not isinstance(text, str):
            raise InvalidRequestError(
                "prompt", prompt, 'a string, {"prompt": text} or {"prompt_token_ids": ids}'
            )
        if not text:
            raise InvalidRequestError("prompt", text, "at least one character")
        return self._request(text, self.tokenize(text), params)

    def _render(
        self,
        messages: Conversation,
        add_generation_prompt: bool | None,
        continue_final_message: bool,
        variables: Mapping[str, object] | None,
    ) -> tuple[list[int], str]:
        template = self._model.template
        if template is None:
            raise TemplateError(
                f"{self._model.name} has no chat template: it continues text and does not chat; "
                "use generate(), or give chat_template="
            )
        conversation: Sequence[Message] = (
            [{"role": "user", "content": messages}] if isinstance(messages, str) else messages  # pyright: ignore[reportAssignmentType]
        )
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        rendered = template.render(
            conversation,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=variables,
        )
        ids = self._model.tokenizer.encode(
            rendered.text,
            parse_special=True,
            add_special=not rendered.starts_with_bos,
            guard=rendered.guard,
        )
        return ids, rendered.plain


def _prompts(prompts: object) -> list[Prompt]:
    """One prompt or many; each is looked at when its turn comes."""
    if isinstance(prompts, (str, Mapping)):
        return [cast(Prompt, prompts)]
    if not isinstance(prompts, Iterable) or isinstance(prompts, (bytes, bytearray)):
        raise InvalidRequestError("prompts", cast(object, prompts), "a prompt, or a list of them")
    return list(cast(Iterable[Prompt], prompts))


def _params(params: object, fields: SamplingFields) -> SamplingParams:
    if params is None:
        return SamplingParams(**fields)
    if not isinstance(params, SamplingParams):
        raise InvalidRequestError("sampling_params", params, "a SamplingParams")
    if fields:
        raise InvalidRequestError(
            next(iter(fields)), "given twice", "in sampling_params or as a keyword, not both"
        )
    return params


def _refuse_not_yet(*, schema: object, tools: object = None) -> None:
    if schema is not None:
        raise NotYetError("schema=")
    if tools is not None:
        raise NotYetError("tools=")


@contextmanager
def _naming_prompt(index: int) -> Generator[None]:
    """Says which of many prompts an error is about."""
    try:
        yield
    except EdgeServeError as error:
        error.add_note(f"in prompts[{index}]")
        raise


def _token_ids(ids: object) -> list[int]:
    if not isinstance(ids, Iterable) or isinstance(ids, (str, bytes, Mapping)):
        raise InvalidRequestError("prompt_token_ids", cast(object, ids), "a list of token ids")
    found: list[int] = []
    for index, token_id in enumerate(cast(Iterable[object], ids)):
        if isinstance(token_id, bool) or not isinstance(token_id, SupportsIndex):
            raise InvalidRequestError(f"prompt_token_ids[{index}]", token_id, "an integer")
        found.append(operator.index(token_id))
    return found
