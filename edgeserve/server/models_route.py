"""`/v1/models` and `/v1/models/{id}`."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeserve.server.context import ServerContext
from edgeserve.server.errors import ModelNotServedError, problem_of
from edgeserve.server.exchange import error_response, json_response
from edgeserve.server.library import ModelFacts
from edgeserve.server.models import ModelCard


def routes(server: ServerContext) -> Sequence[Route]:
    async def models(_: Request) -> Response:
        await server.registry.refresh()
        cards = [card_shape(card) for card in server.registry.cards()]
        return json_response({"object": "list", "data": cards})

    async def model(request: Request) -> Response:
        await server.registry.refresh()
        try:
            card = server.registry.card(request.path_params["name"])
        except ModelNotServedError as error:
            return error_response(problem_of(error))
        return json_response(card_shape(card))

    return [Route("/models", models), Route("/models/{name:path}", model)]


def card_shape(card: ModelCard) -> dict[str, object]:
    shape: dict[str, object] = {
        "id": card.name,
        "object": "model",
        "created": card.created,
        "owned_by": "edgeserve",
    }
    about = _about(card)
    if about is None:
        return {**shape, "meta": {"state": card.state}}
    defaults = about.default_sampling
    loaded: dict[str, object] = {}
    if card.served is not None:
        llm = card.served.llm
        loaded = {"fingerprint": llm.model.fingerprint, "reasoning": llm.requests.thinks}
    return {
        **shape,
        "max_model_len": about.max_model_len,
        "meta": {
            "state": card.state,
            **about.facts,
            **loaded,
            "n_ctx": about.max_model_len,
            "default_sampling": {
                "temperature": defaults.temperature,
                "top_p": defaults.top_p,
                "top_k": defaults.top_k,
                "min_p": defaults.min_p,
                "repetition_penalty": defaults.repetition_penalty,
                "origin": defaults.origin,
            },
        },
    }


def _about(card: ModelCard) -> ModelFacts | None:
    """Of a loaded model what is true of it, else what its file says."""
    if card.served is None:
        return card.about
    llm = card.served.llm
    return ModelFacts(llm.facts, llm.max_model_len, llm.default_sampling)
