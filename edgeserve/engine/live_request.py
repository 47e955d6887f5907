"""A request while it lives: its choices, when its tokens came, and at the end its output."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgeserve.engine.output import ChoiceOutput, PromptRead
from edgeserve.engine.recent_prompts import Likeness, prefix_miss
from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.runner.batch import BLOCK_SIZE
from edgeserve.text.answer_reader import AnswerShape
from edgeserve.text.constraint import CompiledConstraint
from edgeserve.text.thinking_constraint import ThinkingConstraint
from edgeserve.types import (
    EmbeddingOutput,
    PoolingParams,
    RequestOutput,
    SamplingParams,
    SequenceBreakers,
    Timings,
    Usage,
)


@frozen
class Request:
    """What a client asked. `seed` is always known: the caller's, or one drawn for it. Of two that
    wait, one whose `priority` is lower goes first, unless 64 others a step of priority have.
    `breakers` are the tokens of the texts that end repetitions for DRY; `constraint` is what the
    answer is held to, compiled; `parse` makes a value of a whole answer's text; `shape` says what
    else than text may be in it; `relaxed` are the paths of what it is not held to.
    `wants_prompt_progress` asks for an event per step that reads the prompt. With `pooling` it is
    the prompt's vector that is wanted, and no token."""

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    priority: int = 0
    breakers: SequenceBreakers | None = None
    constraint: CompiledConstraint | ThinkingConstraint | None = None
    parse: Callable[[str], object] | None = None
    shape: AnswerShape | None = None
    relaxed: tuple[str, ...] = ()
    wants_prompt_progress: bool = False
    pooling: PoolingParams | None = None


@dataclass(slots=True)
class LiveRequest:
    """Times are seconds of the engine's clock. `waits` are those between a choice's tokens;
    `likeness` says which prompt before begins most like this one."""

    request: Request
    choices: list[ChoiceOutput]
    arrived: float
    likeness: Likeness | None = None
    started: float | None = None
    first_token: float | None = None
    ended: set[int] = field(default_factory=set[int])
    waits: array[float] = field(default_factory=lambda: array("d"))
    _newest: dict[int, float] = field(default_factory=dict[int, float])

    def note_token(self, index: int, now: float) -> None:
        """Choice `index` got a token."""
        if self.first_token is None:
            self.first_token = now
        newest = self._newest.get(index)
        if newest is not None:
            self.waits.append(now - newest)
        self._newest[index] = now

    def prompt_progress(self, now: float) -> PromptRead:
        """How far its prompt is read."""
        first = self.choices[0].sequence
        started = now if self.started is None else self.started
        return PromptRead(
            self.request.request_id,
            total=first.num_prompt_tokens,
            cached=first.num_cached_tokens,
            processed=min(first.num_computed_tokens, first.num_prompt_tokens),
            time_ms=(now - started) * 1e3,
        )

    def output(self, now: float, text_of: Callable[[Sequence[int]], str]) -> RequestOutput:
        """What it came to. `text_of` is the tokenizer's."""
        completions = tuple(choice.completion(self.request.parse) for choice in self.choices)
        num_prompt = len(self.request.prompt_token_ids)
        num_output = sum(len(completion.token_ids) for completion in completions)
        first_choice = self.choices[0]
        num_cached = first_choice.sequence.num_cached_tokens
        wants_prompt = self.request.params.prompt_logprobs is not None
        return RequestOutput(
            request_id=self.request.request_id,
            prompt=self.request.prompt,
            prompt_token_ids=self.request.prompt_token_ids,
            outputs=completions,
            usage=Usage(
                num_prompt,
                num_output,
                num_cached,
                sum(choice.sequence.num_draft_tokens for choice in self.choices),
                sum(choice.sequence.num_accepted_tokens for choice in self.choices),
            ),
            timings=self._timings(now, num_prompt - num_cached, num_output - len(completions)),
            prompt_logprobs=tuple(first_choice.prompt_logprobs) if wants_prompt else None,
            prefix_miss=prefix_miss(
                self.likeness,
                num_prompt=num_prompt,
                num_cached=num_cached,
                block_size=BLOCK_SIZE,
                text_of=text_of,
            ),
        )

    def embedding(self, now: float, vector: tuple[float, ...]) -> EmbeddingOutput:
        """What it came to, where a vector was asked for."""
        num_prompt = len(self.request.prompt_token_ids)
        num_cached = self.choices[0].sequence.num_cached_tokens
        return EmbeddingOutput(
            request_id=self.request.request_id,
            prompt=self.request.prompt,
            prompt_token_ids=self.request.prompt_token_ids,
            embedding=vector,
            usage=Usage(num_prompt, 0, num_cached),
            timings=self._timings(now, num_prompt - num_cached, 0),
        )

    def _timings(self, now: float, num_prefilled: int, num_decoded: int) -> Timings:
        started = self.arrived if self.started is None else self.started
        first = now if self.first_token is None else self.first_token
        waits = sorted(self.waits)
        return Timings(
            queue_ms=(started - self.arrived) * 1e3,
            first_token_ms=(first - self.arrived) * 1e3,
            total_ms=(now - self.arrived) * 1e3,
            prompt_tokens_per_s=_rate(num_prefilled, first - started),
            decode_tokens_per_s=_rate(num_decoded, now - first),
            itl_p50_ms=_quantile(waits, 0.5) * 1e3,
            itl_p99_ms=_quantile(waits, 0.99) * 1e3,
            itl_max_ms=_quantile(waits, 1.0) * 1e3,
        )


def check_constraint(request: Request) -> None:
    """Raises InvalidRequestError where a constraint would go unenforced."""
    compiled = None if request.constraint is None else request.constraint.constraint
    if compiled != request.params.constraint:
        raise InvalidRequestError("constraint", request.params.constraint, "compiled beforehand")


def check_token_ids(request: Request, vocab_size: int) -> None:
    """Raises InvalidRequestError naming the id that is in no vocabulary of this size."""
    for index, token_id in enumerate(request.prompt_token_ids):
        if not 0 <= token_id < vocab_size:
            allowed = f"from 0 to {vocab_size - 1}"
            raise InvalidRequestError(f"prompt_token_ids[{index}]", token_id, allowed)
    allowed = f"a token id below {vocab_size}"
    for index, token_id in enumerate(request.params.stop_token_ids):
        if token_id >= vocab_size:
            raise InvalidRequestError(f"stop_token_ids[{index}]", token_id, allowed)
    for token_id in request.params.logit_bias or {}:
        if token_id >= vocab_size:
            raise InvalidRequestError(f"logit_bias[{token_id}]", token_id, allowed)


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def _quantile(ascending: Sequence[float], share: float) -> float:
    """The least value that `share` of all do not exceed; 0 of none."""
    if not ascending:
        return 0.0
    return ascending[max(0, -int(-share * len(ascending) // 1) - 1)]
