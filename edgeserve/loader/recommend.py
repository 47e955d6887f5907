"""Which checkpoint this machine should run, by memory and by how fast it reads memory."""

from __future__ import annotations

from edgeserve.frozen import frozen
from edgeserve.loader.catalog import Catalog, CatalogEntry, CatalogFile

_READING_TOKENS_PER_S = 5.0  # slower than people read is no conversation


@frozen
class Advice:
    """A checkpoint to run here. `tokens_per_s` is an estimate: bandwidth / bytes per token."""

    entry: CatalogEntry
    file: CatalogFile
    available_bytes: int
    bandwidth_bytes_per_s: float

    @property
    def tokens_per_s(self) -> float:
        return self.bandwidth_bytes_per_s / self.file.bytes_per_token

    @property
    def needed_bytes(self) -> int:
        return self.entry.memory_bytes(self.file)

    def line(self) -> str:
        """What to tell the user: a command that works as it stands, and what it costs."""
        size = "" if self.file.size_is_exact else "about "
        return (
            f"For this machine: edgeserve run {self.entry.name} "
            f"({size}{human_size(self.file.size_bytes)} to download, "
            f"about {self.tokens_per_s:.0f} tokens/s)"
        )


def recommend(catalog: Catalog, available_bytes: int, bandwidth_bytes_per_s: float) -> Advice:
    """The largest checkpoint of the table that fits and answers at reading speed.

    On a machine too slow or too small for any, the first, which stands from 0 bytes on.
    """
    choices = [
        Advice(row.entry, row.entry.files[0], available_bytes, bandwidth_bytes_per_s)
        for row in catalog.recommendations
        if row.memory_bytes <= available_bytes
    ]
    quick = [advice for advice in choices if advice.tokens_per_s >= _READING_TOKENS_PER_S]
    return (quick or choices[:1])[-1]


def human_size(num_bytes: float) -> str:
    """`1.5 GB`, `98 MB`, `12 kB`: powers of ten, as files are sold."""
    if num_bytes >= 999.5e6:
        return f"{num_bytes / 1e9:.1f} GB"
    if num_bytes >= 999.5e3:
        return f"{num_bytes / 1e6:.0f} MB"
    return f"{num_bytes / 1e3:.0f} kB"
