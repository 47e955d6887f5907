"""`/v1/embeddings`: texts or token ids in, a vector for each out, in OpenAI's shape."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.server.arriving import model_for
from edgeserve.server.completion_body import RawPrompt, prompts_of
from edgeserve.server.context import ServerContext
from edgeserve.server.errors import Problem, problem_of
from edgeserve.server.exchange import answered, header_text, json_response
from edgeserve.server.fields import Fields
from edgeserve.server.limits import read_body
from edgeserve.server.sse import while_connected
from edgeserve.types import EmbeddingOutput

_MAX_INPUTS = 2048
_OF_THE_TEXT = ("messages", "prompt", "prompt_token_ids")
"""Parameters of the Python API whose place the body's `input` takes."""
_FORMATS = ("float", "base64")
_FOREIGN_IDS = (
    "token ids are those of this server's model; LangChain's OpenAIEmbeddings sends another "
    "model's unless it is made with check_embedding_ctx_length=False"
)

Vector = tuple[float, ...]


def routes(server: ServerContext) -> Sequence[Route]:
    return [Route("/embeddings", _Embeddings(server).answer, methods=["POST"])]


@frozen
class EmbeddingsBody:
    inputs: tuple[RawPrompt, ...]
    dimensions: int | None
    shown: Callable[[Vector], object]
    priority: int


class _Embeddings:
    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def answer(self, request: Request) -> Response:
        return await answered(self._answer(request), told=_told)

    async def _answer(self, request: Request) -> Response:
        fields = await read_body(request, self._server.limits)
        model = fields.text("model")
        async with model_for(request, self._server.registry, model) as served:
            body = embeddings_body(fields, served.vocab_size)
            work = served.llm.embed(body.inputs, dimensions=body.dimensions, priority=body.priority)
            outputs = await while_connected(request.receive, work)
            return json_response(_shape(served.name, outputs, body), _notes(fields))


def _told(error: BaseException) -> Problem:
    """A text's own fault is that of the field which the text came in."""
    problem = problem_of(error)
    return replace(problem, param="input") if problem.param in _OF_THE_TEXT else problem


def embeddings_body(fields: Fields, vocab_size: int) -> EmbeddingsBody:
    """Raises InvalidRequestError naming the field, and the index of an input that is wrong."""
    shown = _as_base64 if fields.one_of("encoding_format", _FORMATS) == "base64" else _as_floats
    return EmbeddingsBody(
        inputs=_inputs(fields.raw("input"), vocab_size),
        dimensions=fields.integer("dimensions", 1),
        shown=shown,
        priority=fields.integer("priority") or 0,
    )


def _inputs(value: object, vocab_size: int) -> tuple[RawPrompt, ...]:
    try:
        return prompts_of(value, vocab_size, "input", _MAX_INPUTS)
    except InvalidRequestError as error:
        value = error.value
        if not isinstance(value, int) or 0 <= value < vocab_size:
            raise
        allowed = f"{error.allowed}: {_FOREIGN_IDS}"
        raise InvalidRequestError(error.parameter, value, allowed) from None


def _as_floats(vector: Vector) -> object:
    return vector


def _as_base64(vector: Vector) -> object:
    """float32, the lowest byte first: what openai-python asks for where nobody says."""
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _shape(model: str, outputs: Sequence[EmbeddingOutput], body: EmbeddingsBody) -> object:
    num_tokens = sum(output.usage.prompt_tokens for output in outputs)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": body.shown(output.embedding)}
            for index, output in enumerate(outputs)
        ],
        "model": model,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }


def _notes(fields: Fields) -> Mapping[str, str]:
    ignored = fields.unread()
    return {"x-edgeserve-ignored": header_text(", ".join(ignored))} if ignored else {}
