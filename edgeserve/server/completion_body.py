"""The body of `/v1/completions`, read into requests for the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from edgeserve import sampling_fields
from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.server.constraint_fields import constraint_of
from edgeserve.server.fields import Fields
from edgeserve.server.sampling import max_tokens_of, params_with, sampling_fields_of
from edgeserve.types import SamplingParams

_MAX_LOGPROBS = 20
_MAX_PROMPTS = 1024

RawPrompt = str | tuple[int, ...]


@frozen
class CompletionBody:
    """`max_tokens` of `params` is at least 1 where the request wants 0: `only_echoes` says so."""

    prompts: tuple[RawPrompt, ...]
    params: SamplingParams
    suffix: str | None
    middle: str
    constraint_field: str | None
    echoes: bool
    only_echoes: bool
    streams: bool
    includes_usage: bool
    parse_special: bool
    add_special_tokens: bool
    priority: int


class ReadBody(Protocol):
    def __call__(self, body: Fields, *, vocab_size: int) -> CompletionBody: ...


def completion_body(body: Fields, *, vocab_size: int) -> CompletionBody:
    """Raises InvalidRequestError naming the field, and the index of a prompt that is wrong."""
    prompts = prompts_of(body.raw("prompt"), vocab_size)
    return _body(body, prompts, body.text("suffix") or None, "", vocab_size)


def infill_body(body: Fields, *, vocab_size: int) -> CompletionBody:
    """llama-server's `/infill`: a prefix, a suffix, and in `prompt` how the middle begins."""
    prefix, suffix = body.text("input_prefix") or "", body.text("input_suffix") or ""
    return _body(body, (prefix,), suffix, body.text("prompt") or "", vocab_size)


def _body(
    body: Fields,
    prompts: tuple[RawPrompt, ...],
    suffix: str | None,
    middle: str,
    vocab_size: int,
) -> CompletionBody:
    wish = constraint_of(body)
    echoes = body.flag("echo") or False
    names = ("max_completion_tokens", "max_tokens", "n_predict")
    max_tokens = max_tokens_of(body, *names, may_be_zero=echoes)
    streams = body.flag("stream") or False
    num_logprobs = _num_logprobs(body)
    if echoes and streams and num_logprobs is not None:
        raise InvalidRequestError("echo", True, "off where logprobs are to be streamed")
    options = body.object("stream_options")
    parse_special = body.flag("parse_special")
    add_special = body.flag("add_special_tokens")
    return CompletionBody(
        prompts=prompts,
        params=params_with(
            sampling_fields_of(body, vocab_size=vocab_size),
            max_tokens=1 if max_tokens == 0 else max_tokens,
            logprobs=num_logprobs,
            constraint=None if wish is None else wish.constraint,
            prompt_logprobs=num_logprobs if echoes else None,
        ),
        suffix=suffix,
        middle=middle,
        echoes=echoes,
        constraint_field=None if wish is None else wish.where,
        only_echoes=max_tokens == 0,
        streams=streams,
        includes_usage=options is not None and options.flag("include_usage") is True,
        parse_special=parse_special is not False,
        add_special_tokens=add_special is not False,
        priority=body.integer("priority") or 0,
    )


def prompts_of(
    value: object, vocab_size: int, name: str = "prompt", most: int = _MAX_PROMPTS
) -> tuple[RawPrompt, ...]:
    """A text, texts, token ids or lists of them."""
    if isinstance(value, str):
        return (_text(name, value),)
    if not isinstance(value, list) or not value:
        raise InvalidRequestError(
            name, cast(object, value), "a string, strings, token ids, or lists of them"
        )
    items = cast("list[object]", value)
    if len(items) > most and not _is_number(items[0]):
        raise InvalidRequestError(name, len(items), f"at most {most:,} prompts")
    if _is_number(items[0]):
        return (_ids(name, items, vocab_size),)
    return tuple(_prompt(f"{name}[{at}]", item, vocab_size) for at, item in enumerate(items))


def _prompt(name: str, item: object, vocab_size: int) -> RawPrompt:
    if isinstance(item, str):
        return _text(name, item)
    if isinstance(item, list):
        return _ids(name, cast("list[object]", item), vocab_size)
    raise InvalidRequestError(name, item, "a string, or a list of token ids")


def _text(name: str, text: str) -> str:
    if not text:
        raise InvalidRequestError(name, text, "at least one character")
    return text


def _ids(name: str, items: Sequence[object], vocab_size: int) -> tuple[int, ...]:
    if not items:
        raise InvalidRequestError(name, [], "at least one token id")
    if set(map(type, items)) == {int}:  # a tenth of the time of looking at each
        ids = cast("tuple[int, ...]", tuple(items))
        if min(ids) >= 0 and max(ids) < vocab_size:
            return ids
    return tuple(
        sampling_fields.integer(f"{name}[{at}]", item, 0, vocab_size - 1)
        for at, item in enumerate(items)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _num_logprobs(body: Fields) -> int | None:
    if body.raw("logprobs") is False:
        return None
    return body.integer("logprobs", 0, _MAX_LOGPROBS)
