"""`/openapi.json`: the routes of this server, described; made when somebody asks, and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def with_openapi(routes: Sequence[Route]) -> Sequence[Route]:
    """The routes, and the one that describes them all."""

    @cache
    def document() -> bytes:
        from edgeserve.server.openapi import openapi_document

        return msgspec.json.encode(openapi_document(described))

    async def openapi(_: Request) -> Response:
        return Response(await asyncio.to_thread(document), media_type="application/json")

    described = [*routes, Route("/openapi.json", openapi)]
    return described
