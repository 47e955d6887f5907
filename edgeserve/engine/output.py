"""From tokens to what a caller sees: text that is never half a character, stop strings, chunks."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgeserve.engine.sequence import Sequence
from edgeserve.engine.stop_strings import StopStrings
from edgeserve.errors import EdgeServeError
from edgeserve.runner.batch import TokenResult
from edgeserve.text.detokenizer import IncrementalDetokenizer
from edgeserve.text.tokenizer import Tokenizer
from edgeserve.types import (
    CompletionOutput,
    FinishReason,
    Logprob,
    LogprobsAt,
    RequestOutput,
    TokenChunk,
)


@dataclass(frozen=True, slots=True)
class RequestProgress:
    """New tokens of one choice."""

    request_id: str
    chunk: TokenChunk


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """All choices ended."""

    request_id: str
    output: RequestOutput


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The request ended with an error; nobody else's did."""

    request_id: str
    error: EdgeServeError


EngineEvent = RequestProgress | RequestFinished | RequestFailed


def logprobs_at(tokenizer: Tokenizer, result: TokenResult) -> LogprobsAt:
    """A position's logprobs: the chosen token first, then the likeliest."""
    found = {
        result.token_id: Logprob(result.logprob, result.rank, tokenizer.token_text(result.token_id))
    }
    for rank, (token_id, logprob) in enumerate(result.top, start=1):
        text = tokenizer.token_text(token_id)
        found.setdefault(token_id, Logprob(logprob, rank, text))
    return found


@dataclass(slots=True)
class ChoiceOutput:
    """One sequence's text and logprobs as they grow."""

    sequence: Sequence
    tokenizer: Tokenizer
    text: str = ""
    stop_reason: str | int | None = None
    logprobs: list[LogprobsAt] = field(default_factory=list[LogprobsAt])
    prompt_logprobs: list[LogprobsAt | None] = field(
        default_factory=lambda: list[LogprobsAt | None]([None])
    )
    cumulative_logprob: float = 0.0
    _detokenizer: IncrementalDetokenizer = field(init=False)
    _stops: StopStrings = field(init=False)

    def __post_init__(self) -> None:
        params = self.sequence.params
        self._detokenizer = IncrementalDetokenizer(
            self.tokenizer, skip_special=params.skip_special_tokens
        )
        self._stops = StopStrings(params.stop_strings)

    def accept(self, result: TokenResult) -> TokenChunk:
        """Takes the token just appended to the sequence; decides whether it was the last."""
        sequence = self.sequence
        token_id = result.token_id
        logprobs = self._note_logprobs(result)
        finish = sequence.finish_after(token_id)
        if finish == "stop":
            self.stop_reason = token_id
            text = ""
        else:
            text, stop = self._stops.feed(self._detokenizer.feed([token_id]))
            finish, text = self._after_stop_string(finish, text, stop)
        if finish is not None and not isinstance(self.stop_reason, str):
            text += self._flush()
        sequence.finish_reason = finish
        self.text += text
        return TokenChunk(sequence.index, text, (token_id,), logprobs, finish)

    def score_prompt(self, result: TokenResult) -> None:
        self.prompt_logprobs.append(logprobs_at(self.tokenizer, result))

    def completion(self) -> CompletionOutput:
        sequence = self.sequence
        wanted = sequence.params.logprobs is not None
        return CompletionOutput(
            index=sequence.index,
            text=self.text,
            token_ids=tuple(sequence.output_token_ids),
            finish_reason=sequence.finish_reason,
            stop_reason=self.stop_reason,
            logprobs=tuple(self.logprobs) if wanted else None,
            cumulative_logprob=self.cumulative_logprob if wanted else None,
            seed=sequence.seed,
        )

    def _note_logprobs(self, result: TokenResult) -> tuple[LogprobsAt, ...] | None:
        if self.sequence.params.logprobs is None:
            return None
        entry = logprobs_at(self.tokenizer, result)
        self.logprobs.append(entry)
        self.cumulative_logprob += result.logprob
        return (entry,)

    def _after_stop_string(
        self, finish: FinishReason | None, text: str, stop: str | None
    ) -> tuple[FinishReason | None, str]:
        if stop is None:
            return finish, text
        self.stop_reason = stop
        return "stop", text

    def _flush(self) -> str:
        """What detokenizer and stop strings held back, once no more can come.

        A character that was cut becomes U+FFFD, which may itself complete a stop string.
        """
        text, stop = self._stops.feed(self._detokenizer.finish())
        if stop is not None:
            self.stop_reason = stop
            return text
        return text + self._stops.finish()
