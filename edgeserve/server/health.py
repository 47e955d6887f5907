"""`/health` and `/version`."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeserve.server.context import ServerContext
from edgeserve.server.errors import ModelLoadingError, problem_of
from edgeserve.server.exchange import error_response, json_response


def routes(server: ServerContext) -> Sequence[Route]:
    async def health(_: Request) -> Response:
        registry = server.registry
        if registry.failure is not None:
            return error_response(problem_of(registry.failure))
        if not registry.is_ready:
            return error_response(problem_of(ModelLoadingError()))
        return json_response({"status": "ok"})

    async def version(_: Request) -> Response:
        return json_response({"version": installed_version()})

    return [Route("/health", health), Route("/version", version)]


def installed_version() -> str:
    from importlib import metadata  # a search through site-packages

    try:
        return metadata.version("edgeserve-llm")
    except metadata.PackageNotFoundError:
        return "unknown"
