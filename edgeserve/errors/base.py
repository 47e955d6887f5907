"""What all errors have in common."""

from __future__ import annotations

_MAX_SHOWN = 200


class EdgeServeError(Exception):
    """Base of all errors raised on purpose. `exit_code` is what the command line ends with."""

    exit_code = 1


def shown(value: object) -> str:
    """The value in a message of one line: a whole prompt, or a million digits, is cut short."""
    try:
        text = repr(value)
    except Exception:  # Python refuses to print integers past 4300 digits; a repr may do anything
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
