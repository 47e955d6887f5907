"""The events of a streamed chat completion, as OpenAI's and other servers write them.

Every field may be missing: servers differ in what they tell. Knows nobody who reads them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Likely(msgspec.Struct):
    token: str
    logprob: float


class Token(Likely):
    top_logprobs: list[Likely] | None = None


class Logprobs(msgspec.Struct):
    content: list[Token] | None = None


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class Choice(msgspec.Struct):
    delta: Delta | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class AnswerDetails(msgspec.Struct):
    reasoning_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class UsageCounts(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: AnswerDetails | None = None


class ServerTimings(msgspec.Struct):
    predicted_per_second: float | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class Progress(msgspec.Struct):
    total: int
    processed: int
    cache: int = 0
    time_ms: float = 0.0


class Chunk(msgspec.Struct):
    choices: list[Choice] | None = None
    usage: UsageCounts | None = None
    timings: ServerTimings | None = None
    prompt_progress: Progress | None = None
    error: Any = None


CHUNK = msgspec.json.Decoder(Chunk)
