"""From tokens to what a caller sees: text that is never half a character, stop strings, chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from edgeserve.engine.sequence import Sequence
from edgeserve.engine.stop_strings import StopStrings
from edgeserve.errors import EdgeServeError
from edgeserve.frozen import frozen
from edgeserve.runner.batch import TokenResult
from edgeserve.text.detokenizer import IncrementalDetokenizer
from edgeserve.text.tokenizer import Tokenizer
from edgeserve.types import (
    CompletionOutput,
    Logprob,
    LogprobsAt,
    RequestOutput,
    TokenChunk,
)


@frozen
class RequestProgress:
    """New tokens of one choice."""

    request_id: str
    chunk: TokenChunk


@frozen
class PromptRead:
    """How far a prompt is read, for a request that wants to know. Of `total` tokens, `cached` were
    found and `processed`, these among them, are done; times count from its first step."""

    request_id: str
    total: int
    cached: int
    processed: int
    time_ms: float


@frozen
class RequestFinished:
    """All choices ended."""

    request_id: str
    output: RequestOutput


@frozen
class RequestFailed:
    """The request ended with an error; nobody else's did."""

    request_id: str
    error: EdgeServeError


EngineEvent = RequestProgress | PromptRead | RequestFinished | RequestFailed


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
    stop_reason: str | int | None = None
    logprobs: list[LogprobsAt] = field(default_factory=list[LogprobsAt])
    prompt_logprobs: list[LogprobsAt | None] = field(
        default_factory=lambda: list[LogprobsAt | None]([None])
    )
    cumulative_logprob: float = 0.0
    _pieces: list[str] = field(default_factory=list[str])
    _detokenizer: IncrementalDetokenizer = field(init=False)
    _stops: StopStrings | None = field(init=False)

    def __post_init__(self) -> None:
        params = self.sequence.params
        self._detokenizer = IncrementalDetokenizer(
            self.tokenizer, skip_special=params.skip_special_tokens
        )
        self._stops = StopStrings(params.stop_strings) if params.stop_strings else None

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def accept(self, result: TokenResult) -> TokenChunk:
        """Takes the token just appended to the sequence; decides whether it was the last."""
        sequence = self.sequence
        token_id = result.token_id
        logprobs = self._note_logprobs(result)
        finish = sequence.finish_after(token_id)
        text, stopped = "", False
        if finish == "stop":
            self.stop_reason = token_id
        else:
            text, stopped = self._pass_stops(self._detokenizer.feed([token_id]))
        if finish is not None and not stopped:
            rest, stopped = self._flush()
            text += rest
        sequence.finish_reason = "stop" if stopped else finish
        self._pieces.append(text)
        return TokenChunk(sequence.index, text, (token_id,), logprobs, sequence.finish_reason)

    def score_prompt(self, result: TokenResult) -> None:
        self.prompt_logprobs.append(logprobs_at(self.tokenizer, result))

    def completion(self, parse: Callable[[str], object] | None = None) -> CompletionOutput:
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
            parse=parse,
        )

    def _note_logprobs(self, result: TokenResult) -> tuple[LogprobsAt, ...] | None:
        if self.sequence.params.logprobs is None:
            return None
        entry = logprobs_at(self.tokenizer, result)
        self.logprobs.append(entry)
        self.cumulative_logprob += result.logprob
        return (entry,)

    def _pass_stops(self, text: str) -> tuple[str, bool]:
        """(what may go out, whether a stop string was found). Before `min_tokens` nothing is."""
        stops, sequence = self._stops, self.sequence
        if stops is None or sequence.num_output_tokens <= sequence.params.min_tokens:
            return text, False
        out, stop = stops.feed(text)
        if stop is not None:
            self.stop_reason = stop
        return out, stop is not None

    def _flush(self) -> tuple[str, bool]:
        """What detokenizer and stop strings held back, once no more can come.

        A character that was cut becomes U+FFFD, which may itself complete a stop string.
        """
        text, stopped = self._pass_stops(self._detokenizer.finish())
        held = "" if stopped or self._stops is None else self._stops.finish()
        return text + held, stopped
