"""The log's line for every request: ids, counts and times, never a prompt's text."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import cast

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgeserve.types import RequestOutput

_log = logging.getLogger("edgeserve.server")
_NOTE_HEADERS = (b"x-edgeserve-ignored", b"x-edgeserve-adjusted", b"x-edgeserve-relaxed")
_MOST_REMEMBERED = 1000
_MOST_OF_A_PATH = 200
_QUIET = frozenset(("/health", "/metrics"))
"""What is asked for all the time, by machines."""


class RequestLog:
    """An ASGI layer. A request's line is written when its last byte is out."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._seen: set[tuple[str, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = self._clock(), 0
        notes: dict[str, object] = {}
        scope.setdefault("state", {})["notes"] = notes

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._say_once(scope, message)
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            level = logging.DEBUG if scope["path"] in _QUIET else logging.INFO
            if _log.isEnabledFor(level):
                ms = (self._clock() - began) * 1e3
                facts = _facts(scope, status or "gone", ms, notes)
                _log.log(level, "%s", _line(facts), extra={"facts": facts})

    def _say_once(self, scope: Scope, message: Message) -> None:
        """What was ignored or changed: each set of it once for every program that asks."""
        said = [
            f"{name.decode()[12:]}: {value.decode('latin-1')}"
            for name, value in message.get("headers", ())
            if name in _NOTE_HEADERS
        ]
        if not said:
            return
        agent = dict(scope["headers"]).get(b"user-agent", b"").decode("latin-1")[:100]
        key = (agent, "; ".join(said))
        if key not in self._seen and len(self._seen) < _MOST_REMEMBERED:
            self._seen.add(key)
            facts = {"user_agent": agent, "notes": said}
            _log.info("user_agent=%r %s", *key, extra={"facts": facts})


def note(request: Request, **facts: object) -> None:
    """Adds to the request's line."""
    cast("dict[str, object]", request.scope["state"]["notes"]).update(facts)


def note_output(request: Request, output: RequestOutput | None) -> None:
    """Counts and times of an answer; None for one that was not finished."""
    if output is None:
        note(request, finish="abort")
        return
    usage, timings = output.usage, output.timings
    note(
        request,
        prompt=usage.prompt_tokens,
        cached=usage.cached_tokens,
        output=usage.completion_tokens,
        queue_ms=round(timings.queue_ms, 1),
        ttft_ms=round(timings.first_token_ms, 1),
        tokens_per_s=round(timings.decode_tokens_per_s, 1),
        finish=output.outputs[0].finish_reason,
    )
    if output.prefix_miss is not None:
        miss = output.prefix_miss
        note(request, miss=f"{miss.reason}@{miss.position}", lost=miss.num_lost)


def say_miss(request: Request, words: str | None) -> None:
    """Why much of a prompt was read again, on a line of its own."""
    if words is not None:
        facts = {"id": request.scope["state"].get("request_id", "-"), "cache_miss": words}
        _log.info("id=%s %s", *facts.values(), extra={"facts": facts})


def _facts(scope: Scope, status: object, ms: float, notes: dict[str, object]) -> dict[str, object]:
    return {
        "id": scope["state"].get("request_id", "-"),
        "method": scope["method"],
        "path": scope["path"][:_MOST_OF_A_PATH],
        "status": status,
        "ms": round(ms, 1),
        **notes,
    }


def _line(facts: dict[str, object]) -> str:
    return " ".join(f"{name}={_shown(value)}" for name, value in facts.items())


def _shown(value: object) -> str:
    """A value without spaces or control characters, which would break the line."""
    text = str(value)
    return text if text.isprintable() and " " not in text else repr(text)
