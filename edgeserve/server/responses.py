"""`/v1/responses`: OpenAI's Responses as a surface of the exchange, and those that are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeserve.errors import InvalidRequestError
from edgeserve.server.context import ServerContext
from edgeserve.server.errors import ApiError, Problem, openai_body, problem_of
from edgeserve.server.exchange import Asked, Exchange, error_response, json_response
from edgeserve.server.fields import Fields
from edgeserve.server.input_items import page_of
from edgeserve.server.models import Served
from edgeserve.server.responses_body import ResponsesBody, responses_body
from edgeserve.server.responses_frames import ResponseFrames, ResponseHead, usage_of
from edgeserve.server.responses_output import OutputItems, status_of
from edgeserve.server.responses_store import ResponseStore
from edgeserve.server.shapes import chat_logprobs
from edgeserve.server.sse import PING, named_frame
from edgeserve.server.turn import Answer, Turn
from edgeserve.types import LogprobsAt


def routes(server: ServerContext) -> Sequence[Route]:
    store = ResponseStore()
    exchange = Exchange(server, Responses(server, store))
    kept = KeptResponses(store)
    return [
        Route("/responses", exchange.answer, methods=["POST"]),
        Route("/responses/{response_id}", kept.show, methods=["GET"]),
        Route("/responses/{response_id}", kept.delete, methods=["DELETE"]),
        Route("/responses/{response_id}/input_items", kept.input_items, methods=["GET"]),
    ]


class Responses:
    """The surface."""

    ping = PING

    def __init__(self, server: ServerContext, store: ResponseStore) -> None:
        self._server = server
        self._store = store

    def read(self, body: Fields, served: Served) -> Asked:
        return responses_body(body, self._store, vocab_size=served.vocab_size)

    async def frames(self, asked: Asked, served: Served, turn: Turn) -> AsyncIterator[bytes]:
        body = cast(ResponsesBody, asked)
        head = self._head(body, served)
        frames = ResponseFrames(head, self._items(body, served), partial(self._keep, body))
        for frame in frames.begin():
            yield frame
        try:
            async for event in turn:
                for frame in frames.of(event):
                    yield frame
        except Exception as error:  # the headers are out, and clients wait for the response's end
            yield frames.failed(problem_of(error))

    def whole(self, asked: Asked, served: Served, answer: Answer) -> object:
        body = cast(ResponsesBody, asked)
        choice = answer.choices[0]
        output = self._items(body, served).of_answer(choice)
        status = status_of(choice.finish_reason)
        usage = usage_of(answer.finished)
        response = self._head(body, served).at(status, output, usage=usage)
        self._keep(body, response)
        return response

    def error_body(self, problem: Problem) -> bytes:
        return openai_body(problem)

    def error_frames(self, problem: Problem) -> bytes:
        said = {"code": problem.code, "message": problem.message, "param": problem.param}
        return named_frame("error", {"type": "error", "sequence_number": 0, **said})

    def _head(self, body: ResponsesBody, served: Served) -> ResponseHead:
        fields = {
            "id": f"resp_{self._server.new_id()}",
            "object": "response",
            "created_at": int(self._server.now()),
            "model": served.name,
            "background": False,
            **body.echo,
        }
        return ResponseHead(fields)

    def _items(self, body: ResponsesBody, served: Served) -> OutputItems:
        def shown(entries: Sequence[LogprobsAt]) -> Sequence[object]:
            if body.num_top_logprobs is None:
                return ()
            found = chat_logprobs(entries, body.num_top_logprobs, served.token_bytes)
            return cast("Sequence[object]", found["content"])

        return OutputItems(self._server.new_id, body.tools, shown, seals=body.seals)

    def _keep(self, body: ResponsesBody, response: dict[str, object]) -> None:
        if body.stores:
            output = cast("list[object]", response["output"])
            self._store.put(str(response["id"]), response, (*body.items, *output))


class KeptResponses:
    """Endpoints for what is in the store."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    async def show(self, request: Request) -> Response:
        return self._answered(request, lambda key: self._store.get(key).response)

    async def delete(self, request: Request) -> Response:
        return self._answered(request, self._deleted)

    async def input_items(self, request: Request) -> Response:
        return self._answered(
            request, lambda key: page_of(self._store.get(key), request.query_params)
        )

    def _deleted(self, response_id: str) -> object:
        self._store.delete(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    def _answered(self, request: Request, work: Callable[[str], object]) -> Response:
        try:
            return json_response(work(request.path_params["response_id"]))
        except (ApiError, InvalidRequestError) as error:
            return error_response(problem_of(error))
