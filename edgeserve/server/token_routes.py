"""`/tokenize`, `/detokenize` and `/apply-template`, as llama-server has them; with a `prompt` and
`/tokenizer_info` as vLLM has them, which evaluation harnesses count tokens by."""

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
from edgeserve.server.exchange import answered, json_response
from edgeserve.server.fields import Fields
from edgeserve.server.limits import read_body
from edgeserve.server.models import Served

_MAX_IDS = 1 << 20

Work = Callable[[ServerContext, Fields, Served], object]


def routes(server: ServerContext) -> Sequence[Route]:
    return [
        Route("/tokenize", _endpoint(server, tokenize), methods=["POST"]),
        Route("/detokenize", _endpoint(server, detokenize), methods=["POST"]),
        Route("/apply-template", _endpoint(server, apply_template), methods=["POST"]),
        Route("/tokenizer_info", _tokenizer_info(server), methods=["GET"]),
    ]


def _endpoint(server: ServerContext, work: Work) -> Callable[[Request], Awaitable[Response]]:
    """A route whose work computes, beside the event loop."""

    async def answer(request: Request) -> Response:
        body = await read_body(request, server.limits)
        async with model_for(request, server.registry, body.text("model")) as served:
            return json_response(await asyncio.to_thread(work, server, body, served))

    async def endpoint(request: Request) -> Response:
        return await answered(answer(request))

    return endpoint


def _tokenizer_info(server: ServerContext) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        async with server.registry.use(request.query_params.get("model")) as served:
            return json_response(tokenizer_info(served))

    async def endpoint(request: Request) -> Response:
        return await answered(answer(request))

    return endpoint


def tokenizer_info(served: Served) -> object:
    """What the texts of special tokens are, and the chat template."""
    model = served.llm.model
    bos, eos = model.tokenizer.bos_id, model.tokenizer.eos_id
    return {
        "tokenizer_class": "GGUF",
        "bos_token": None if bos is None else served.token_text(bos),
        "eos_token": None if eos is None else served.token_text(eos),
        "chat_template": None if model.template is None else model.template.source,
    }


def tokenize(_: ServerContext, body: Fields, served: Served) -> object:
    """`content` to ids; with `with_pieces` their texts too, as bytes where they are no text."""
    text = body.text("content")
    if text is None:
        return _prompt_tokens(body, served)
    parse_special = body.flag("parse_special")
    ids = served.llm.requests.tokenize(
        text,
        add_special=body.flag("add_special") or False,
        parse_special=parse_special is not False,
    )
    if not body.flag("with_pieces"):
        return {"tokens": ids}
    return {"tokens": [{"id": i, "piece": _piece(served.token_bytes(i))} for i in ids]}


def _prompt_tokens(body: Fields, served: Served) -> object:
    """vLLM's form: special tokens count, and are added unless that is switched off."""
    prompt = body.text("prompt")
    if prompt is None:
        raise InvalidRequestError("content", None, "a string")
    adds = body.flag("add_special_tokens") is not False
    ids = served.llm.requests.tokenize(prompt, add_special=adds, parse_special=True)
    return {"tokens": ids, "count": len(ids), "max_model_len": served.llm.max_model_len}


def detokenize(_: ServerContext, body: Fields, served: Served) -> object:
    given = body.items("tokens")
    if given is None:
        raise InvalidRequestError("tokens", None, "a list of token ids")
    if len(given) > _MAX_IDS:
        raise InvalidRequestError("tokens", len(given), f"at most {_MAX_IDS:,} token ids")
    ids = Fields({f"tokens[{at}]": value for at, value in enumerate(given)})
    found = [ids.integer(f"tokens[{at}]", 0, served.vocab_size - 1) for at in range(len(given))]
    text = served.llm.requests.detokenize([i for i in found if i is not None])
    return {"content": text, "prompt": text}


def apply_template(server: ServerContext, body: Fields, served: Served) -> object:
    task = chat_body(body, vocab_size=served.vocab_size).task
    return {"prompt": render_chat(served, task, server.strict_templates).plain}


def _piece(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
