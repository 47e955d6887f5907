"""Clients of a server over bare sockets, well behaved and not, for soaks.

They know the four surfaces that stream text, and nothing of the engine.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

SECONDS = 120
_SMALL_BUFFER = 4096
_RESPONSE_ENDS = ('"response.completed"', '"response.incomplete"')
_WORDS = tuple("the inn at the end of a long road where nobody ever slept well".split())  # noqa: SIM905


def _chat(prompt: str, most: int, seed: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"messages": messages, "max_tokens": most, "seed": seed, "logprobs": seed % 3 == 0}


def _completion(prompt: str, most: int, seed: int) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": most, "seed": seed}


def _responses(prompt: str, most: int, seed: int) -> dict[str, Any]:
    """Few are kept: what is kept is bounded, and would look like a leak until it is full."""
    return {"input": prompt, "max_output_tokens": most, "seed": seed, "store": seed % 8 == 0}


def _of_choices(event: dict[str, Any]) -> str:
    choices = event.get("choices", ())
    return "".join(c.get("text") or c.get("delta", {}).get("content") or "" for c in choices)


def _of_delta(event: dict[str, Any]) -> str:
    delta = event.get("delta")
    return delta.get("text", "") if isinstance(delta, dict) else ""


def _of_output(event: dict[str, Any]) -> str:
    return event["delta"] if event.get("type") == "response.output_text.delta" else ""


@dataclass(frozen=True)
class Surface:
    """How a path is asked, how an event's text is found, and what a whole stream ends with."""

    path: str
    body: Callable[[str, int, int], dict[str, Any]]
    text: Callable[[dict[str, Any]], str]
    ends: tuple[str, ...]


SURFACES = (
    Surface("/v1/chat/completions", _chat, _of_choices, ("[DONE]",)),
    Surface("/v1/completions", _completion, _of_choices, ("[DONE]",)),
    Surface("/v1/messages", _chat, _of_delta, ('"message_stop"',)),
    Surface("/v1/responses", _responses, _of_output, _RESPONSE_ENDS),
)


@dataclass(frozen=True)
class Question:
    """A request for a stream, at temperature 1 with a seed: it has one right answer."""

    surface: Surface
    body: dict[str, Any]

    @property
    def data(self) -> bytes:
        body = json.dumps(self.body).encode()
        lines = (
            f"POST {self.surface.path} HTTP/1.1",
            "Host: localhost",
            "Connection: close",
            f"Content-Length: {len(body)}",
        )
        return "\r\n".join([*lines, "", ""]).encode() + body


def questions(rng: random.Random, count: int, tokens: int) -> list[Question]:
    """Prompts of up to a third of `tokens`, answers of up to two; seven of ten share a head."""

    def words(most: int) -> str:
        return " ".join(rng.choice(_WORDS) for _ in range(rng.randint(1, max(1, most))))

    heads = [words(tokens // 30) for _ in range(3)]
    found: list[Question] = []
    for number in range(count):
        surface = SURFACES[number % len(SURFACES)]
        head = rng.choice(heads) if rng.random() < 0.7 else ""
        prompt = f"{head} {words(tokens // 30)}".strip()
        body = surface.body(prompt, rng.randint(8, 2 * tokens // 3), rng.randrange(1 << 30))
        more = {"stream": True, "temperature": 1, "ignore_eos": rng.random() < 0.6}
        found.append(Question(surface, {**body, **more}))
    return found


@dataclass(frozen=True)
class Heard:
    """What a client got. `gaps` are from when to when it waited for a text, the first since it
    asked."""

    status: int
    text: str
    is_whole: bool
    gaps: tuple[tuple[float, float], ...]


class Client:
    """One connection, one question. Use as `async with`; leaving closes it, however it is."""

    def __init__(self, port: int, question: Question, *, small_buffer: bool = False) -> None:
        self._port = port
        self._question = question
        self._small = small_buffer
        self._began = 0.0
        self.status = 0

    async def __aenter__(self) -> Client:
        self._socket = socket.socket()
        self._socket.setblocking(False)
        if self._small:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, ("127.0.0.1", self._port))
        limit = _SMALL_BUFFER if self._small else 1 << 16
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=limit)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    def send(self, share: float = 1.0) -> None:
        """The question, or a part of it."""
        data = self._question.data
        self._began = time.monotonic()
        self._writer.write(data[: max(1, int(len(data) * share))])

    def reset(self) -> None:
        """Goes as a program goes that was killed."""
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        self._writer.transport.abort()

    def half_close(self) -> None:
        self._writer.write_eof()

    async def head(self) -> int:
        """The answer's status, when it has come."""
        async with asyncio.timeout(SECONDS):
            head = await self._reader.readuntil(b"\r\n\r\n")
        self.status = int(head.split()[1])
        return self.status

    async def events(self) -> AsyncIterator[str]:
        """The data of each event, to the end of the stream."""
        held = b""
        while True:
            async with asyncio.timeout(SECONDS):
                size = int(await self._reader.readline() or b"0", 16)
                held += (await self._reader.readexactly(size + 2))[:-2]
            *blocks, held = held.split(b"\n\n")
            for block in blocks:
                for line in block.decode().split("\n"):
                    if line.startswith("data: "):
                        yield line.removeprefix("data: ")
            if size == 0:
                return

    async def hear(self, most: int | None = None, stalls: tuple[int, float] = (0, 0.0)) -> Heard:
        """Up to `most` texts; after so many as `stalls` says, it reads nothing for so long."""
        texts, gaps, end, failed = list[str](), list[tuple[float, float]](), "", False
        last = self._began
        try:
            async for data in self.events():
                end = data
                failed = failed or data.startswith('{"error"')
                text = "" if data == "[DONE]" else self._question.surface.text(json.loads(data))
                if not text:
                    continue
                texts.append(text)
                gaps.append((last, time.monotonic()))
                if len(texts) == stalls[0]:
                    await asyncio.sleep(stalls[1])
                last = time.monotonic()
                if len(texts) == most:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            end = ""
        is_whole = not failed and any(each in end for each in self._question.surface.ends)
        return Heard(self.status, "".join(texts), is_whole, tuple(gaps))
