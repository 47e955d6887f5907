"""A chat's settings, from what somebody typed, or a file has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from edgeserve.errors import InvalidRequestError
from edgeserve.tui.client import ModelInUse


def _at_least(least: float) -> Callable[[float], bool]:
    return lambda value: value >= least


def _up_to(most: float) -> Callable[[float], bool]:
    return lambda value: 0 <= value <= most


def _above_zero(value: float) -> bool:
    return 0 < value < math.inf


_NUMBERS: Mapping[str, tuple[type[int] | type[float], Callable[[float], bool], str]] = {
    "temperature": (float, _up_to(100), "from 0 to 100; 0 never varies"),
    "top_p": (float, lambda value: 0 < value <= 1, "a number above 0, at most 1"),
    "top_k": (int, _at_least(0), "a whole number from 0 on; 0 is off"),
    "min_p": (float, _up_to(1), "a number from 0 to 1; 0 is off"),
    "repetition_penalty": (float, _above_zero, "a number above 0; 1 is off"),
    "max_tokens": (int, _at_least(1), "a whole number of tokens"),
    "seed": (int, _up_to(2**64 - 1), "a whole number from 0, below 2^64"),
    "thinking_budget": (int, _at_least(0), "a whole number of tokens; 0 is no thinking"),
}

_THINKS: Mapping[str, bool | None] = {"": None, "auto": None, "on": True, "off": False}

NUMBERS = tuple(_NUMBERS)
"""The names of settings that are numbers."""


def as_setting(name: str, text: str) -> object:
    """The value for a setting, None for an empty text. Raises InvalidRequestError."""
    if name == "thinking":
        return _thinks(text)
    if name not in _NUMBERS:
        raise InvalidRequestError("setting", name, f"one of {', '.join(_NUMBERS)}")
    kind, is_allowed, allowed = _NUMBERS[name]
    if not text.strip() or text.strip() == "auto":
        return None
    try:
        value = kind(text.strip().replace(",", "."))
    except ValueError:
        raise InvalidRequestError(name, text, allowed) from None
    if not is_allowed(value):
        raise InvalidRequestError(name, text, allowed)
    return value


def explained(name: str) -> str:
    """What a number may be."""
    return _NUMBERS[name][2]


def auto(name: str, model: ModelInUse | None) -> str:
    """What is shown for a number that is left to the model: auto, auto 0.95."""
    sampling = None if model is None else model.sampling
    value = getattr(sampling, name, None)
    return "auto" if value is None else f"auto {value:g}"


def auto_explained(model: ModelInUse | None) -> str:
    """Where the numbers come from that stand for auto, and what it means without one."""
    numbers = "as the server likes"
    if model is None:
        numbers = "as the model likes"
    elif model.sampling is not None:
        numbers = _ORIGINS.get(model.sampling.origin, f"as {model.sampling.origin} says")
    return f"Empty is auto: {numbers}; as many tokens as there is room for, another seed each time"


_ORIGINS = {
    "edgeserve": "our own numbers, as the model file has none",
    "model file": "as the model file says",
}


def thinking(how: str) -> Mapping[str, object]:
    """From on, off, auto or a budget. Raises InvalidRequestError."""
    word = how.strip().lower()
    if word in _THINKS:
        return {"thinking": _THINKS[word], "thinking_budget": None}
    if word.isdecimal():
        return {"thinking": True, "thinking_budget": as_setting("thinking_budget", word)}
    raise InvalidRequestError("thinking", how, "on, off, auto or a number of tokens")


def usable(settings: Mapping[str, object]) -> dict[str, Any]:
    """Those that this version knows, of the kind that it knows: a file may have any."""
    return {name: value for name, value in settings.items() if _is_usable(name, value)}


def _is_usable(name: str, value: object) -> bool:
    if name not in _NUMBERS:
        return name == "thinking" and isinstance(value, bool)
    kind, is_allowed, _ = _NUMBERS[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return (kind is float or isinstance(value, int)) and is_allowed(value)


def _thinks(text: str) -> bool | None:
    try:
        return _THINKS[text.strip().lower()]
    except KeyError:
        raise InvalidRequestError("thinking", text, "on, off or auto") from None
