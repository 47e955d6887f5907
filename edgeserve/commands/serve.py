"""`edgeserve serve`: a model, or all of this machine, behind OpenAI's API."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.commands.durations import parse_duration
from edgeserve.commands.engine_arguments import add_engine_arguments, engine_fields
from edgeserve.commands.sizes import parse_size
from edgeserve.config import Config, keep_numpy_to_one_thread
from edgeserve.errors import InvalidRequestError, MissingExtraError, UnfitOptionError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from edgeserve.async_llm import AsyncLLM
    from edgeserve.engine_options import EngineFields
    from edgeserve.server.address import Listening
    from edgeserve.server.context import ServerContext
    from edgeserve.server.models import ModelRegistry
    from edgeserve.server.security import SecurityPolicy

_LOG_LEVELS = ("debug", "info", "warning", "error")

DESCRIPTION = """\
Serve MODEL behind OpenAI's API, for programs that take a base URL.

  edgeserve serve smollm2
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Hello!"}]}'

MODEL is a path, a name that `edgeserve list` prints, hf:owner/repository or pypi:distribution.
Without it all models that `edgeserve list` prints as on this machine are served: each is loaded
when it is first asked for, and unloaded when nobody used it for --keep-alive, or another needs its
memory.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="?", help="which model; see above")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen")
    parser.add_argument("--port", type=int, default=8080, metavar="N", help="8080; 0 is a free one")
    parser.add_argument(
        "--model-alias",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name for the model, such as gpt-4o or claude-*; repeats. Without a MODEL "
        "NAME=MODEL says for which, and NAME is for the one that was used last",
    )
    parser.add_argument(
        "--max-memory",
        type=parse_size,
        metavar="SIZE",
        help="for all models together, without a MODEL; three quarters of what is available",
    )
    parser.add_argument(
        "--keep-alive",
        type=parse_duration,
        metavar="TIME",
        help="for which a model stays that nobody uses, without a MODEL; 10m. -1 is for ever",
    )
    parser.add_argument(
        "--api-key", action="append", default=[], metavar="KEY", help="ask for it; repeats"
    )
    parser.add_argument("--no-auth", action="store_true", help="any address, no key")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name by which this machine may be asked; repeats",
    )
    parser.add_argument("--cors", action="store_true", help="let pages of any site ask")
    parser.add_argument(
        "--ssl-certfile", type=Path, metavar="FILE", help="a certificate, for https"
    )
    parser.add_argument("--ssl-keyfile", type=Path, metavar="FILE", help="its private key")
    parser.add_argument(
        "--max-body-size",
        type=parse_size,
        default=64 << 20,
        metavar="SIZE",
        help="of a request; 64Mi",
    )
    parser.add_argument(
        "--max-queued-requests",
        type=int,
        default=256,
        metavar="N",
        help="that may wait; one more is told to come back",
    )
    parser.add_argument(
        "--shutdown-seconds",
        type=int,
        default=10,
        metavar="N",
        help="that running answers get to end",
    )
    parser.add_argument(
        "--pooling",
        choices=("mean", "last"),
        help="make embeddings, as the model's file may say by itself",
    )
    parser.add_argument(
        "--strict-templates",
        action="store_true",
        help="refuse messages that the chat template refuses, never adjust them",
    )
    parser.add_argument(
        "--log-level", default="info", choices=_LOG_LEVELS, help="info prints a line per request"
    )
    parser.add_argument(
        "--otlp-traces-endpoint",
        metavar="URL",
        help="send a span per answer there, as http://localhost:4318/v1/traces",
    )
    parser.add_argument(
        "--log-format", default="text", choices=("text", "json"), help="json: an object a line"
    )
    add_engine_arguments(parser)


def run(args: argparse.Namespace, config: Config) -> int:
    if args.device != "oracle":
        keep_numpy_to_one_thread()
    from edgeserve.server.address import Listening, bind
    from edgeserve.server.log_format import log_handler

    if (args.ssl_certfile is None) != (args.ssl_keyfile is None):
        raise InvalidRequestError("--ssl-certfile", args.ssl_certfile, "given with --ssl-keyfile")
    for option, value in (("--max-memory", args.max_memory), ("--keep-alive", args.keep_alive)):
        if args.model is not None and value is not None:
            raise UnfitOptionError(option, "beside a MODEL, which stays")
    logging.basicConfig(level=args.log_level.upper(), handlers=[log_handler(args.log_format)])
    listening = Listening(
        args.host,
        args.port,
        args.ssl_certfile,
        args.ssl_keyfile,
        args.shutdown_seconds,
    )
    bound = bind(listening)
    serving = _serve_all if args.model is None else _serve
    asyncio.run(serving(args, config, listening, bound))
    return 0


