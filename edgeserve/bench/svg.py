"""The few shapes that plots are drawn of, as SVG text."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape


def document(width: float, height: float, title: str, body: Iterable[str]) -> str:
    """The whole file's text: a title in the middle above what `body` draws."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            text(width / 2, 24, title, 'text-anchor="middle" font-size="16"'),
            *body,
            "</svg>\n",
        ]
    )


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"/>'
    )


def polyline(points: Iterable[tuple[float, float]], colour: str, width: float = 2) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>'


def text(x: float, y: float, content: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(content)}</text>'
