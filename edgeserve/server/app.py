"""The ASGI application: all routes, under the layers that every request passes."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from edgeserve.server import (
    anthropic,
    embeddings,
    health,
    metrics_route,
    models_route,
    openai_completions,
    responses,
    root_page,
    token_routes,
)
from edgeserve.server.anthropic_errors import anthropic_error
from edgeserve.server.context import ServerContext
from edgeserve.server.errors import ErrorShape, Problem, openai_body, problem_of
from edgeserve.server.exchange import Exchange, error_response
from edgeserve.server.openai_chat import OpenAIChat
from edgeserve.server.openapi_route import with_openapi
from edgeserve.server.paths import OnePath, RequestIds
from edgeserve.server.request_log import RequestLog
from edgeserve.server.security import Security

_SHOWN = 200
"""Characters of a path that is told back."""


def build_app(server: ServerContext) -> ASGIApp:
    """From the outside in: ids and the log's line, one path for all its spellings, who may ask."""
    app = Starlette(
        routes=routes_of(server),
        exception_handlers={HTTPException: _http_error, Exception: _any_error},
    )
    app.router.redirect_slashes = False
    secured = Security(app, server.security, shape_of)
    return RequestIds(OnePath(RequestLog(_traced(secured, server))), server.new_id)


def _traced(app: ASGIApp, server: ServerContext) -> ASGIApp:
    if server.tracer is None:
        return app
    from edgeserve.server.tracing import Traced  # of an extra

    return Traced(app, server.tracer)


def shape_of(path: str) -> ErrorShape:
    """What an error looks like to whoever asks for a path."""
    is_anthropic = path == "/messages" or path.startswith("/messages/")
    return anthropic_error if is_anthropic else openai_body


def routes_of(server: ServerContext) -> Sequence[Route]:
    """All routes, each path in its one spelling."""
    chat = Exchange(server, OpenAIChat(server))
    routes = [
        Route("/chat/completions", chat.answer, methods=["POST"]),
        *anthropic.routes(server),
        *responses.routes(server),
        *openai_completions.routes(server),
        *embeddings.routes(server),
        *models_route.routes(server),
        *token_routes.routes(server),
        *health.routes(server),
        *metrics_route.routes(server),
        *root_page.routes(server),
    ]
    return with_openapi(routes)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = str(request.scope["path"])[:_SHOWN]
    if error.status_code == 404:
        problem = Problem(404, f"there is nothing at {path}; / lists what there is")
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        problem = Problem(405, f"{path} takes {allowed}, not {request.method}")
    else:
        problem = Problem(error.status_code, error.detail)
    return error_response(problem, shape_of(path))


def _any_error(request: Request, error: Exception) -> Response:
    return error_response(problem_of(error), shape_of(request.scope["path"]))
