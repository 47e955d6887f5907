"""What a chat is called before anybody names it: the beginning of its first message."""

from __future__ import annotations

import re

_MAX_CHARACTERS = 60
_MARKUP = re.compile(r"^(?:[#>*+\-\s]|\d+[.)]\s)+|[`*]+")


def made_title(message: str) -> str:
    """One line of at most 60 characters, without Markdown's signs; "" if nothing is left."""
    for line in message[:10_000].splitlines():
        words = " ".join(_MARKUP.sub("", line).split())
        if any(character.isalnum() for character in words):
            return _shortened(words)
    return ""


def _shortened(words: str) -> str:
    if len(words) <= _MAX_CHARACTERS:
        return words
    cut = words[: _MAX_CHARACTERS - 1]
    whole, space, _ = cut.rpartition(" ")
    # A language without spaces is cut where the room ends.
    kept = whole if space and len(whole) > _MAX_CHARACTERS // 2 else cut
    return kept.rstrip(" ,;:.-") + "…"
