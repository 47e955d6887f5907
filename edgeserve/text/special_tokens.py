"""Finds the tokens that stand for themselves in a text before the rest of it is encoded.

Longest tokens first, each from the left, as the reference does it: not leftmost-longest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from edgeserve.frozen import frozen
from edgeserve.text.stop_tokens import CONTROL, UNKNOWN, USER_DEFINED
from edgeserve.text.vocabulary import Vocabulary

_SPACES = " \t\n\v\f\r"
_KEY_CHARS = 4  # tells `<unused17>` from most text, for vocabularies with thousands of these

_COVER = "\ud800"  # hides what longer tokens took: no text, no token holds a lone surrogate


class _Special(NamedTuple):
    """A tuple, because some vocabularies have thousands: a frozen dataclass takes four times as
    long to make."""

    text: str
    token_id: int
    strips_left: bool
    strips_right: bool


@frozen
class _Match:
    """What a token takes of a text: [start, end), white space it swallows included."""

    start: int
    end: int
    token_id: int


class SpecialTokens:
    """Splits text at control tokens (when they count) and at user-defined ones (always)."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        control = vocabulary.ids_of_kind(CONTROL | UNKNOWN)
        own = set(vocabulary.ids_of_kind(USER_DEFINED)).difference(control)
        specials = [_special(vocabulary, token_id) for token_id in sorted(own.union(control))]
        self._all = _by_beginning(specials)
        self._user_defined = _by_beginning(s for s in specials if s.token_id in own)
        self.control_texts = tuple(vocabulary.tokens[token_id] for token_id in control)

    def split(self, text: str, *, parse_special: bool, guard: str | None = None) -> list[int | str]:
        """Token ids, and between them the text that is left to encode.

        A control token directly after whose beginning a `guard` stands is plain text; the guard
        itself is taken out.
        """
        if not parse_special:
            text = text.replace(guard, "") if guard else text
            return self._split(text, self._user_defined, None)
        parts = self._split(text, self._all, guard)
        if guard is None:
            return parts
        plain: list[int | str] = []
        for part in parts:
            if isinstance(part, str) and guard in part:
                plain += self._split(part.replace(guard, ""), self._user_defined, None)
            else:
                plain.append(part)
        return plain

    def _split(
        self, text: str, specials: dict[str, list[_Special]], guard: str | None
    ) -> list[int | str]:
        present = [
            special
            for beginning, group in specials.items()
            if beginning in text
            for special in group
            if special.text in text
        ]
        if not present:
            return [text] if text else []
        present.sort(key=lambda special: -len(special.text.encode()))
        matches: list[_Match] = []
        left = text
        for special in present:
            left = self._take(special, left, guard, matches)
        matches.sort(key=lambda match: match.start)
        parts: list[int | str] = []
        at = 0
        for match in matches:
            if match.start > at:
                parts.append(text[at : match.start])
            parts.append(match.token_id)
            at = match.end
        return [*parts, text[at:]] if at < len(text) else parts

    def _take(self, special: _Special, text: str, guard: str | None, matches: list[_Match]) -> str:
        """Adds the matches of one token; returns the text with them covered."""
        kept: list[str] = []
        at = search_from = 0
        while (start := text.find(special.text, search_from)) >= 0:
            end = search_from = start + len(special.text)
            if guard is not None and text.startswith(guard, end):
                continue  # a token of one character has no inside: its guard stands behind it
            if special.strips_left:
                start = at + len(text[at:start].rstrip(_SPACES))
            if special.strips_right:
                while end < len(text) and text[end] in _SPACES:
                    end += 1
            matches.append(_Match(start, end, special.token_id))
            kept += (text[at:start], _COVER * (end - start))
            at = search_from = end
        return "".join((*kept, text[at:]))


def _special(vocabulary: Vocabulary, token_id: int) -> _Special:
    return _Special(
        vocabulary.tokens[token_id],
        token_id,
        token_id in vocabulary.left_strip_ids,
        token_id in vocabulary.right_strip_ids,
    )


def _by_beginning(specials: Iterable[_Special]) -> dict[str, list[_Special]]:
    groups: dict[str, list[_Special]] = {}
    for special in specials:
        groups.setdefault(special.text[:_KEY_CHARS], []).append(special)
    return groups
