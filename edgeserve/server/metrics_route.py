"""`/metrics`, for who asks. Prometheus's library is imported then: it takes a tenth of a second."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeserve.server.context import ServerContext


def routes(server: ServerContext) -> Sequence[Route]:
    async def metrics(_: Request) -> Response:
        from edgeserve.server.metrics import CONTENT_TYPE, exposition

        return Response(exposition(server.registry), headers={"content-type": CONTENT_TYPE})

    return [Route("/metrics", metrics)]
