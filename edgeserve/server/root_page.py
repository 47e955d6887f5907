"""`/`: what runs here, and how to ask it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from edgeserve.server.context import ServerContext

_TEXT = """\
edgeserve: a local language model, behind OpenAI's API

model     {model} ({state})
base URL  {base}/v1

curl {base}/v1/chat/completions -H 'Content-Type: application/json' \\
  -d '{{"messages": [{{"role": "user", "content": "Hello!"}}]}}'

{base}/v1/models  {base}/health
"""


def routes(server: ServerContext) -> Sequence[Route]:
    async def root(request: Request) -> Response:
        card = next(iter(server.registry.cards()), None)
        name, state = ("none", "none") if card is None else (card.name, card.state)
        base = str(request.base_url).rstrip("/")
        return PlainTextResponse(_TEXT.format(model=name, state=state, base=base))

    return [Route("/", root)]