async def _serve(
    args: argparse.Namespace, config: Config, listening: Listening, bound: socket.socket
) -> None:
    from edgeserve.async_llm import AsyncLLM
    from edgeserve.commands.license import license_gate
    from edgeserve.commands.progress import progress_on
    from edgeserve.constrained_models import ConstrainedModels

    options: EngineFields = {**engine_fields(args), "pooling": args.pooling}
    loading = asyncio.ensure_future(
        AsyncLLM.create(
            args.model,
            max_queued_requests=args.max_queued_requests,
            config=config,
            progress=progress_on(sys.stderr, config),
            license_gate=license_gate(args.accept_license),
            constrained=ConstrainedModels(config.constrained_dir),
            **options,
        )
    )
    await asyncio.sleep(0)  # it has begun; importing the rest takes as long as small weights

    from edgeserve.server.address import base_url
    from edgeserve.server.app import build_app
    from edgeserve.server.listener import make_server, serve
    from edgeserve.server.models import OneModel

    tracer, end_tracing = _tracing(args.otlp_traces_endpoint)
    model = OneModel(args.model, args.model_alias, created=int(time.time()))
    context = _context(args, config, listening, model, tracer)
    url = base_url(listening, bound)
    _say(f"edgeserve: {url}/v1 listens; {args.model} is loading")
    on_ready = partial(_say_ready, config, args, url)
    try:
        await serve(make_server(build_app(context), listening), bound, model, loading, on_ready)
    finally:
        end_tracing()


async def _serve_all(
    args: argparse.Namespace, config: Config, listening: Listening, bound: socket.socket
) -> None:
    from edgeserve.commands.served_models import registry_of_all, said_names
    from edgeserve.server.address import base_url
    from edgeserve.server.app import build_app
    from edgeserve.server.listener import make_server, serve_many

    options: EngineFields = {**engine_fields(args), "pooling": args.pooling}
    registry, memory = registry_of_all(args, config, options)
    await registry.look()
    tracer, end_tracing = _tracing(args.otlp_traces_endpoint)
    context = _context(args, config, listening, registry, tracer)
    _say(f"edgeserve: serves {said_names([card.name for card in registry.cards()])}")
    _say(f"edgeserve: the server is ready at {base_url(listening, bound)}/v1 ({memory})")
    _say_kept(config, args)
    try:
        await serve_many(make_server(build_app(context), listening), bound, registry)
    finally:
        end_tracing()


def _context(
    args: argparse.Namespace,
    config: Config,
    listening: Listening,
    registry: ModelRegistry,
    tracer: Tracer | None,
) -> ServerContext:
    from edgeserve.server.context import ServerContext
    from edgeserve.server.limits import BodyLimits

    return ServerContext(
        registry=registry,
        security=_policy(args, config, listening),
        limits=BodyLimits(max_bytes=args.max_body_size),
        strict_templates=args.strict_templates,
        tracer=tracer,
    )


def _tracing(endpoint: str | None) -> tuple[Tracer | None, Callable[[], None]]:
    """What makes spans, if they are wanted, and how it ends. Raises MissingExtraError."""
    if endpoint is None:
        return None, lambda: None
    from edgeserve.server.health import installed_version

    try:
        from edgeserve.server.tracing import exporting_tracer
    except ImportError as error:
        raise MissingExtraError("--otlp-traces-endpoint", "otel", str(error)) from None
    return exporting_tracer(endpoint, installed_version())


def _policy(args: argparse.Namespace, config: Config, listening: Listening) -> SecurityPolicy:
    from edgeserve.server.keys import is_loopback, kept_key
    from edgeserve.server.security import SecurityPolicy, machine_name

    keys = tuple(args.api_key)
    loopback = is_loopback(listening.host)
    if args.no_auth and keys:
        raise UnfitOptionError("--no-auth", "beside --api-key")
    if not keys and not loopback and not args.no_auth:
        path = config.cache_dir / "server-key"
        keys = (kept_key(path),)
        _say(f"edgeserve: API key {keys[0]} (kept in {path}; --no-auth asks for none)")
    return SecurityPolicy(keys, args.cors, loopback, machine_name(), tuple(args.allow_host))


def _say_ready(config: Config, args: argparse.Namespace, url: str, llm: AsyncLLM) -> None:
    note = llm.context_note or f"context {llm.max_model_len:,}"
    _say(f"edgeserve: {args.model} is ready at {url}/v1 ({note})")
    _say_kept(config, args)


def _say_kept(config: Config, args: argparse.Namespace) -> None:
    stored = config.disk_cache if args.disk_cache is None else args.disk_cache
    if stored:
        _say(f"edgeserve: prompts are kept in {config.prompts_dir} (--no-disk-cache keeps none)")


def _say(line: str) -> None:
    """A full disk behind the log, or a pipe that nobody reads, is no reason not to serve."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)
