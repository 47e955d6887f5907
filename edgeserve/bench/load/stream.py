"""One streamed chat completion: the request's body, and its events as they come, with their times.

Never raises for what a server does: whatever goes wrong is a Failure in the exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import httpx
import msgspec

from edgeserve.bench.load.exchange import Exchange, Failure, FailureKind, Usage
from edgeserve.completion_chunks import CHUNK, Choice, UsageCounts
from edgeserve.errors import InvalidRequestError
from edgeserve.event_stream import events
from edgeserve.frozen import frozen
from edgeserve.remote_models import error_message

Message = dict[str, str]


@frozen
class Ask:
    """What every request of a load has in common."""

    model: str
    max_tokens: int
    temperature: float = 0.0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InvalidRequestError("--max-tokens", self.max_tokens, "1 or more")

    def body(self, messages: Sequence[Message]) -> dict[str, object]:
        """`ignore_eos` is no field of OpenAI's, so it is sent only when it is asked for."""
        body: dict[str, object] = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return {**body, "ignore_eos": True} if self.ignore_eos else body


@frozen
class Place:
    """Which request of the load: its chat, its turn, and when it was to be sent."""

    chat: int
    turn: int
    due: float


class _Answer:
    """What has come so far."""

    def __init__(self) -> None:
        self.pieces: list[float] = []
        self.text: list[str] = []
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.failure: Failure | None = None
        self.is_done = False

    def take(self, data: bytes, now: float) -> None:
        """One event's data. An error in it is the answer's failure."""
        if data == b"[DONE]":
            self.is_done = True
            return
        try:
            chunk = CHUNK.decode(data)
        except msgspec.MsgspecError as error:
            self.failure = Failure(FailureKind.MALFORMED, str(error))
            return
        if chunk.error is not None:
            self.failure = Failure(FailureKind.ERROR_EVENT, error_message(data))
        if chunk.usage is not None:
            self.usage = _usage(chunk.usage)
        for choice in chunk.choices or ():
            self._take_choice(choice, now)

    def _take_choice(self, choice: Choice, now: float) -> None:
        self.finish_reason = choice.finish_reason or self.finish_reason
        if choice.delta is None:
            return
        content, delta = choice.delta.content, choice.delta
        if content or delta.reasoning_content or delta.reasoning:
            self.pieces.append(now)
        if content:
            self.text.append(content)

    def close(self) -> None:
        """The stream ended: well, only if it said so."""
        if self.failure is None and not (self.is_done or self.finish_reason):
            self.failure = Failure(FailureKind.UNFINISHED, "no finish_reason and no [DONE]")


def _usage(part: UsageCounts) -> Usage:
    details = part.prompt_tokens_details
    cached = None if details is None else details.cached_tokens
    return Usage(part.prompt_tokens or 0, part.completion_tokens or 0, cached)


async def exchange(
    client: httpx.AsyncClient,
    ask: Ask,
    messages: Sequence[Message],
    place: Place,
    clock: Callable[[], float],
) -> tuple[Exchange, str]:
    """Sends one request and reads its stream to the end: what happened, and the answer's text."""
    answer, sent = _Answer(), clock()
    try:
        async with client.stream("POST", "chat/completions", json=ask.body(messages)) as response:
            if not response.is_success:
                answer.failure = _refusal(response.status_code, await response.aread())
            else:
                await _read(response, answer, clock)
    except httpx.TimeoutException as error:
        answer.failure = Failure(FailureKind.TIMEOUT, _said(error))
    except (httpx.ConnectError, httpx.UnsupportedProtocol) as error:
        answer.failure = Failure(FailureKind.UNREACHABLE, _said(error))
    except httpx.HTTPError as error:
        answer.failure = Failure(FailureKind.BROKEN, _said(error))
    return (
        Exchange(
            chat=place.chat,
            turn=place.turn,
            due=place.due,
            sent=sent,
            ended=clock(),
            pieces=tuple(answer.pieces),
            usage=answer.usage,
            finish_reason=answer.finish_reason,
            failure=answer.failure,
        ),
        "".join(answer.text),
    )


async def _read(response: httpx.Response, answer: _Answer, clock: Callable[[], float]) -> None:
    async for data in events(response.aiter_bytes()):
        answer.take(data, clock())
        if answer.is_done or answer.failure is not None:
            return
    answer.close()


def _refusal(status: int, body: bytes) -> Failure:
    return Failure(FailureKind.REFUSED, f"{status} {error_message(body)}".strip())


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
