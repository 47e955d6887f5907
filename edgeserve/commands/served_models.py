"""`edgeserve serve` without a MODEL: what its options say of the models on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from edgeserve.config import Config
from edgeserve.engine_options import EngineFields
from edgeserve.errors import InvalidRequestError
from edgeserve.loader.catalog import load_catalog
from edgeserve.loader.machine import available_memory
from edgeserve.loader.recommend import human_size
from edgeserve.local_models import LocalModels
from edgeserve.server.many_models import ManyModels
from edgeserve.server.residency import ResidencyLimits

_SHARE_OF_MEMORY = 0.75
_KEEP_ALIVE_S = 600.0
_MOST_SAID = 12


def registry_of_all(
    args: argparse.Namespace, config: Config, fields: EngineFields
) -> tuple[ManyModels, str]:
    """All models on this machine, and what to say of their memory. For a running event loop.

    Raises InvalidRequestError for options that are of one model.
    """
    of_one = (("--draft-model", args.draft_model), ("--chat-template", args.chat_template))
    for option, value in of_one:
        if value is not None:
            raise InvalidRequestError(option, str(value), "given with a MODEL, which it belongs to")
    max_bytes: int = args.max_memory or int(available_memory() * _SHARE_OF_MEMORY)
    library = LocalModels(
        config,
        load_catalog(),
        fields,
        max_bytes=max_bytes,
        max_queued_requests=args.max_queued_requests,
    )
    limits = ResidencyLimits(
        max_bytes,
        _KEEP_ALIVE_S if args.keep_alive is None else args.keep_alive,
        most_waiting=args.max_queued_requests,
    )
    registry = ManyModels(library, limits, aliases_of(args.model_alias))
    return registry, f"{human_size(max_bytes)} of memory for models"


def aliases_of(given: Sequence[str]) -> Mapping[str, str | None]:
    """From NAME=MODEL, or NAME alone for the usual model."""
    pairs = (text.partition("=") for text in given)
    return {name: model or None for name, _, model in pairs}


def said_names(names: Sequence[str]) -> str:
    """What is served, in a line."""
    if not names:
        return "no models on this machine; edgeserve pull fetches one"
    more = f", and {len(names) - _MOST_SAID} more" if len(names) > _MOST_SAID else ""
    return f"{', '.join(names[:_MOST_SAID])}{more}"
