"""A load's report on a terminal: what was asked, a table of times, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from edgeserve.bench.load.drive import Poisson
from edgeserve.bench.load.figures import Figures, Slo, Spread
from edgeserve.bench.load.session import LoadOptions, LoadReport

_LATE_S = 0.05


def show(report: LoadReport, console: Console) -> None:
    """Everything that a user should know, warnings last."""
    console.print(Group(*_parts(report)))


def _parts(report: LoadReport) -> Iterator[RenderableType]:
    found = report.figures
    yield _facts(report.options, found)
    yield ""
    yield _times(found)
    for label, count in found.failures.items():
        share = f"{count:,} of {found.num_requests:,} requests failed"
        yield Text(f"{share}: {label}: {_example(report, label)}", style="red")
    if not found.is_counted:
        yield Text("The server did not count tokens; each event with text is taken for one.")
    if found.late_s > _LATE_S:
        late = f"up to {found.late_s * 1e3:,.0f} ms after their time"
        yield Text(f"This program sent requests {late}: it was itself too busy.", style="yellow")


def _facts(options: LoadOptions, found: Figures) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in _lines(options, found):
        table.add_row(Text(name, style="bold"), Text(value))
    return table


def _lines(options: LoadOptions, found: Figures) -> Iterator[tuple[str, str]]:
    shape, pacing = options.shape, options.pacing
    yield "server", f"{options.url}, model {options.ask.model}"
    turns = f" of {shape.turns} turns" if shape.turns > 1 else ""
    yield (
        "load",
        f"{shape.num_chats:,} chats{turns}, "
        + (
            f"{pacing.rate:g} a second (Poisson)"
            if isinstance(pacing, Poisson)
            else f"{pacing.chats:,} at a time"
        ),
    )
    yield "answered", f"{found.num_answered:,} of {found.num_requests:,} in {found.wall_s:.2f} s"
    cached = "" if found.cached_tokens is None else f", {found.cached_tokens:,} of them cached"
    yield "prompts", f"{found.prompt_tokens:,} tokens{cached}"
    yield "output", f"{found.output_tokens:,} tokens, {found.output_tokens_per_s:,.1f} a second"
    yield "requests", f"{found.requests_per_s:.2f} a second"
    if found.goodput is not None:
        good = f"{found.good_requests:,} of {found.num_requests:,}"
        yield "goodput", f"{found.goodput:.2f} a second: {good} kept {_asked(options.slo)}"


def _asked(slo: Slo) -> str:
    limits = (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s))
    return " and ".join(
        f"{name} ≤ {limit * 1e3:g} ms" for name, limit in limits if limit is not None
    )


def _times(found: Figures) -> Table:
    table = Table("milliseconds", box=None, pad_edge=False)
    for column in ("mean", "p50", "p90", "p99", "max"):
        table.add_column(column, justify="right")
    rows: tuple[tuple[str, Spread | None], ...] = (
        ("TTFT, until the first text", found.ttft),
        ("TPOT, a token after it", found.tpot),
        ("ITL, between events", found.itl),
        ("until the end", found.e2e),
    )
    for name, spread in rows:
        if spread is not None:
            values = (spread.mean, spread.p50, spread.p90, spread.p99, spread.max)
            table.add_row(name, *(f"{value * 1e3:,.1f}" for value in values))
    return table


def _example(report: LoadReport, label: str) -> str:
    return next(
        each.failure.detail
        for each in report.exchanges
        if each.failure is not None and each.failure.label == label
    )
