"""What a model file and the catalogue say about sampling, for requests that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edgeserve.errors import HyperParameterError, InvalidRequestError
from edgeserve.sampling_fields import SAMPLERS
from edgeserve.types import Metadata, SamplingDefaults, SamplingParams

if TYPE_CHECKING:
    from edgeserve.loader.catalog import CatalogEntry

# Ours, and llama.cpp's after `general.sampling.`: its src/llama-arch.cpp.
_KEYS = {
    "temperature": "temp",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
    "repeat_last_n": "penalty_last_n",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
    "samplers": "sequence",
}
# Its samplers are written "min_p", "min-p" or "minp", and some have another name besides.
_SPELLINGS = {
    **{name.replace("_", by): name for name in (*SAMPLERS, "typ_p") for by in ("_", "-", "")},
    "nucleus": "top_p",
    "temp": "temperature",
    "typ": "typical_p",
}


def sampling_defaults(metadata: Metadata, entry: CatalogEntry | None) -> SamplingDefaults:
    """From the file's `general.sampling.*`, then the catalogue, then our own.

    Raises HyperParameterError for a value in the file that no request could ask for.
    """
    base = entry.sampling if entry is not None and entry.sampling is not None else None
    known = base or SamplingDefaults()
    found: dict[str, object] = {
        name: metadata.values[key]
        for name, suffix in _KEYS.items()
        if (key := f"general.sampling.{suffix}") in metadata.values
    }
    if not found:
        return known
    if isinstance(order := found.get("samplers"), str):
        found["samplers"] = _samplers(order)
    try:
        params = SamplingParams(**found)  # pyright: ignore[reportArgumentType]
    except InvalidRequestError as error:
        key = f"general.sampling.{_KEYS[error.parameter]}"
        offset = metadata.offsets.get(key)
        raise HyperParameterError(key, str(error), offset=offset) from error
    return replace(known, **{name: getattr(params, name) for name in found}, origin="model file")


def _samplers(order: str) -> list[str]:
    """The names between the semicolons, in our spelling where it is known."""
    names = (name.strip() for name in order.split(";"))
    return [_SPELLINGS.get(name, name) for name in names if name]
