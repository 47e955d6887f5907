"""Numbers as the screen says them."""

from __future__ import annotations

from pathlib import Path, PurePath

from edgeserve.chats.records import Generation
from edgeserve.tui.client import LoadProgress, ModelInUse, PromptReading, PromptSize
from edgeserve.tui.fetch_pace import STALLED_S
from edgeserve.tui.signs import Signs

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def called(model: str) -> str:
    """A model's name; of a path its file's."""
    return PurePath(model).stem if model.endswith(".gguf") else model


def tokens_short(count: int) -> str:
    """812, 1.2k, 28k, 131k."""
    if count < 1000:
        return str(count)
    thousands = count / 1000
    return f"{thousands:.1f}k".replace(".0k", "k") if thousands < 9.95 else f"{thousands:.0f}k"


def size(num_bytes: int) -> str:
    """340 bytes, 12 kB, 1.0 MB, 4.9 GB."""
    if num_bytes < 1000:
        return f"{num_bytes} bytes"
    value, units = num_bytes / 1000, ["kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    unit = units[0]
    return f"{value:.0f} {unit}" if unit == "kB" or value >= 99.5 else f"{value:.1f} {unit}"


def seconds(value: float) -> str:
    """0.4 s, 41 s, 3 min, 2.5 h."""
    return f"{value:.1f} s" if value < 9.95 else lasting(value)


def lasting(value: float) -> str:
    """As `seconds`, of something that is counted while it lasts: 4 s, 41 s, 3 min."""
    if value < 100:
        return f"{value:.0f} s"
    minutes = value / _MINUTE
    return f"{minutes:.0f} min" if minutes < 100 else f"{value / _HOUR:.1f} h"


def ago(then: float, now: float) -> str:
    """now, 5 m, 3 h, 2 d, 7 w: how long ago, in a list."""
    passed = max(0.0, now - then)
    for limit, unit, name in (
        (_HOUR, _MINUTE, "m"),
        (_DAY, _HOUR, "h"),
        (14 * _DAY, _DAY, "d"),
    ):
        if passed < limit:
            count = int(passed // unit)
            return f"{count} {name}" if count else "now"
    return f"{int(passed // (7 * _DAY))} w"


def reading(progress: PromptReading, signs: Signs, silent: str = "") -> str:
    """reading prompt 12,400 / 28,100 · 41 s left; or that it does not go on."""
    text = f"reading prompt {progress.done:,} / {progress.total:,}"
    left = progress.seconds_left
    if silent:
        return signs.joined(text, silent)
    return text if left is None or left < 0.05 else signs.joined(text, f"{seconds(left)} left")


def loading(
    name: str,
    progress: LoadProgress | None,
    signs: Signs,
    *,
    left_s: float | None = None,
    silent_s: float = 0.0,
) -> str:
    """fetching smollm2 · 120 MB of 1.1 GB · 11 % · 3 min left; or stalled for 12 s."""
    text = f"loading {called(name)}"
    if progress is None or progress.stage == "load":
        if progress is not None and progress.total_bytes and progress.done_bytes:
            return signs.joined(text, _share(progress))
        lasts = lasting(silent_s) if silent_s >= STALLED_S else ""
        return signs.joined(f"{text}{signs.ellipsis}", lasts)
    if not progress.total_bytes and progress.label:
        return progress.label
    verb = "checking" if progress.label.startswith("checking ") else "fetching"
    rest = "" if left_s is None else f"{seconds(left_s)} left"
    if silent_s >= STALLED_S:
        rest = f"stalled for {lasting(silent_s)}"
    if not progress.total_bytes:
        return signs.joined(f"{verb} {called(name)}", size(progress.done_bytes), rest)
    done = f"{size(progress.done_bytes)} of {size(progress.total_bytes)}"
    return signs.joined(f"{verb} {called(name)}", done, _share(progress), rest)


def _share(progress: LoadProgress) -> str:
    return f"{100 * progress.done_bytes / (progress.total_bytes or 1):.0f} %"


def at_home(path: Path) -> str:
    """A path as its user would write it: ~ for the home folder."""
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)


def kept_meanwhile(path: Path) -> str:
    """Where chats are while their own file cannot be used."""
    return f"Until then new chats are kept in {path}; in the chat, /import {path} takes them over."


def meter(model: ModelInUse, used: int | None, signs: Signs) -> str:
    """1.2k of 8k ━╸───."""
    if model.context_tokens is None:
        return "" if used is None else f"{tokens_short(used)} tokens"
    total = tokens_short(model.context_tokens)
    if used is None:
        return f"context {total}"
    bar = signs.meter(used / model.context_tokens, 5)
    return f"{tokens_short(used)} of {total} {bar}"


def cost(prompt: PromptSize, signs: Signs, *, what: str) -> str:
    """this branch: 1,240 tokens · 1,180 cached · 0.3 s."""
    cached = "" if prompt.cached is None else f"{prompt.cached:,} cached"
    takes = "" if prompt.seconds is None else f"{seconds(prompt.seconds)} to read"
    return signs.joined(f"{what}: {prompt.tokens:,} tokens", cached, takes)


def footer(made: Generation, signs: Signs) -> str:
    """412 tokens · 31.0 a second · 96 % cached."""
    parts: list[str] = []
    if made.answer_tokens is not None:
        parts.append(f"{made.answer_tokens:,} token{'s' * (made.answer_tokens != 1)}")
    if made.tokens_per_s:
        parts.append(f"{made.tokens_per_s:.1f} a second")
    if made.prompt_tokens and made.cached_tokens is not None:
        parts.append(f"{100 * made.cached_tokens / made.prompt_tokens:.0f} % cached")
    if made.finish_reason == "length":
        parts.append("cut off: /continue goes on")
    return signs.joined(*parts)
