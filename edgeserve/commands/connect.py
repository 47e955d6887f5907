"""`edgeserve connect`: what to tell a client so that it uses this server."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from edgeserve.client_settings import CLIENTS, Endpoint
from edgeserve.config import Config
from edgeserve.errors import ServerRefusedError, ServerUnreachableError

if TYPE_CHECKING:
    from edgeserve.remote_models import RemoteModel

DESCRIPTION = """\
Print the exact settings with which CLIENT uses a running `edgeserve serve`: its environment
variables, files with their paths, and how it is started. Nothing is written or changed.

  edgeserve connect codex                          prints them, for the model that is served
  eval "$(edgeserve connect claude-code)"          does what they say

Settings go to standard output, notes to standard error. Where no server answers, placeholders
stand in for what it would have said.
"""
_URL = "http://127.0.0.1:8080/v1"
_NO_KEY = "edgeserve"  # clients refuse to start without one; a server without keys takes any
_PLACEHOLDER = "MODEL"
_ASKING_S = 15.0  # a busy machine; one that does not listen refuses at once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT", choices=CLIENTS, help=", ".join(CLIENTS))
    parser.add_argument("--url", default=_URL, help=f"where the server is; {_URL}")
    parser.add_argument("--model", metavar="NAME", help="the first that the server lists")
    parser.add_argument("--key", metavar="KEY", help="the server's API key, if it asks for one")


def run(args: argparse.Namespace, config: Config) -> int:
    del config
    from edgeserve.remote_models import base_url

    url = base_url(args.url)
    found = _found(url, args.key, args.model)
    server = Endpoint(
        url=url,
        model=args.model or (_PLACEHOLDER if found is None else found.id),
        key=args.key or _NO_KEY,
        max_model_len=None if found is None else found.max_model_len,
    )
    settings = CLIENTS[args.client](server)
    print(settings.text, end="")
    for note in settings.notes:
        _note(note)
    return 0


def _found(url: str, key: str | None, name: str | None) -> RemoteModel | None:
    """The model as the server lists it, or None and a note why not."""
    from edgeserve.remote_models import remote_models

    try:
        models = remote_models(url, key, timeout_s=_ASKING_S)
    except (ServerUnreachableError, ServerRefusedError) as error:
        _note(f"{error}; {'the context is' if name else 'the model and its context are'} not known")
        return None
    found = next((model for model in models if name in (None, model.id)), None)
    if found is None:
        served = ", ".join(model.id for model in models) or "no model"
        _note(f"the server does not list {name or 'any model'}, but {served}")
    return found


def _note(text: str) -> None:
    print(f"edgeserve: {text}", file=sys.stderr)
