"""Each screen as a picture (tests/__snapshots__), and its texts' contrast.

The screens that everybody sees are pictured small and wide, dark and light; what looks the same in
all of them, once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.color import Color
from textual.pilot import Pilot

from tests.chat_scenes import SCENES

_SMALL, _WIDE = (80, 24), (160, 48)
_EVERYWHERE = ("chat", "cockpit", "help", "lists", "models", "settings")
_SMALL_AND_DARK = (
    "attaching",
    "branches",
    "broken",
    "deleted",
    "editing",
    "first-run",
    "found",
    "loading",
    "markdown",
    "palette",
    "prompts",
    "reading",
    "room",
    "scrolled",
    "silent",
    "thoughts",
    "typed",
    "variables",
)
_WIDE_TOO = ("deleted", "palette", "reading", "room")
"""What is laid out otherwise there."""

_PICTURES = [
    *(
        (scene, size, theme)
        for scene in _EVERYWHERE
        for size in (_SMALL, _WIDE)
        for theme in ("dark", "light")
    ),
    *((scene, _SMALL, "dark") for scene in _SMALL_AND_DARK),
    *((scene, _WIDE, "light") for scene in _WIDE_TOO),
    ("tokens", _WIDE, "dark"),
    ("lists", _SMALL, "terminal"),
    ("ascii", (60, 20), "dark"),
    ("colourless", _SMALL, "dark"),
]

_LEAST_CONTRAST = 4.5
"""WCAG 2, AA, for text of ordinary size."""


def _id(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize(("scene", "size", "theme"), _PICTURES, ids=_id)
def test_a_screen_looks_as_it_did(
    snap_compare: Any, tmp_path: Path, scene: str, size: tuple[int, int], theme: str
):
    app, client = SCENES[scene].app(tmp_path, theme)
    faint: list[str] = []

    async def play(pilot: Pilot[None]) -> None:
        await SCENES[scene].act(app, pilot, client)
        faint.extend(_faint_texts(app))

    assert snap_compare(app, terminal_size=size, run_before=play)
    assert theme == "terminal" or faint == []


@pytest.mark.parametrize("scene", sorted(set(SCENES) - {scene for scene, _, _ in _PICTURES}))
def test_what_is_not_pictured_can_be_read(tmp_path: Path, scene: str):
    app, client = SCENES[scene].app(tmp_path, "light")

    async def main() -> list[str]:
        async with app.run_test(size=_SMALL) as pilot:
            await SCENES[scene].act(app, pilot, client)
            return _faint_texts(app)

    assert asyncio.run(asyncio.wait_for(main(), 60)) == []


def _faint_texts(app: App[None]) -> list[str]:
    """What can hardly be read: of a dialog's own texts, where there is one."""
    boxes = app.screen.query(".box, CommandPalette > Vertical")
    region = boxes.first().region if boxes else app.screen.region
    faint: list[str] = []
    strips = app.screen._compositor.render_strips()
    for strip in strips[region.y : region.bottom]:
        for text, style, _ in strip.crop(region.x, region.right):
            if any(each.isalnum() for each in text) and style and style.color and style.bgcolor:
                ink, paper = map(Color.from_rich_color, (style.color, style.bgcolor))
                if _contrast(ink, paper) < _LEAST_CONTRAST and not style.reverse:
                    faint.append(f"{text.strip()}: {_contrast(ink, paper):.1f}")
    return faint


def _contrast(one: Color, other: Color) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: Color) -> float:
    """Relative, as WCAG 2 has it."""
    channels = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4
        for each in (color.r / 255, color.g / 255, color.b / 255)
    ]
    return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]
