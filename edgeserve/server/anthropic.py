"""`/v1/messages`: Anthropic's chat as a surface of the exchange, and its counting of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeserve.server.anthropic_body import anthropic_body
from edgeserve.server.anthropic_errors import anthropic_error
from edgeserve.server.anthropic_frames import MessageFrames
from edgeserve.server.anthropic_shapes import blocks_of, stop_of, usage_of
from edgeserve.server.arriving import model_for
from edgeserve.server.chat_turn import count_prompt_tokens
from edgeserve.server.context import ServerContext
from edgeserve.server.errors import Problem
from edgeserve.server.exchange import Asked, Exchange, answered, json_response
from edgeserve.server.fields import Fields
from edgeserve.server.limits import read_body
from edgeserve.server.models import Served
from edgeserve.server.sse import named_frame
from edgeserve.server.turn import Answer, Turn


def routes(server: ServerContext) -> Sequence[Route]:
    exchange = Exchange(server, AnthropicMessages(server))
    counting = TokenCounting(server)
    return [
        Route("/messages", exchange.answer, methods=["POST"]),
        Route("/messages/count_tokens", counting.answer, methods=["POST"]),
    ]


class AnthropicMessages:
    """The surface."""

    ping = named_frame("ping", {"type": "ping"})

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    def read(self, body: Fields, served: Served) -> Asked:
        return anthropic_body(body, vocab_size=served.vocab_size)

    async def frames(self, asked: Asked, served: Served, turn: Turn) -> AsyncIterator[bytes]:
        del asked
        head = {**self._head(served), "content": ()}
        frames = MessageFrames(head, turn.num_prompt_tokens)
        async for event in turn:
            for frame in frames.of(event):
                yield frame

    def whole(self, asked: Asked, served: Served, answer: Answer) -> object:
        del asked
        choice, output = answer.choices[0], answer.finished.output
        usage = output.usage
        return {
            **self._head(served),
            "content": blocks_of(choice),
            **stop_of(choice.finish_reason, output),
            "usage": usage_of(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens),
        }

    def error_body(self, problem: Problem) -> bytes:
        return anthropic_error(problem)

    def error_frames(self, problem: Problem) -> bytes:
        return b"event: error\ndata: " + anthropic_error(problem) + b"\n\n"

    def _head(self, served: Served) -> dict[str, object]:
        return {
            "id": f"msg_{self._server.new_id()}",
            "type": "message",
            "role": "assistant",
            "model": served.name,
        }


class TokenCounting:
    """Says how many tokens a body's prompt has; of more than the context too."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def answer(self, request: Request) -> Response:
        return await answered(self._answer(request), anthropic_error)

    async def _answer(self, request: Request) -> Response:
        body = await read_body(request, self._server.limits)
        async with model_for(request, self._server.registry, body.text("model")) as served:
            task = anthropic_body(body, vocab_size=served.vocab_size).task
            strict = self._server.strict_templates
            count = await asyncio.to_thread(count_prompt_tokens, served, task, strict)
            return json_response({"input_tokens": count})
