"""An OpenAI-compatible server that plays a script: real sockets, no model, no delays of its own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Script = Callable[[dict[str, Any]], Response]


def chunk(content: str | None = None, finish_reason: str | None = None, **more: Any) -> str:
    """One event of a streamed chat completion."""
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return event({"id": "chatcmpl-1", "choices": [choice], **more})


def event(data: object) -> str:
    return f"data: {json.dumps(data)}\n\n"


def answer(words: Sequence[str], *, prompt_tokens: int = 10, cached_tokens: int = 4) -> Response:
    """A whole good stream: the role, the words, the end, the usage."""
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": len(words),
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
    events = [
        chunk(""),
        *(chunk(word) for word in words),
        chunk(finish_reason="length"),
        event({"id": "chatcmpl-1", "choices": [], "usage": usage}),
        "data: [DONE]\n\n",
    ]
    return stream(events)


def stream(events: Sequence[str]) -> Response:
    return StreamingResponse(iter(events), media_type="text/event-stream")


class Scripted:
    """What it was asked, in order, and where it listens."""

    def __init__(self, script: Script, models: Sequence[dict[str, Any]]) -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.url = ""
        self._script = script
        self._models = list(models)

    @property
    def app(self) -> Starlette:
        routes = [
            Route("/v1/models", self._list),
            Route("/v1/chat/completions", self._answer, methods=["POST"]),
        ]
        return Starlette(routes=routes)

    async def _list(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": self._models})

    async def _answer(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.keys.append(request.headers.get("authorization"))
        return self._script(body)


@contextmanager
def serving(
    script: Script = lambda _: answer(["one", "two"]),
    models: Sequence[dict[str, Any]] = ({"id": "tiny", "max_model_len": 4096},),
    port: int = 0,
) -> Iterator[Scripted]:
    """The server on a free port of this machine, or this one, until the block ends."""
    scripted = Scripted(script, models)
    config = uvicorn.Config(scripted.app, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", port)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        scripted.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            yield scripted
        finally:
            server.should_exit = True
            thread.join()
