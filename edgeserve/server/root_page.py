"""`/`: what runs here, how to ask it, and every path there is."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from edgeserve.server.context import ServerContext

_MOST_SHOWN = 20
_TEXT = """\
edgeserve: a local language model, behind OpenAI's and Anthropic's APIs

model     {models}
base URL  {base}/v1 (OpenAI's clients), {base} (Anthropic's)

curl {base}/v1/chat/completions -H 'Content-Type: application/json' \\
  -d '{{"messages": [{{"role": "user", "content": "Hello!"}}]}}'

with and without /v1:
{paths}
"""


def routes(server: ServerContext) -> Sequence[Route]:
    async def root(request: Request) -> Response:
        cards = server.registry.cards()
        shown = [f"{card.name} ({card.state})" for card in cards[:_MOST_SHOWN]]
        if len(cards) > _MOST_SHOWN:
            shown.append(f"and {len(cards) - _MOST_SHOWN} more")
        models = "\n          ".join(shown) or "none; edgeserve pull fetches one"
        base = str(request.base_url).rstrip("/")
        return PlainTextResponse(_TEXT.format(models=models, base=base, paths=_paths()))

    return [Route("/", root)]


def _paths() -> str:
    from edgeserve.server.openapi import summaries  # late, as it is imported for those who ask

    rows = summaries()
    width = max(len(path) for _, path, _ in rows)
    return "\n".join(f"{method:6}  {path:{width}}  {what}" for method, path, what in rows)
