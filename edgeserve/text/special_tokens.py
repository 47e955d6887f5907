"""Finds the tokens that stand for themselves in a text before the rest of it is encoded.

Longest tokens first, each from the left, as the reference does it: not leftmost-longest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from edgeserve.frozen import frozen
from edgeserve.text.stop_tokens import CONTROL, UNKNOWN, USER_DEFINED
from edgeserve.text.vocabulary import Vocabulary

_SPACES = " \t\n\v\f\r"
_KEY_CHARS = 4  # tells `<unused17>` from most text, for vocabularies with thousands of these

_COVER = "\ud800"  # hides what longer tokens took: no text, no token holds a lone surrogate


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
        # Some vocabularies have thousands: no object for each but its text.
        self._texts = {i: vocabulary.tokens[i] for i in sorted(own.union(control))}
        self._left_strip_ids = vocabulary.left_strip_ids
        self._right_strip_ids = vocabulary.right_strip_ids
        self._all = _by_beginning(self._texts)
        self._user_defined = _by_beginning({i: self._texts[i] for i in sorted(own)})
        self.control_texts = tuple(map(self._texts.__getitem__, control))

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
        self, text: str, specials: Mapping[str, Sequence[int]], guard: str | None
    ) -> list[int | str]:
        present = [
            token_id
            for beginning, group in specials.items()
            if beginning in text
            for token_id in group
            if self._texts[token_id] in text
        ]
        if not present:
            return [text] if text else []
        present.sort(key=lambda token_id: -len(self._texts[token_id].encode()))
        matches: list[_Match] = []
        left = text
        for token_id in present:
            left = self._take(token_id, left, guard, matches)
        matches.sort(key=lambda match: match.start)
        parts: list[int | str] = []
        at = 0
        for match in matches:
            if match.start > at:
                parts.append(text[at : match.start])
            parts.append(match.token_id)
            at = match.end
        return [*parts, text[at:]] if at < len(text) else parts

    def _take(self, token_id: int, text: str, guard: str | None, matches: list[_Match]) -> str:
        """Adds the matches of one token; returns the text with them covered."""
        own = self._texts[token_id]
        kept: list[str] = []
        at = search_from = 0
        while (start := text.find(own, search_from)) >= 0:
            end = search_from = start + len(own)
            if guard is not None and text.startswith(guard, end):
                continue  # a token of one character has no inside: its guard stands behind it
            if token_id in self._left_strip_ids:
                start = at + len(text[at:start].rstrip(_SPACES))
            if token_id in self._right_strip_ids:
                while end < len(text) and text[end] in _SPACES:
                    end += 1
            matches.append(_Match(start, end, token_id))
            kept += (text[at:start], _COVER * (end - start))
            at = search_from = end
        return "".join((*kept, text[at:]))


def _by_beginning(texts: Mapping[int, str]) -> Mapping[str, Sequence[int]]:
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for token_id, text in texts.items():
        groups[text[:_KEY_CHARS]].append(token_id)
    return groups
