"""Durations as people type them: 30s, 10m, 1.5h; -1 is for ever."""

from __future__ import annotations

import argparse
import math
import re

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd]?)")


def parse_duration(text: str) -> float:
    """Seconds; infinite for -1."""
    if text.strip() == "-1":
        return math.inf
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no duration; write it like 30s, 10m or 1h, or -1 for ever"
        )
    return float(match[1]) * _SECONDS[match[2]]
