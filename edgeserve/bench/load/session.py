"""A whole load: warming up, driving, and the report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace

import httpx

from edgeserve.bench.load.drive import Concurrent, Pacing, Poisson, Timer, drive
from edgeserve.bench.load.exchange import Exchange
from edgeserve.bench.load.figures import Figures, Slo, figures_of
from edgeserve.bench.load.prompts import Shape, chats
from edgeserve.bench.load.stream import Ask, Message, Place, exchange
from edgeserve.errors import InvalidRequestError, NoAnswerError
from edgeserve.frozen import frozen
from edgeserve.remote_models import is_loopback, key_headers

_CONNECT_S = 10.0


@frozen
class LoadOptions:
    """Where to, what and how. `warmup` requests come first, one at a time, and do not count."""

    url: str
    ask: Ask
    shape: Shape
    pacing: Pacing
    slo: Slo = Slo()
    seed: int = 0
    warmup: int = 1
    timeout_s: float = 600.0
    key: str | None = None

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise InvalidRequestError("--warmup", self.warmup, "0 or more")
        if not self.timeout_s > 0:
            raise InvalidRequestError("--timeout", self.timeout_s, "more than 0 seconds")


@frozen
class LoadReport:
    """What was asked for, every exchange, and the figures."""

    options: LoadOptions
    exchanges: tuple[Exchange, ...]
    figures: Figures

    def as_dict(self) -> dict[str, object]:
        """For JSON: no key, times in seconds after the first request was sent."""
        options, found = self.options, self.figures
        return {
            "url": options.url,
            "model": options.ask.model,
            "seed": options.seed,
            "load": {
                **asdict(options.shape),
                **_pacing(options.pacing),
                "max_tokens": options.ask.max_tokens,
                "temperature": options.ask.temperature,
                "ignore_eos": options.ask.ignore_eos,
                "warmup": options.warmup,
            },
            "slo": asdict(options.slo),
            "figures": {
                **asdict(found),
                "output_tokens_per_s": found.output_tokens_per_s,
                "requests_per_s": found.requests_per_s,
                "goodput": found.goodput,
            },
            "requests": _requests(self.exchanges),
        }


def _pacing(pacing: Pacing) -> dict[str, object]:
    if isinstance(pacing, Poisson):
        return {"pacing": "poisson", "rate": pacing.rate}
    return {"pacing": "concurrent", "concurrency": pacing.chats}


def _requests(exchanges: Sequence[Exchange]) -> list[dict[str, object]]:
    start = min(each.sent for each in exchanges)
    return [
        {
            "chat": each.chat,
            "turn": each.turn,
            "sent_s": each.sent - start,
            "ended_s": each.ended - start,
            "pieces_s": [at - start for at in each.pieces],
            "ttft_s": each.ttft_s,
            "tpot_s": each.tpot_s,
            "tokens": each.num_tokens,
            "usage": None if each.usage is None else asdict(each.usage),
            "finish_reason": each.finish_reason,
            "failure": None if each.failure is None else asdict(each.failure),
        }
        for each in exchanges
    ]


def load(
    options: LoadOptions,
    say: Callable[[str], None],
    *,
    timer: Timer | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> LoadReport:
    """Runs it. Raises NoAnswerError if no request of it was answered, warming up included."""
    timer = Timer(time.perf_counter, asyncio.sleep) if timer is None else timer
    found = asyncio.run(_load(options, say, timer, transport))
    return LoadReport(options, found, figures_of(found, options.slo))


async def _load(
    options: LoadOptions,
    say: Callable[[str], None],
    timer: Timer,
    transport: httpx.AsyncBaseTransport | None,
) -> tuple[Exchange, ...]:
    async with httpx.AsyncClient(
        base_url=f"{options.url}/",
        headers=key_headers(options.key),
        timeout=httpx.Timeout(options.timeout_s, connect=_CONNECT_S),
        limits=httpx.Limits(max_connections=None),
        trust_env=not is_loopback(options.url),
        transport=transport,
    ) as client:

        def send(messages: Sequence[Message], place: Place) -> Awaitable[tuple[Exchange, str]]:
            return exchange(client, options.ask, messages, place, timer.clock)

        shape = options.shape
        if options.warmup:
            say(f"warming up: {options.warmup:,} requests")
            warming = replace(shape, num_chats=options.warmup, turns=1)
            others = chats(warming, options.seed, first=shape.num_chats)
            _require_answer(options.url, await drive(others, Concurrent(1), send, timer))
        say(f"measuring {shape.num_chats * shape.turns:,} requests")
        found = await drive(chats(shape, options.seed), options.pacing, send, timer)
    _require_answer(options.url, found)
    return found


def _require_answer(url: str, exchanges: Sequence[Exchange]) -> None:
    failures = [each.failure for each in exchanges if each.failure is not None]
    if len(failures) == len(exchanges):
        first = f"{failures[0].kind.value}: {failures[0].detail}"
        raise NoAnswerError(url, len(exchanges), first)
