"""From what a caller gives - prompts, conversations, sampling fields - to an engine's requests.

Everything here is checked and named before anything is computed. Knows no engine.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import TypedDict, cast

from edgeserve.answer_holder import AnswerHolder, Held
from edgeserve.build import LoadedModel
from edgeserve.engine.live_request import Request
from edgeserve.errors import InvalidRequestError, NoPoolingError, TemplateError
from edgeserve.frozen import frozen
from edgeserve.pooling_params import POOLINGS
from edgeserve.prompts import Prompt, token_ids_of
from edgeserve.text.answer_reader import AnswerShape
from edgeserve.text.chat_forms import ChatForms, uses_tools
from edgeserve.text.chat_template import ChatTemplate, RenderedPrompt
from edgeserve.text.message_order import FittedMessages, MessageOrder
from edgeserve.text.sequence_breakers import sequence_breakers
from edgeserve.text.template_messages import checked_messages
from edgeserve.text.thinking import Thinking
from edgeserve.text.tool_descriptions import Tool, tool_choice_of, tools_of
from edgeserve.types import Constraint, Message, PoolingParams, SamplingParams

_MAX_PRIORITY = 1000

_NO_OUTPUT = SamplingParams(seed=0)

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


@frozen
class ChatFields:
    """What a chat may be asked beside its messages: `tools` as descriptions or as Tools, which of
    them (`tool_choice`), how to think, and the template's own `variables`, which win."""

    tools: Sequence[Mapping[str, object] | Tool] | None = None
    tool_choice: object = None
    parallel_tool_calls: bool = True
    thinking: Thinking = Thinking()
    variables: Mapping[str, object] | None = None


class RequestBuilder:
    """Makes requests to one model. Safe to use from several threads at once."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._numbers = itertools.count(1)
        self._holder = AnswerHolder(model.constraints, model.tokenizer)
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
                held = self._holder.text(params, schema)
                return self._request(label, token_ids_of(ids), held, priority)
        if not isinstance(text, str):
            raise InvalidRequestError(
                "prompt", prompt, 'a string, {"prompt": text} or {"prompt_token_ids": ids}'
            )
        if not text:
            raise InvalidRequestError("prompt", text, "at least one character")
        ids = self.tokenize(text, parse_special=parse_special, add_special=add_special)
        return self._request(text, ids, self._holder.text(params, schema), priority)

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
        return self._request(None, ids, self._holder.text(params, None), priority)

    def chat(
        self,
        messages: Conversation,
        params: SamplingParams,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        asked: ChatFields = ChatFields(),  # noqa: B008  frozen
        priority: int = 0,
        schema: object = None,
    ) -> Request:
        """Of a conversation, through the chat template."""
        tools = tools_of(asked.tools)
        choice = tool_choice_of(asked.tool_choice, tools)
        rendered = self.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            asked=asked,
        )
        ids = self.tokens_of(rendered)
        forms, offered = self._forms, choice.offered(tools)
        shape = forms.shape(rendered.plain, offered)
        if shape is not None:
            only = choice.mode == "required" and bool(offered)
            shape = replace(shape, shown_ids=self._shown_ids, calls_only=only)
        held = self._holder.chat(
            params, schema, shape, offered, choice, asked.parallel_tool_calls, asked.thinking
        )
        return self._request(rendered.plain, ids, held, priority, shape)

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
        asked: ChatFields = ChatFields(),  # noqa: B008  frozen
    ) -> RenderedPrompt:
        """A conversation's prompt, as the chat template writes it."""
        template, forms = self.template, self._forms
        conversation: Sequence[Message] = (
            [{"role": "user", "content": messages}] if isinstance(messages, str) else messages  # pyright: ignore[reportAssignmentType]
        )
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        tools = tools_of(asked.tools)
        offered = tool_choice_of(asked.tool_choice, tools).offered(tools)
        if uses_tools(conversation) or offered:
            checked_messages(conversation)
            adapted = forms.conversation(conversation, offered)
            if adapted != list(conversation):
                conversation = self.fitted(adapted).messages
        return template.render(
            conversation,
            tools=forms.template_tools(offered),
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables={**forms.variables(asked.thinking), **(asked.variables or {})} or None,
        )

    def fitted(self, messages: Sequence[Message]) -> FittedMessages:
        """Checked messages in an order that the template takes."""
        return self._order.fitted(messages)

    @cached_property
    def _order(self) -> MessageOrder:
        return MessageOrder(self.template.preview)

    @cached_property
    def _forms(self) -> ChatForms:
        return ChatForms(self.template)

    @cached_property
    def _shown_ids(self) -> frozenset[int]:
        """Control tokens by which answers are read."""
        tokenizer = self._model.tokenizer
        ids = (
            token_id
            for mark in self._forms.marks
            for token_id in tokenizer.encode(mark, parse_special=True, add_special=False)
        )
        return frozenset(filter(tokenizer.is_control, ids)) - tokenizer.stop_ids

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template. Raises TemplateError where it has none."""
        template = self._model.template
        if template is None:
            raise TemplateError(
                f"{self._model.name} has no chat template: it continues text and does not chat; "
                "use generate() (/v1/completions), or give chat_template= (--chat-template FILE)"
            )
        return template

    @property
    def thinks(self) -> bool:
        """Whether answers may begin with reasoning."""
        return self._model.template is not None and self._forms.thinks

    def pooling(
        self, pooling: str | None, dimensions: int | None, normalize: bool
    ) -> PoolingParams:
        """How a vector is made: as asked for here, or of the model.

        Raises NoPoolingError where neither says, InvalidRequestError.
        """
        if pooling is None and self._model.pooling not in POOLINGS:
            raise NoPoolingError(self._model.name, self._model.pooling)
        params = PoolingParams(pooling or self._model.pooling, dimensions, normalize)  # pyright: ignore[reportArgumentType]
        width = self._model.hidden_width
        if dimensions is not None and dimensions > width:
            raise InvalidRequestError("dimensions", dimensions, f"at most {width}")
        return params

    def embedding(self, prompt: object, pooling: PoolingParams, priority: int = 0) -> Request:
        """Of a text, as `raw` reads it, or of a list of token ids."""
        if isinstance(prompt, Iterable) and not isinstance(prompt, str | bytes | Mapping):
            prompt = {"prompt_token_ids": cast(object, prompt)}
        request = self.raw(cast(Prompt, prompt), _NO_OUTPUT, priority)
        return replace(request, pooling=pooling)

    def either(
        self,
        prompt: Conversation | Mapping[str, object],
        params: SamplingParams,
        *,
        continue_final_message: bool,
        asked: ChatFields,
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
            asked=asked,
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
        held: Held,
        priority: object,
        shape: AnswerShape | None = None,
    ) -> Request:
        params = held.params
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise InvalidRequestError("priority", priority, "an integer")
        if abs(priority) > _MAX_PRIORITY:
            allowed = f"from {-_MAX_PRIORITY} to {_MAX_PRIORITY}"
            raise InvalidRequestError("priority", priority, allowed)
        seed = draw_seed() if params.seed is None else params.seed
        request_id = f"request-{next(self._numbers)}"
        texts = params.breaker_texts
        breakers = self._breakers(texts) if texts else None
        return Request(
            request_id,
            text,
            tuple(ids),
            params,
            seed,
            priority,
            breakers,
            held.constraint,
            held.parse,
            shape,
            held.relaxed,
        )


def draw_seed() -> int:
    """For a request that named none: 63 bits of the system's own."""
    return int.from_bytes(os.urandom(8), "little") >> 1


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
