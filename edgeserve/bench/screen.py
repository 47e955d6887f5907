"""A report as text: what computed, one line a measure, then where the time went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgeserve.bench.profile import Profile
from edgeserve.bench.report import Measured, Report
from edgeserve.loader.recommend import human_size

_LEAST_SHARE = 0.005  # operations below it are added up in one line


def lines_of(report: Report) -> Iterator[str]:
    """Without colours; columns are aligned within each table."""
    yield from _aligned(list(_facts(report)), "ll")
    yield ""
    yield from _measures(report)
    for left in report.left_out:
        yield f"{left.measure.name} left out: {left.reason}"
    for profile in report.profiles:
        yield ""
        yield from _profile(profile)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    model, machine, limits = report.model, report.machine, report.limits
    yield (
        "model",
        f"{model.name} ({model.architecture}, {human_size(model.size_bytes)}, "
        f"{human_size(model.weight_bytes)} of weights in memory)",
    )
    yield "machine", f"{machine.processor}, {machine.cores} cores, {machine.system}"
    plural = "s" * (machine.threads > 1)
    yield (
        "computing",
        f"{machine.threads} thread{plural}, kernel set {machine.kernels}, "
        f"KV cache {machine.kv_cache_dtype}",
    )
    yield (
        "limits",
        f"memory is read at {human_size(limits.read_bytes_per_s)}/s, "
        f"int8 multiplies at {limits.int8_per_s / 1e9:,.0f} GOP/s",
    )
    yield "versions", ", ".join(f"{name} {version}" for name, version in report.versions.items())
    if machine.is_busy:
        yield "busy", f"other programs were running (load {machine.load:.1f}): figures are low"
    yield "method", f"medians of {report.rounds} alternated rounds; forward passes only"


def _measures(report: Report) -> Iterator[str]:
    others = list(report.measured[0].timing.seconds)[1:]
    header = ["tokens/s", "edgeserve", "of read", "of int8", *others]
    rows = [header + ["ratio"] * bool(others)]
    rows += [_measure(each, others) for each in report.measured]
    yield from _aligned(rows, "l" + "r" * (len(rows[0]) - 1))


def _measure(found: Measured, others: Sequence[str]) -> list[str]:
    timing = found.timing
    row = [
        timing.measure.name,
        _rate(timing.tokens_per_s(timing.ours)),
        f"{found.of_read:.2f}",
        f"{found.of_int8:.2f}",
        *(_rate(timing.tokens_per_s(name)) for name in others),
    ]
    return row if timing.ratio is None else [*row, f"{timing.ratio:.2f} x"]


def _profile(profile: Profile) -> Iterator[str]:
    steps = "one step" if profile.num_steps == 1 else f"a step of {profile.num_steps}"
    rows = [
        [
            f"{profile.measure.name}: {steps}",
            "ms",
            "share",
            "GB/s",
            "of read",
            "GOP/s",
            "of int8",
        ]
    ]
    small = [op for op in profile.operations if op.share < _LEAST_SHARE]
    for op in profile.operations:
        if op.share < _LEAST_SHARE:
            continue
        rows.append(
            [
                op.name,
                _milliseconds(op.seconds / profile.num_steps),
                f"{op.share:.1%}",
                _or_nothing(op.bytes_per_s / 1e9, ".1f"),
                _or_nothing(op.bytes_per_s / profile.limits.read_bytes_per_s, ".2f"),
                _or_nothing(op.operations_per_s / 1e9, ",.0f"),
                _or_nothing(op.weight_operations_per_s / profile.limits.int8_per_s, ".2f"),
            ]
        )
    if small:
        seconds = sum(op.seconds for op in small) / profile.num_steps
        share = sum(op.share for op in small)
        rows.append(["the rest", _milliseconds(seconds), f"{share:.1%}", "", "", "", ""])
    total = _milliseconds(profile.seconds / profile.num_steps)
    rows.append(["all", total, "100.0%", "", "", "", ""])
    yield from _aligned(rows, "lrrrrrr")


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 100 else f"{tokens_per_s:.1f}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _or_nothing(value: float, style: str) -> str:
    return format(value, style) if value else ""


def _aligned(rows: Sequence[Sequence[str]], sides: str) -> Iterator[str]:
    """Columns two spaces apart; `sides` has an l or r for each."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(sides))]
    for row in rows:
        cells = (
            cell.ljust(width) if side == "l" else cell.rjust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        )
        yield "  ".join(cells).rstrip()
