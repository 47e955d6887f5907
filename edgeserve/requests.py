"""From what a caller gives - prompts, conversations, sampling fields - to an engine's requests.

Everything here is checked and named before anything is computed. Knows no engine.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from typing import SupportsIndex, TypedDict, cast

from edgeserve.answer_schema import held_to
from edgeserve.build import LoadedModel
from edgeserve.engine.live_request import Request
from edgeserve.errors import EdgeServeError, InvalidRequestError, NotYetError, TemplateError
from edgeserve.text.chat_template import ChatTemplate, RenderedPrompt
from edgeserve.text.message_order import FittedMessages, MessageOrder
from edgeserve.text.sequence_breakers import sequence_breakers
from edgeserve.types import Constraint, Message, SamplingParams

_MAX_PRIORITY = 1000

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
    dynatemp_range: float | None
    dynatemp_exponent: float | None
    typical_p: float | None
    top_n_sigma: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Sequence[str] | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    repeat_last_n: int | None
    min_keep: int | None
    samplers: Sequence[str] | None
    constraint: Constraint | None


class RequestBuilder:
    """Makes requests to one model. Safe to use from several threads at once."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._numbers = itertools.count(1)
        self._breakers = lru_cache(maxsize=8)(partial(sequence_breakers, model.tokenizer))

    def raw(
        self,
        prompt: Prompt,
        params: SamplingParams,
        priority: int = 0,
        *,
        parse_special: bool = True,
        add_special: bool = True,
        schema: object = None,
    ) -> Request:
        """Of a raw prompt: control tokens are parsed, BOS is added as the model wants it."""
        text: object = prompt
        if isinstance(prompt, Mapping) and set(prompt) <= {"prompt", "prompt_token_ids"}:
            text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
            if ids is not None:
                label = text if isinstance(text, str) else None
                return self._request(label, _token_ids(ids), params, priority, schema)
        if not isinstance(text, str):
            raise InvalidRequestError(
                "prompt", prompt, 'a string, {"prompt": text} or {"prompt_token_ids": ids}'
            )
        if not text:
            raise InvalidRequestError("prompt", text, "at least one character")
        ids = self.tokenize(text, parse_special=parse_special, add_special=add_special)
        return self._request(text, ids, params, priority, schema)

    def infill(
        self,
        texts: tuple[str, str, str],
        params: SamplingParams,
        priority: int = 0,
    ) -> Request:
        """Of a prefix, a suffix, and how what is to stand between them begins."""
        prefix, suffix, middle = texts
        ids = self._model.tokenizer.encode_infill(prefix, suffix, middle)
        if ids is None:
            allowed = "left out: this model has no tokens for filling in"
            raise InvalidRequestError("suffix", suffix, allowed)
        return self._request(None, ids, params, priority, None)

    def chat(
        self,
        messages: Conversation,
        params: SamplingParams,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, object]] | None = None,
        variables: Mapping[str, object] | None = None,
        priority: int = 0,
        schema: object = None,
    ) -> Request:
        """Of a conversation, through the chat template; `variables` are the template's own."""
        rendered = self.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            variables=variables,
        )
        ids = self.tokens_of(rendered)
        return self._request(rendered.plain, ids, params, priority, schema)

    def tokens_of(self, rendered: RenderedPrompt) -> list[int]:
        """A rendered prompt's tokens: control tokens are the template's, never a message's."""
        return self._model.tokenizer.encode(
            rendered.text,
            parse_special=True,
            add_special=not rendered.starts_with_bos,
            guard=rendered.guard,
        )

    def render(
        self,
        messages: Conversation,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, object]] | None = None,
        variables: Mapping[str, object] | None = None,
    ) -> RenderedPrompt:
        """A conversation's prompt, as the chat template writes it."""
        template = self.template
        conversation: Sequence[Message] = (
            [{"role": "user", "content": messages}] if isinstance(messages, str) else messages  # pyright: ignore[reportAssignmentType]
        )
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        return template.render(
            conversation,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=variables,
        )

    def fitted(self, messages: Sequence[Message]) -> FittedMessages:
        """Checked messages in an order that the template takes."""
        return self._order.fitted(messages)

    @cached_property
    def _order(self) -> MessageOrder:
        return MessageOrder(self.template.preview)

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template. Raises TemplateError where it has none."""
        template = self._model.template
        if template is None:
            raise TemplateError(
                f"{self._model.name} has no chat template: it continues text and does not chat; "
                "use generate(), or give chat_template="
            )
        return template

    def either(
        self,
        prompt: Conversation | Mapping[str, object],
        params: SamplingParams,
        *,
        continue_final_message: bool,
        variables: Mapping[str, object] | None,
        priority: int = 0,
        schema: object = None,
    ) -> Request:
        """Of a conversation, or of a raw prompt in a mapping."""
        if isinstance(prompt, Mapping):
            return self.raw(prompt, params, priority, schema=schema)
        return self.chat(
            prompt,
            params,
            continue_final_message=continue_final_message,
            variables=variables,
            priority=priority,
            schema=schema,
        )

    def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        return self._model.tokenizer.encode(
            text, parse_special=parse_special, add_special=add_special
        )

    def detokenize(self, token_ids: Sequence[int], *, skip_special: bool = False) -> str:
        vocab_size = self._model.tokenizer.vocab_size
        for index, token_id in enumerate(token_ids):
            if not 0 <= token_id < vocab_size:
                raise InvalidRequestError(
                    f"token_ids[{index}]", token_id, f"from 0 to {vocab_size - 1}"
                )
        return self._model.tokenizer.decode(token_ids, skip_special=skip_special)

    def _request(
        self,
        text: str | None,
        ids: Sequence[int],
        params: SamplingParams,
        priority: object,
        schema: object = None,
    ) -> Request:
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise InvalidRequestError("priority", priority, "an integer")
        if abs(priority) > _MAX_PRIORITY:
            allowed = f"from {-_MAX_PRIORITY} to {_MAX_PRIORITY}"
            raise InvalidRequestError("priority", priority, allowed)
        seed = int.from_bytes(os.urandom(8), "little") >> 1 if params.seed is None else params.seed
        request_id = f"request-{next(self._numbers)}"
        texts = params.breaker_texts
        breakers = self._breakers(texts) if texts else None
        params, parse = held_to(params, schema)
        asked = params.constraint
        constraint = None if asked is None else self._model.constraints.compile(asked)
        return Request(
            request_id, text, tuple(ids), params, seed, priority, breakers, constraint, parse
        )


def prompts_of(prompts: object) -> list[Prompt]:
    """One prompt or many; each is looked at when its turn comes."""
    if isinstance(prompts, (str, Mapping)):
        return [cast(Prompt, prompts)]
    if not isinstance(prompts, Iterable) or isinstance(prompts, (bytes, bytearray)):
        raise InvalidRequestError("prompts", cast(object, prompts), "a prompt, or a list of them")
    return list(cast(Iterable[Prompt], prompts))


def params_of(params: object, fields: SamplingFields) -> SamplingParams:
    """One SamplingParams, given whole or field by field."""
    if params is None:
        return SamplingParams(**fields)
    if not isinstance(params, SamplingParams):
        raise InvalidRequestError("sampling_params", params, "a SamplingParams")
    if fields:
        raise InvalidRequestError(
            next(iter(fields)), "given twice", "in sampling_params or as a keyword, not both"
        )
    return params


def refuse_not_yet(*, tools: object = None) -> None:
    """Arguments that have their place but no effect yet are an error, never ignored."""
    if tools is not None:
        raise NotYetError("tools=")


@contextmanager
def naming_prompt(index: int) -> Generator[None]:
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
