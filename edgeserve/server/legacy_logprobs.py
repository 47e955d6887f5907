"""Logprobs as `/v1/completions` has them: four lists, an entry a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from edgeserve.server.shapes import finite
from edgeserve.types import LogprobsAt


class LegacyLogprobs(TypedDict):
    """As it is sent. Offsets count the characters of the tokens before."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


def legacy_logprobs(
    entries: Sequence[LogprobsAt | None], num_top: int, first_text: str = "", offset: int = 0
) -> LegacyLogprobs:
    """A None among `entries`, the first of a prompt, has a text but no logprob."""
    tokens: list[str] = []
    logprobs: list[float | None] = []
    top: list[dict[str, float] | None] = []
    offsets: list[int] = []
    for entry in entries:
        offsets.append(offset)
        if entry is None:
            tokens.append(first_text)
            logprobs.append(None)
            top.append(None)
        else:
            chosen = next(iter(entry.values()))
            tokens.append(chosen.decoded_token)
            logprobs.append(finite(chosen.logprob))
            top.append(_likeliest(entry, num_top))
        offset += len(tokens[-1])
    return {
        "tokens": tokens,
        "token_logprobs": logprobs,
        "top_logprobs": top,
        "text_offset": offsets,
    }


def _likeliest(entry: LogprobsAt, num_top: int) -> dict[str, float]:
    """By text, where the likelier of two tokens that read alike wins."""
    found: dict[str, float] = {}
    for logprob in sorted(entry.values(), key=lambda logprob: logprob.rank):
        if logprob.rank <= num_top:
            found.setdefault(logprob.decoded_token, finite(logprob.logprob))
    return found
