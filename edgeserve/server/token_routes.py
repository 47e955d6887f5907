"""`/tokenize`, `/detokenize` and `/apply-template`, as llama-server has them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeserve.errors import InvalidRequestError
from edgeserve.server.arriving import model_for
from edgeserve.server.chat_body import chat_body
from edgeserve.server.chat_turn import render_chat
from edgeserve.server.context import ServerContext
from edgeserve.server.errors import problem_of
from edgeserve.server.exchange import GONE, error_response, json_response
from edgeserve.server.fields import Fields
from edgeserve.server.limits import read_body
from edgeserve.server.models import Served
from edgeserve.server.sse import ClientGoneError

Work = Callable[[ServerContext, Fields, Served], object]


def routes(server: ServerContext) -> Sequence[Route]:
    return [
        Route("/tokenize", _endpoint(server, tokenize), methods=["POST"]),
        Route("/detokenize", _endpoint(server, detokenize), methods=["POST"]),
        Route("/apply-template", _endpoint(server, apply_template), methods=["POST"]),
    ]


def _endpoint(server: ServerContext, work: Work) -> Callable[[Request], Awaitable[Response]]:
    """A route whose work computes, beside the event loop."""

    async def endpoint(request: Request) -> Response:
        try:
            body = await read_body(request, server.limits)
            async with model_for(request, server.registry, body.text("model")) as served:
                return json_response(await asyncio.to_thread(work, server, body, served))
        except ClientGoneError:
            return GONE
        except Exception as error:  # the boundary: whatever broke, the client gets a body of it
            return error_response(problem_of(error))

    return endpoint


def tokenize(_: ServerContext, body: Fields, served: Served) -> object:
    """`content` to ids; with `with_pieces` their texts too, as bytes where they are no text."""
    text = body.text("content")
    if text is None:
        raise InvalidRequestError("content", None, "a string")
    parse_special = body.flag("parse_special")
    ids = served.llm.requests.tokenize(
        text,
        add_special=body.flag("add_special") or False,
        parse_special=parse_special is not False,
    )
    if not body.flag("with_pieces"):
        return {"tokens": ids}
    return {"tokens": [{"id": i, "piece": _piece(served.token_bytes(i))} for i in ids]}


def detokenize(_: ServerContext, body: Fields, served: Served) -> object:
    given = body.items("tokens")
    if given is None:
        raise InvalidRequestError("tokens", None, "a list of token ids")
    ids = Fields({f"tokens[{at}]": value for at, value in enumerate(given)})
    found = [ids.integer(f"tokens[{at}]", 0, served.vocab_size - 1) for at in range(len(given))]
    return {"content": served.llm.requests.detokenize([i for i in found if i is not None])}


def apply_template(server: ServerContext, body: Fields, served: Served) -> object:
    task = chat_body(body, vocab_size=served.vocab_size).task
    return {"prompt": render_chat(served, task, server.strict_templates).plain}


def _piece(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
