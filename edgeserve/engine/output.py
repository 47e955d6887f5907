"""From tokens to what a caller sees: text that is never half a character, stop strings, chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from edgeserve.engine.sequence import Sequence
from edgeserve.engine.stop_strings import StopStrings
from edgeserve.errors import EdgeServeError
from edgeserve.frozen import frozen
from edgeserve.runner.batch import TokenResult
from edgeserve.text.answer_reader import AnswerReader, AnswerShape
from edgeserve.text.detokenizer import IncrementalDetokenizer
from edgeserve.text.tokenizer import Tokenizer
from edgeserve.types import (
    AnswerPart,
    CompletionOutput,
    ContentDelta,
    EmbeddingOutput,
    Logprob,
    LogprobsAt,
    ReasoningDelta,
    RequestOutput,
    TokenChunk,
    ToolCallBegun,
    calls_in,
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
class RequestEmbedded:
    """The prompt's vector is there, which is all that was asked for."""

    request_id: str
    output: EmbeddingOutput


@frozen
class RequestFailed:
    """The request ended with an error; nobody else's did."""

    request_id: str
    error: EdgeServeError


EngineEvent = RequestProgress | PromptRead | RequestFinished | RequestEmbedded | RequestFailed


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
    """One sequence's text and logprobs as they grow. Stop strings are looked for in the answer's
    text alone, not in reasoning or in arguments of tools, which `shape` tells from it."""

    sequence: Sequence
    tokenizer: Tokenizer
    shape: AnswerShape | None = None
    stop_reason: str | int | None = None
    logprobs: list[LogprobsAt] = field(default_factory=list[LogprobsAt])
    prompt_logprobs: list[LogprobsAt | None] = field(
        default_factory=lambda: list[LogprobsAt | None]([None])
    )
    cumulative_logprob: float = 0.0
    num_reasoning_tokens: int = 0
    _parts: list[AnswerPart] = field(default_factory=list[AnswerPart])
    _detokenizer: IncrementalDetokenizer = field(init=False)
    _stops: StopStrings | None = field(init=False)
    _reader: AnswerReader | None = field(init=False)

    def __post_init__(self) -> None:
        params = self.sequence.params
        self._reader = None if self.shape is None else AnswerReader(self.shape)
        self._detokenizer = IncrementalDetokenizer(
            self.tokenizer,
            skip_special=params.skip_special_tokens,
            shown_ids=frozenset() if self.shape is None else self.shape.shown_ids,
        )
        self._stops = StopStrings(params.stop_strings) if params.stop_strings else None

    @property
    def text(self) -> str:
        return _text_in(self._parts)

    def accept(self, result: TokenResult, drafted: bool = False) -> TokenChunk:
        """Takes the token just appended to the sequence; decides whether it was the last."""
        sequence = self.sequence
        token_id = result.token_id
        logprobs = self._note_logprobs(result)
        finish = sequence.finish_after(token_id)
        thought = self._thinks
        parts: list[AnswerPart] = []
        stopped = False
        if finish == "stop":
            self.stop_reason = token_id
        else:
            parts, stopped = self._read(self._detokenizer.feed([token_id]))
        self.num_reasoning_tokens += thought or self._thinks
        if finish is not None and not stopped:
            rest, stopped = self._flush()
            parts += rest
        sequence.finish_reason = "stop" if stopped else finish
        self._parts += parts
        shown = () if self._reader is None else tuple(parts)
        text = _text_in(parts)
        return TokenChunk(
            sequence.index, text, (token_id,), logprobs, sequence.finish_reason, shown, drafted
        )

    def score_prompt(self, result: TokenResult) -> None:
        self.prompt_logprobs.append(logprobs_at(self.tokenizer, result))

    def completion(self, parse: Callable[[str], object] | None = None) -> CompletionOutput:
        sequence = self.sequence
        wanted = sequence.params.logprobs is not None
        return CompletionOutput(
            index=sequence.index,
            text=_text_in(self._parts),
            token_ids=tuple(sequence.output_token_ids),
            finish_reason=sequence.finish_reason,
            stop_reason=self.stop_reason,
            logprobs=tuple(self.logprobs) if wanted else None,
            cumulative_logprob=self.cumulative_logprob if wanted else None,
            seed=sequence.seed,
            reasoning="".join(p.text for p in self._parts if isinstance(p, ReasoningDelta)),
            tool_calls=calls_in(self._parts),
            num_reasoning_tokens=self.num_reasoning_tokens,
            parse=parse,
        )

    def _note_logprobs(self, result: TokenResult) -> tuple[LogprobsAt, ...] | None:
        if self.sequence.params.logprobs is None:
            return None
        entry = logprobs_at(self.tokenizer, result)
        self.logprobs.append(entry)
        self.cumulative_logprob += result.logprob
        return (entry,)

    @property
    def _thinks(self) -> bool:
        return self._reader is not None and self._reader.in_reasoning

    def _read(self, text: str) -> tuple[list[AnswerPart], bool]:
        """(the parts that may go out, whether a stop string was found)."""
        if self._reader is not None:
            return self._pass_on(self._reader.feed(text))
        return self._pass_on([ContentDelta(text)] if text else [])

    def _pass_on(self, parts: list[AnswerPart]) -> tuple[list[AnswerPart], bool]:
        passed: list[AnswerPart] = []
        for part in parts:
            stopped = False
            if isinstance(part, ContentDelta):
                text, stopped = self._pass_stops(part.text)
            elif isinstance(part, ToolCallBegun):
                text = self._held_back()  # no stop string goes on behind a call
            else:
                text = ""
            if text:
                passed.append(ContentDelta(text))
            if stopped:
                return passed, True
            if not isinstance(part, ContentDelta):
                passed.append(part)
        return passed, False

    def _pass_stops(self, text: str) -> tuple[str, bool]:
        """(what may go out, whether a stop string was found). Before `min_tokens` nothing is."""
        stops, sequence = self._stops, self.sequence
        if stops is None or sequence.num_output_tokens <= sequence.params.min_tokens:
            return text, False
        out, stop = stops.feed(text)
        if stop is not None:
            self.stop_reason = stop
        return out, stop is not None

    def _held_back(self) -> str:
        """What might have become a stop string, and will not."""
        return "" if self._stops is None else self._stops.finish()

    def _flush(self) -> tuple[list[AnswerPart], bool]:
        """What detokenizer, reader and stop strings held back, once no more can come.

        A character that was cut becomes U+FFFD, which may itself complete a stop string.
        """
        parts, stopped = self._read(self._detokenizer.finish())
        if stopped:
            return parts, True
        if self._reader is not None:
            rest, stopped = self._pass_on(self._reader.finish())
            parts += rest
        held = "" if stopped else self._held_back()
        return ([*parts, ContentDelta(held)] if held else parts), stopped


def _text_in(parts: list[AnswerPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, ContentDelta))
