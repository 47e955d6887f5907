"""Sizes as people type them."""

from __future__ import annotations

import argparse

import pytest

from edgeserve.commands.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("1", 1),
        ("512M", 512_000_000),
        ("2G", 2_000_000_000),
        ("2 gb", 2_000_000_000),
        ("1.5Gi", 3 * 2**29),
        ("1.5GiB", 3 * 2**29),
        (" 64k ", 64_000),
        ("1T", 10**12),
        ("0.5K", 500),
    ],
)
def test_size_is_so_many_bytes(text: str, num_bytes: int) -> None:
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize(
    "text", ["", "0", "0.4", "-1", "lots", "1e9", "2X", "1,5G", "nan", "inf", "G", "9" * 400 + "T"]
)
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"512M, 2G or 1\.5Gi"):
        parse_size(text)
