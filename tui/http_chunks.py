"""The events of a streamed chat completion, read as the chat's. Trusts no server in anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from edgeserve.completion_chunks import (
    CHUNK,
    AnswerDetails,
    Choice,
    Delta,
    Logprobs,
    Progress,
    PromptDetails,
    ServerTimings,
    Token,
    UsageCounts,
)
from edgeserve.errors import AnswerBrokenError
from edgeserve.remote_models import error_message
from edgeserve.tui.client import (
    AnswerEnd,
    AnswerEvent,
    AnswerPiece,
    FinishReason,
    PromptReading,
    TokenFact,
)
from edgeserve.tui.reading_pace import ReadingPace

DONE = b"[DONE]"


class ChunkReader:
    """What has come of one answer. `clock` gives seconds.

    `echo` is the message that the answer goes on with: llama-server sends it first, once more.
    """

    def __init__(
        self, url: str, seed: int | None, clock: Callable[[], float], echo: str = ""
    ) -> None:
        self._url = url
        self._seed = seed
        self._clock = clock
        self._asked_at = clock()
        self._first_at: float | None = None
        self._last_at = self._asked_at
        self._pace = ReadingPace()
        self._is_reading = False
        self._progress: Progress | None = None
        self._facts: list[TokenFact] = []
        self._num_facts = 0
        self._usage = UsageCounts()
        self._timings = ServerTimings()
        self._finish_reason: str | None = None
        self._echo = echo
        self._held = ""  # what may yet be the echo

    @property
    def has_finished(self) -> bool:
        """Whether the server said that the answer is whole."""
        return self._finish_reason is not None

    @property
    def has_begun(self) -> bool:
        return self._first_at is not None

    def take(self, data: bytes) -> Sequence[AnswerEvent]:
        """One event's data. Raises AnswerBrokenError where it tells of an error, or nothing."""
        try:
            chunk = CHUNK.decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise AnswerBrokenError(self._url, f"it sent what is no answer ({error})") from None
        if chunk.error is not None:
            raise AnswerBrokenError(self._url, f"it said {error_message(data)!r}")
        self._usage = chunk.usage or self._usage
        self._timings = chunk.timings or self._timings
        found: list[AnswerEvent] = []
        if chunk.prompt_progress is not None:
            found.append(self._reading(chunk.prompt_progress))
        for choice in (chunk.choices or [])[:1]:
            found += self._pieces(choice)
        return found

    def rest(self) -> Sequence[AnswerPiece]:
        """Tokens that came without text, and text that is no echo after all."""
        facts, self._facts = tuple(self._facts), []
        text = self._held if self._echo else ""
        self._held = self._echo = ""
        return [AnswerPiece(text, tokens=facts)] if text or facts else []

    def ended(self) -> AnswerEnd:
        reason: FinishReason = "length" if self._finish_reason == "length" else "stop"
        return self._end(reason)

    def stopped(self) -> AnswerEnd:
        return self._end("stopped")

    def _end(self, reason: FinishReason) -> AnswerEnd:
        usage, timings = self._usage, self._timings
        details = usage.completion_tokens_details or AnswerDetails()
        cached = (usage.prompt_tokens_details or PromptDetails()).cached_tokens
        progress = self._progress
        accepted = timings.draft_n_accepted or details.accepted_prediction_tokens or 0
        drafted = timings.draft_n or accepted + (details.rejected_prediction_tokens or 0)
        num_answer = usage.completion_tokens
        if num_answer is None and self._num_facts:
            num_answer = self._num_facts
        return AnswerEnd(
            reason,
            prompt_tokens=usage.prompt_tokens or (None if progress is None else progress.total),
            cached_tokens=cached if progress is None or cached is not None else progress.cache,
            answer_tokens=num_answer,
            reasoning_tokens=details.reasoning_tokens or 0,
            num_draft_tokens=drafted,
            num_accepted_tokens=accepted,
            first_token_ms=self._first_token_ms(),
            tokens_per_s=timings.predicted_per_second or self._rate(num_answer),
            seed=self._seed,
        )

    def _first_token_ms(self) -> float | None:
        return None if self._first_at is None else (self._first_at - self._asked_at) * 1e3

    def _rate(self, num_tokens: int | None) -> float | None:
        if num_tokens is None or num_tokens < 2 or self._first_at is None:
            return None
        seconds = self._last_at - self._first_at
        return (num_tokens - 1) / seconds if seconds > 0 else None

    def _reading(self, progress: Progress) -> PromptReading:
        if not self._is_reading:
            self._is_reading = True
            self._pace.note(progress.cache, 0.0)
        self._pace.note(progress.processed, progress.time_ms / 1e3)
        self._progress = progress
        left = self._pace.seconds_left(progress.total)
        return PromptReading(progress.total, progress.cache, progress.processed, left)

    def _pieces(self, choice: Choice) -> Sequence[AnswerPiece]:
        self._finish_reason = choice.finish_reason or self._finish_reason
        tokens = (choice.logprobs or Logprobs()).content or []
        self._facts += [_fact(token) for token in tokens]
        self._num_facts += len(tokens)
        delta = choice.delta or Delta()
        texts = [
            (text, is_reasoning)
            for text, is_reasoning in (
                (delta.reasoning_content or delta.reasoning, True),
                (self._beyond_echo(delta.content or ""), False),
            )
            if text
        ]
        if not texts:
            return []
        self._last_at = self._clock()
        if self._first_at is None:
            self._first_at = self._last_at
        facts, self._facts = tuple(self._facts), []
        pieces = [AnswerPiece(text, is_reasoning) for text, is_reasoning in texts[:-1]]
        return [*pieces, AnswerPiece(*texts[-1], tokens=facts)]

    def _beyond_echo(self, text: str) -> str:
        if not self._echo:
            return text
        self._held += text
        if self._echo.startswith(self._held) and self._held != self._echo:
            return ""
        beyond, self._echo = self._held.removeprefix(self._echo), ""
        return beyond


def _fact(token: Token) -> TokenFact:
    likely = tuple((each.token, _share(each.logprob)) for each in token.top_logprobs or ())
    return TokenFact(token.token, _share(token.logprob), likely)


def _share(logprob: float) -> float:
    return math.exp(min(0.0, logprob)) if not math.isnan(logprob) else 0.0
