"""Showing a model's terms, and asking whether they are accepted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from edgeserve.loader.catalog import CatalogEntry


def accepting_gate(stderr: TextIO) -> Callable[[CatalogEntry], bool]:
    """For a user who has said yes already: shows the terms, and goes on."""

    def gate(entry: CatalogEntry) -> bool:
        show_terms(entry, stderr)
        return True

    return gate


def asking_gate(stdin: TextIO, stderr: TextIO) -> Callable[[CatalogEntry], bool]:
    """Shows the terms and asks; without a terminal there is nobody to ask, which means no."""

    def gate(entry: CatalogEntry) -> bool:
        show_terms(entry, stderr)
        if not (stdin.isatty() and stderr.isatty()):
            return False
        print("Do you accept these terms? [y/N] ", end="", file=stderr, flush=True)
        return stdin.readline().strip().lower() in {"y", "yes"}

    return gate


def license_gate(accepted: bool) -> Callable[[CatalogEntry], bool]:
    """The gate of a command with an `--accept-license` option."""
    return accepting_gate(sys.stderr) if accepted else asking_gate(sys.stdin, sys.stderr)


def show_terms(entry: CatalogEntry, stderr: TextIO) -> None:
    terms = entry.license
    print(f"{entry.title} comes under the {terms.name}: {terms.url}", file=stderr)
    if terms.summary:
        print(terms.summary, file=stderr)
