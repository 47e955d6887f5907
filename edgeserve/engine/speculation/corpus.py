"""What was read and said lately, over all requests: where one may find what another will say."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from edgeserve.engine.speculation.ngram_table import Run, runs

_SIZE = 7
"""Tokens that must match: other texts are less alike than a text is to itself."""


@dataclass(slots=True, eq=False)
class _Text:
    tokens: list[int]
    num_read: int = 0


class Corpus:
    """Whole texts, `max_tokens` together at most: the oldest give way. Read piece by piece, as a
    step has no time for a long one."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._texts: deque[_Text] = deque()
        self._unread: deque[_Text] = deque()
        self._places: dict[Run, tuple[_Text, int]] = {}

    @property
    def num_tokens(self) -> int:
        return self._num_tokens

    def add(self, tokens: Sequence[int]) -> None:
        """Takes a text in; of one that is too long, its end. It replaces those that it begins
        with: earlier turns of the same chat."""
        text = _Text(list(tokens[max(0, len(tokens) - self._max_tokens) :]))
        for older in [t for t in self._texts if text.tokens[: len(t.tokens)] == t.tokens]:
            self._drop(older)
        while self._texts and self._num_tokens + len(text.tokens) > self._max_tokens:
            self._drop(self._texts[0])
        self._texts.append(text)
        self._unread.append(text)
        self._num_tokens += len(text.tokens)

    def read(self, max_tokens: int) -> None:
        """Makes so many more tokens findable."""
        while self._unread and max_tokens > 0:
            text = self._unread[0]
            end = min(len(text.tokens), text.num_read + max_tokens)
            for run, place in runs(text.tokens, _SIZE, text.num_read, end):
                self._places[run] = text, place
            max_tokens -= end - text.num_read
            text.num_read = end
            if end == len(text.tokens):
                self._unread.popleft()

    def find(self, tokens: Sequence[int], end: int) -> tuple[list[int], int] | None:
        """A text, and the place in it that follows what precedes `end`."""
        found = self._places.get(tuple(tokens[max(0, end - _SIZE) : end]))
        return None if found is None else (found[0].tokens, found[1])

    def _drop(self, text: _Text) -> None:
        self._texts.remove(text)
        if text in self._unread:
            self._unread.remove(text)
        self._num_tokens -= len(text.tokens)
        for run, _ in runs(text.tokens, _SIZE, 0, text.num_read):
            if self._places.get(run, (None, 0))[0] is text:
                del self._places[run]
