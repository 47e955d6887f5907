"""A roofline plot as SVG: operations a second over operations a byte, both logarithmic.

The roof is what this machine was measured to give: memory's slope, then int8's ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from edgeserve.bench import svg
from edgeserve.bench.report import Report
from edgeserve.frozen import frozen

_WIDTH, _HEIGHT = 900, 560
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 30, 50, 70
_COLOURS = ("#1565c0", "#c62828", "#ef6c00", "#2e7d32")
_LABEL_GAP = 13.0


@frozen
class _Point:
    name: str
    label: str
    colour: str
    intensity: float  # operations a byte
    rate: float  # operations a second


@frozen
class _Axes:
    """Logarithms of the corners."""

    x_low: int
    x_high: int
    y_low: int
    y_high: int

    def x(self, intensity: float) -> float:
        share = (math.log10(intensity) - self.x_low) / (self.x_high - self.x_low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, rate: float) -> float:
        share = (math.log10(rate) - self.y_low) / (self.y_high - self.y_low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def roofline_svg(report: Report) -> str:
    """The whole file's text."""
    points = list(_points(report))
    axes = _axes(points, report)
    body = [*_grid(axes), *_roof(axes, report), *_marks(axes, points), *_legend(report)]
    title = f"{report.model.name} on {report.machine.processor}, {report.machine.threads} threads"
    return svg.document(_WIDTH, _HEIGHT, title, body)


def _points(report: Report) -> Iterator[_Point]:
    for found in report.measured:
        measure, work = found.timing.measure, found.work
        for name, colour in zip(found.timing.seconds, _COLOURS, strict=False):
            per_token = work.operations / measure.total_tokens
            rate = per_token * found.timing.tokens_per_s(name)
            label = measure.name if name == found.timing.ours else ""
            yield _Point(name, label, colour, work.operations / work.num_bytes, rate)


def _axes(points: Sequence[_Point], report: Report) -> _Axes:
    """Whole decades around everything that is drawn."""
    limits = report.limits
    ridge = limits.int8_per_s / limits.read_bytes_per_s
    xs = [*(point.intensity for point in points), ridge]
    ys = [*(point.rate for point in points), limits.int8_per_s]
    x_low, x_high = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs) * 1.5))
    y_low, y_high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys) * 1.2))
    return _Axes(x_low, max(x_high, x_low + 1), y_low, max(y_high, y_low + 1))


def _grid(axes: _Axes) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for power in range(axes.x_low, axes.x_high + 1):
        x = axes.x(10.0**power)
        yield svg.line(x, _TOP, x, bottom, "#ddd")
        yield svg.text(x, bottom + 18, f"{10.0**power:g}", 'text-anchor="middle"')
    for power in range(axes.y_low, axes.y_high + 1):
        y = axes.y(10.0**power)
        yield svg.line(_LEFT, y, right, y, "#ddd")
        yield svg.text(_LEFT - 8, y + 4, f"{10.0 ** (power - 9):g}", 'text-anchor="end"')
    middle = f"{_LEFT - 50}, {(_TOP + bottom) / 2}"
    yield svg.text(
        (_LEFT + right) / 2, bottom + 42, "operations a byte of memory", 'text-anchor="middle"'
    )
    yield (f'<text transform="translate({middle}) rotate(-90)" text-anchor="middle">GOP/s</text>')


def _roof(axes: _Axes, report: Report) -> Iterator[str]:
    limits = report.limits
    lowest, highest = 10.0**axes.x_low, 10.0**axes.x_high
    start = max(lowest, 10.0**axes.y_low / limits.read_bytes_per_s)
    ridge = min(max(limits.int8_per_s / limits.read_bytes_per_s, start), highest)
    corners = [
        (start, min(start * limits.read_bytes_per_s, limits.int8_per_s)),
        (ridge, min(ridge * limits.read_bytes_per_s, limits.int8_per_s)),
        (highest, min(highest * limits.read_bytes_per_s, limits.int8_per_s)),
    ]
    yield svg.polyline(((axes.x(x), axes.y(y)) for x, y in corners), "#333")
    ceiling = f"int8 {limits.int8_per_s / 1e9:,.0f} GOP/s"
    yield svg.text(_WIDTH - _RIGHT - 4, axes.y(limits.int8_per_s) - 6, ceiling, 'text-anchor="end"')
    slope = f"memory {limits.read_bytes_per_s / 1e9:.1f} GB/s"
    yield svg.text(axes.x(start) + 10, axes.y(corners[0][1]) - 16, slope)


def _marks(axes: _Axes, points: Sequence[_Point]) -> Iterator[str]:
    """Circles, and labels moved apart where measures lie on one another."""
    taken: list[tuple[float, float]] = []
    for point in points:
        x, y = axes.x(point.intensity), axes.y(point.rate)
        hint = f"{point.name}: {point.rate / 1e9:.1f} GOP/s"
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{point.colour}" fill-opacity="0.8">'
            f"<title>{escape(hint)}</title></circle>"
        )
        if not point.label:
            continue
        at = y + 4
        while any(
            abs(x - other) < 110 and abs(at - height) < _LABEL_GAP for other, height in taken
        ):
            at += _LABEL_GAP
        taken.append((x, at))
        is_right = x > _WIDTH - _RIGHT - 110
        anchor = 'text-anchor="end"' if is_right else ""
        yield svg.text(x - 9 if is_right else x + 9, at, point.label, anchor)


def _legend(report: Report) -> Iterator[str]:
    """At the top left: nothing is above the roof."""
    for i, (name, colour) in enumerate(
        zip(report.measured[0].timing.seconds, _COLOURS, strict=False)
    ):
        y = _TOP + 22 + 18 * i
        yield f'<circle cx="{_LEFT + 16}" cy="{y - 4}" r="5" fill="{colour}"/>'
        yield svg.text(_LEFT + 28, y, name)
