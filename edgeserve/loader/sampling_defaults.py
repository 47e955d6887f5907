"""What a model file and the catalogue say about sampling, for requests that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeserve.errors import HyperParameterError, InvalidRequestError
from edgeserve.types import Metadata, SamplingDefaults, SamplingParams

if TYPE_CHECKING:
    from edgeserve.loader.catalog import CatalogEntry


def sampling_defaults(metadata: Metadata, entry: CatalogEntry | None) -> SamplingDefaults:
    """From the file's `general.sampling.*`, then the catalogue, then our own.

    Raises HyperParameterError for a value in the file that no request could ask for.
    """
    keys = {
        "temperature": "temp",
        "top_p": "top_p",
        "top_k": "top_k",
        "min_p": "min_p",
        "repetition_penalty": "penalty_repeat",
    }
    base = entry.sampling if entry is not None and entry.sampling is not None else None
    known = base or SamplingDefaults()
    found = {
        name: metadata.values[key]
        for name, suffix in keys.items()
        if (key := f"general.sampling.{suffix}") in metadata.values
    }
    if not found:
        return known
    try:
        params = SamplingParams(**found)  # pyright: ignore[reportArgumentType]
    except InvalidRequestError as error:
        key = f"general.sampling.{keys[error.parameter]}"
        offset = metadata.offsets.get(key)
        raise HyperParameterError(key, str(error), offset=offset) from error
    own = params.resolved(known)
    return SamplingDefaults(
        own.temperature, own.top_p, own.top_k, own.min_p, own.repetition_penalty, "model file"
    )
