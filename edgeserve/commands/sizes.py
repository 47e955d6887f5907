"""Sizes as people type them: 512M, 2G, 1.5GiB."""

from __future__ import annotations

import argparse
import re

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_UNITS = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?I?)B?")


def parse_size(text: str) -> int:
    """Bytes. G is 10^9, Gi is 2^30; a trailing B changes nothing."""
    match = _SIZE.fullmatch(text.strip().upper())
    unit = (_UNITS | _BINARY_UNITS).get(match[2]) if match else None
    if match is None or unit is None or float(match[1]) * unit < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write it like 512M, 2G or 1.5Gi")
    return int(float(match[1]) * unit)
