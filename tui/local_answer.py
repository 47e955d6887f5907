"""One answer of an engine in this process: what a stream of tokens holds, as the chat's events."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from edgeserve.async_llm import AsyncLLM
from edgeserve.async_token_stream import AsyncTokenStream
from edgeserve.engine.live_request import Request
from edgeserve.engine.output import PromptRead
from edgeserve.requests import ChatFields
from edgeserve.text.thinking import Thinking
from edgeserve.tui.client import (
    AnswerEnd,
    AnswerEvent,
    AnswerPiece,
    ChatSettings,
    FinishReason,
    PromptReading,
    Question,
    TokenFact,
)
from edgeserve.tui.reading_pace import ReadingPace
from edgeserve.types import (
    ContentDelta,
    Message,
    ReasoningDelta,
    RequestOutput,
    SamplingParams,
    TokenChunk,
)


class LocalAnswer:
    """An Answer (client.py). `engine` gives the model that answers; `ended` hears of the end."""

    def __init__(
        self,
        engine: Callable[[], Awaitable[AsyncLLM]],
        question: Question,
        clock: Callable[[], float],
        ended: Callable[[LocalAnswer], None],
    ) -> None:
        self._engine = engine
        self._question = question
        self._clock = clock
        self._ended = ended
        self._stream: AsyncTokenStream | None = None
        self._is_stopped = False

    async def stop(self) -> None:
        self._is_stopped = True
        if self._stream is not None:
            await self._stream.aclose()

    async def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        try:
            async with aclosing(self._events()) as events:
                async for event in events:
                    yield event
        finally:
            if self._stream is not None:
                await self._stream.aclose()
            self._ended(self)

    async def _events(self) -> AsyncGenerator[AnswerEvent]:
        asked_at = self._clock()
        llm = await self._engine()
        request = await asyncio.to_thread(request_of, llm, self._question)
        so_far = _SoFar(llm, request, self._question.alternatives, self._clock, asked_at)
        if self._is_stopped:
            yield so_far.stopped()
            return
        stream = self._stream = llm.open(replace(request, wants_prompt_progress=True))
        cost = await llm.prompt_cost(request.prompt_token_ids)
        found = cost.num_cached + cost.num_stored
        yield PromptReading(cost.num_tokens, found, found, cost.seconds)
        async for piece in stream.pieces():
            for event in so_far.take(piece):
                yield event
        for event in so_far.rest():
            yield event
        yield so_far.stopped() if stream.output is None else so_far.ended(stream.output)


class _SoFar:
    """What has come of an answer."""

    def __init__(
        self,
        llm: AsyncLLM,
        request: Request,
        num_alternatives: int,
        clock: Callable[[], float],
        asked_at: float,
    ) -> None:
        self._llm = llm
        self._request = request
        self._num_alternatives = num_alternatives
        self._clock = clock
        self._asked_at = asked_at
        self._pace = ReadingPace()
        self._num_cached: int | None = None
        self._in_reasoning = request.shape is not None and request.shape.opened
        self._facts: list[TokenFact] = []  # of tokens whose text is held back
        self._token_ids: list[int] = []
        self._num_reasoning = 0
        self._num_accepted = 0
        self._first_at: float | None = None
        self._last_at = asked_at

    def take(self, piece: TokenChunk | PromptRead) -> Sequence[AnswerEvent]:
        if isinstance(piece, PromptRead):
            return [self._reading(piece)]
        self._last_at = self._clock()
        if self._first_at is None:
            self._first_at = self._last_at
        self._token_ids += piece.token_ids
        self._num_accepted += piece.drafted
        self._facts += self._facts_of(piece)
        texts = _texts_of(piece)
        if texts:
            self._in_reasoning = texts[-1][1]
        self._num_reasoning += len(piece.token_ids) * self._in_reasoning
        return self._pieces(texts)

    def rest(self) -> Sequence[AnswerEvent]:
        """Tokens that have no text, such as the one that ends the answer."""
        return self._pieces([("", self._in_reasoning)]) if self._facts else []

    def ended(self, output: RequestOutput) -> AnswerEnd:
        choice, usage, timings = output.outputs[0], output.usage, output.timings
        reason: FinishReason = "length" if choice.finish_reason == "length" else "stop"
        return AnswerEnd(
            reason,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            answer_tokens=usage.completion_tokens,
            reasoning_tokens=choice.num_reasoning_tokens,
            num_draft_tokens=usage.num_draft_tokens,
            num_accepted_tokens=usage.num_accepted_tokens,
            first_token_ms=timings.first_token_ms,
            tokens_per_s=timings.decode_tokens_per_s or None,
            seed=choice.seed,
            token_ids=choice.token_ids,
            miss="" if output.prefix_miss is None else str(output.prefix_miss),
        )

    def stopped(self) -> AnswerEnd:
        """What there is to say of an answer that the engine no longer knows."""
        num_tokens = len(self._token_ids)
        first_ms = rate = None
        if self._first_at is not None:
            first_ms = (self._first_at - self._asked_at) * 1e3
            taken_s = self._last_at - self._first_at
            rate = (num_tokens - 1) / taken_s if num_tokens > 1 and taken_s > 0 else None
        return AnswerEnd(
            "stopped",
            prompt_tokens=len(self._request.prompt_token_ids),
            cached_tokens=self._num_cached,
            answer_tokens=num_tokens,
            reasoning_tokens=self._num_reasoning,
            num_accepted_tokens=self._num_accepted,
            first_token_ms=first_ms,
            tokens_per_s=rate,
            seed=self._request.seed,
            token_ids=tuple(self._token_ids),
        )

    def _reading(self, read: PromptRead) -> PromptReading:
        if self._num_cached is None:
            self._pace.note(read.cached, 0.0)
        self._num_cached = read.cached
        self._pace.note(read.processed, read.time_ms / 1e3)
        left = self._pace.seconds_left(read.total)
        return PromptReading(read.total, read.cached, read.processed, left)

    def _pieces(self, texts: Sequence[tuple[str, bool]]) -> Sequence[AnswerPiece]:
        """The tokens go with the last of the texts, which are of one step."""
        if not texts:
            return []
        pieces = [AnswerPiece(text, is_reasoning) for text, is_reasoning in texts]
        pieces[-1] = replace(pieces[-1], tokens=tuple(self._facts))
        self._facts = []
        return pieces

    def _facts_of(self, chunk: TokenChunk) -> Sequence[TokenFact]:
        if chunk.logprobs is None:
            return [
                TokenFact(self._llm.detokenize([token_id]), drafted=chunk.drafted)
                for token_id in chunk.token_ids
            ]
        facts: list[TokenFact] = []
        for at in chunk.logprobs:
            chosen, *_ = at.values()
            ranked = sorted(at.values(), key=lambda each: each.rank)
            likely = tuple((each.decoded_token, math.exp(each.logprob)) for each in ranked)
            probability = math.exp(chosen.logprob)
            alternatives = likely[: self._num_alternatives]
            facts.append(TokenFact(chosen.decoded_token, probability, alternatives, chunk.drafted))
        return facts


def request_of(llm: AsyncLLM, question: Question) -> Request:
    """The engine's request. It computes: for a thread. Raises InvalidRequestError, TemplateError.

    A model without a chat template continues the messages' texts.
    """
    params = params_of(question.settings, question.alternatives)
    if not llm.has_chat_template:
        return llm.requests.raw("\n\n".join(map(_text_of, question.messages)), params)
    settings = question.settings
    return llm.requests.chat(
        llm.requests.fitted(question.messages).messages,
        params,
        continue_final_message=question.continues,
        asked=ChatFields(thinking=Thinking(settings.thinking, None, settings.thinking_budget)),
    )


def params_of(settings: ChatSettings, num_alternatives: int = 0) -> SamplingParams:
    """Raises InvalidRequestError for values out of range."""
    return SamplingParams(
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        min_p=settings.min_p,
        repetition_penalty=settings.repetition_penalty,
        max_tokens=settings.max_tokens,
        seed=settings.seed,
        logprobs=num_alternatives or None,
    )


def _texts_of(chunk: TokenChunk) -> list[tuple[str, bool]]:
    """(text, whether it is reasoning), in order."""
    if not chunk.parts:
        return [(chunk.text, False)] if chunk.text else []
    return [
        (part.text, isinstance(part, ReasoningDelta))
        for part in chunk.parts
        if isinstance(part, ContentDelta | ReasoningDelta) and part.text
    ]


def _text_of(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return content or ""
