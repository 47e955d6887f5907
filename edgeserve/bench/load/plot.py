"""A load as SVG: every request over time, and below how TTFT and TPOT are spread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from edgeserve.bench import svg
from edgeserve.bench.load.exchange import Exchange
from edgeserve.bench.load.session import LoadReport
from edgeserve.frozen import frozen

_WIDTH, _HEIGHT = 900, 640
_WAITING, _ANSWERING, _FAILED, _LIMIT = "#b0bec5", "#1565c0", "#c62828", "#ef6c00"
_TICKS = 6


@frozen
class _Panel:
    """A part of the picture, and the largest value at its right edge."""

    left: float
    right: float
    top: float
    bottom: float
    most: float

    def x(self, value: float) -> float:
        return self.left + min(value / self.most, 1.0) * (self.right - self.left)

    def y(self, share: float) -> float:
        """Of a share of the height, from below."""
        return self.bottom - share * (self.bottom - self.top)


def load_svg(report: LoadReport) -> str:
    """The whole file's text."""
    slo = report.options.slo
    ttft = [each.ttft_s for each in report.exchanges if each.ttft_s is not None]
    tpot = [each.tpot_s for each in report.exchanges if each.tpot_s is not None]
    body = [
        *_timeline(report.exchanges),
        *_distribution(ttft, slo.ttft_s, "TTFT, ms", 80, 430),
        *_distribution(tpot, slo.tpot_s, "TPOT, ms", 520, 870),
    ]
    title = (
        f"{report.options.ask.model}: {report.figures.output_tokens_per_s:,.1f} tokens/s, "
        f"{report.figures.num_answered:,} of {report.figures.num_requests:,} answered"
    )
    return svg.document(_WIDTH, _HEIGHT, title, body)


def _timeline(exchanges: Sequence[Exchange]) -> Iterator[str]:
    """A line a request, by when it was sent: grey until the first text, then blue."""
    start = min(each.sent for each in exchanges)
    most = max(each.ended for each in exchanges) - start
    panel = _Panel(80, 870, 60, 340, most or 1.0)
    yield from _axis(panel, "seconds", 1.0)
    height = (panel.bottom - panel.top) / len(exchanges)
    thick = min(max(height * 0.7, 0.5), 10.0)
    for i, each in enumerate(sorted(exchanges, key=lambda one: one.sent)):
        y = panel.top + (i + 0.5) * height
        first = each.pieces[0] if each.pieces else each.ended
        colour = _ANSWERING if each.failure is None else _FAILED
        hint = f"chat {each.chat}, turn {each.turn}: {each.num_tokens} tokens"
        yield f"<g><title>{escape(hint)}</title>"
        sent, shown, ended = (panel.x(at - start) for at in (each.sent, first, each.ended))
        yield svg.line(sent, y, shown, y, _WAITING if each.failure is None else _FAILED, thick)
        yield svg.line(shown, y, ended, y, colour, thick)
        yield "</g>"
    yield svg.text(80, 52, "requests: waiting for the first text (grey), answering (blue)")


def _distribution(
    values: Sequence[float], limit: float | None, name: str, left: float, right: float
) -> Iterator[str]:
    """The share of requests at or under each value, and where the SLO's limit is."""
    most = max([*values, limit or 0.0]) or 1.0
    panel = _Panel(left, right, 420, 580, most * 1.05)
    yield from _axis(panel, name, 1e3)
    for share in (0.0, 0.5, 0.9, 1.0):
        yield svg.line(left, panel.y(share), right, panel.y(share), "#ddd")
        yield svg.text(left - 8, panel.y(share) + 4, f"{share:.0%}", 'text-anchor="end"')
    corners = [(panel.x(0.0), panel.y(0.0))]
    for i, value in enumerate(sorted(values)):
        corners += [(panel.x(value), panel.y(share / len(values))) for share in (i, i + 1)]
    yield svg.polyline(corners, _ANSWERING)
    if limit is not None:
        yield svg.line(panel.x(limit), panel.top, panel.x(limit), panel.bottom, _LIMIT, 2)


def _axis(panel: _Panel, name: str, scale: float) -> Iterator[str]:
    """Lines at round values of what `scale` makes of seconds."""
    step = _round_step(panel.most * scale)
    for tick in range(int(panel.most * scale / step) + 1):
        x = panel.x(tick * step / scale)
        yield svg.line(x, panel.top, x, panel.bottom, "#eee")
        yield svg.text(x, panel.bottom + 18, f"{tick * step:g}", 'text-anchor="middle"')
    middle = (panel.left + panel.right) / 2
    yield svg.text(middle, panel.bottom + 38, name, 'text-anchor="middle"')


def _round_step(most: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that cuts `most` into at most so many parts."""
    power = 10.0 ** math.floor(math.log10(most / _TICKS))
    return next(power * each for each in (1, 2, 5, 10) if most / (power * each) <= _TICKS)
