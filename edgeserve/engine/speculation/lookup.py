"""Guesses by lookup: a text goes on as it, or another, went on after the same tokens before.

Saxena's prompt lookup and suffix decoding (arXiv 2411.04975), with what makes a guess likely: the
length of the match, whether an edit was just passed over, and how the same guess fared before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from edgeserve.engine.sequence import Sequence
from edgeserve.engine.speculation.acceptance import Acceptance, SharedAcceptance
from edgeserve.engine.speculation.corpus import Corpus
from edgeserve.engine.speculation.ngram_table import NgramTable
from edgeserve.engine.speculation.verdicts import Verdicts

_LENGTHS = (1, 2, 3, 4, 6, 9, 16, 32)
"""Lengths of a match from which guesses are of another kind."""
_OWN, _OTHER, _RESUMED = range(3)
_EXPECTED = (
    (0.1, 0.2, 0.3, 0.4, 0.55, 0.7, 0.85, 0.95),  # by length of match, in the text itself
    (0.1, 0.2, 0.3, 0.35, 0.5, 0.7, 0.85, 0.95),  # in another text
    (0.35, 0.55, 0.65, 0.75, 0.85, 0.9, 0.95, 0.95),  # in either, after an edit
)
_MOST_MATCHED = _LENGTHS[-1]
_CERTAIN = 6
"""Tokens of a match that no other match is looked for."""
_EDIT_FROM = 4
"""Tokens of a match whose end may be an edit, after which it goes on."""
_EDIT_TOKENS = 8
"""The most tokens of an edit: old ones that are passed over, and new ones."""
_CORPUS_PIECE = 128
_PROMPT_PIECE = 2048
"""Tokens that are read in a step: two milliseconds' worth. A long prompt takes several."""


def _kind(source: int, length: int) -> int:
    return source * len(_LENGTHS) + bisect_right(_LENGTHS, length) - 1


@dataclass(slots=True)
class _Match:
    """The text being followed, the place in it, how many tokens before that agree, and where."""

    text: list[int]
    place: int
    length: int
    source: int

    @property
    def guess(self) -> int | None:
        return self.text[self.place] if self.place < len(self.text) else None


@dataclass(slots=True)
class _Reader:
    """What is known of one sequence. `edit`: a text, the place in it where an edit began, and how
    many more tokens the edit may have."""

    tokens: list[int]
    acceptance: Acceptance
    verdicts: Verdicts = field(default_factory=Verdicts)
    table: NgramTable = field(default_factory=NgramTable)
    num_read: int = 0
    match: _Match | None = None
    edit: tuple[list[int], int, int] | None = None

    def chance(self, match: _Match) -> float:
        """That what the match says next is right; of one that is at its end, that of its kind."""
        chance = self.acceptance.chance(_kind(match.source, match.length))
        guess = match.guess
        if guess is None:
            return chance
        return self.verdicts.weigh(chance, match.text[match.place - 1], guess)


class Lookup:
    """A Proposer. What ended sequences said is kept in a corpus of `corpus_tokens`."""

    name = "ngram"
    seconds_per_token = 0.0

    def __init__(self, corpus_tokens: int = 32768) -> None:
        self._corpus = Corpus(corpus_tokens)
        self._shared = SharedAcceptance([share for shares in _EXPECTED for share in shares])
        self._readers: dict[Sequence, _Reader] = {}

    def foresee(self, sequence: Sequence, limit: int, /) -> list[float]:
        reader = self._readers.get(sequence)
        if reader is None:
            reader = _Reader(sequence.token_ids, self._shared.of_sequence())
            self._readers[sequence] = reader
        # The prompt was not said: how its parts follow each other tells little.
        unsaid = sequence.num_prompt_tokens - 1
        if reader.num_read < unsaid:
            reader.num_read = min(unsaid, reader.num_read + _PROMPT_PIECE)
            reader.table.read(reader.tokens, reader.num_read)
            if reader.num_read < unsaid:
                return []
        self._corpus.read(_CORPUS_PIECE)
        while reader.num_read < len(reader.tokens):
            self._read_token(reader)
        return _chances(reader, limit)

    def draft(self, wanted: Mapping[Sequence, int]) -> Mapping[Sequence, list[int]]:
        return {sequence: self._guesses(sequence, count) for sequence, count in wanted.items()}

    def forget(self, sequence: Sequence) -> None:
        if self._readers.pop(sequence, None) is not None:
            self._corpus.add(sequence.token_ids)

    def close(self) -> None:
        self._readers.clear()

    def _read_token(self, reader: _Reader) -> None:
        """Notes whether the next token was guessed, and follows or finds a match."""
        match, token = reader.match, reader.tokens[reader.num_read]
        reader.num_read += 1
        reader.table.read(reader.tokens, reader.num_read)
        if match is not None:
            guess = match.guess
            if guess is not None:
                reader.acceptance.note(_kind(match.source, match.length), guess == token)
                reader.verdicts.note(match.text[match.place - 1], guess, guess == token)
            if guess == token:
                match.place += 1
                match.length += 1
            else:
                can_resume = match.length >= _EDIT_FROM and guess is not None
                reader.edit = (match.text, match.place, _EDIT_TOKENS) if can_resume else reader.edit
                reader.match = match = None
        if match is None or match.length < _CERTAIN:
            self._find(reader, token)

    def _find(self, reader: _Reader, token: int) -> None:
        """The likeliest of what is followed already, and of what is found now."""
        candidates = [reader.match, self._resumed(reader, token), *self._found(reader)]
        reader.match = max(
            (match for match in candidates if match is not None),
            key=reader.chance,
            default=None,
        )

    def _found(self, reader: _Reader) -> list[_Match]:
        tokens, end = reader.tokens, reader.num_read
        found: list[_Match] = []
        place = reader.table.find(tokens, end)
        if place is not None:
            found.append(_Match(tokens, place, _matched(tokens, place, tokens, end), _OWN))
        other = self._corpus.find(tokens, end)
        if other is not None:
            text, place = other
            found.append(_Match(text, place, _matched(text, place, tokens, end), _OTHER))
        return found

    def _resumed(self, reader: _Reader, token: int) -> _Match | None:
        """After an edit: where the text that it broke off from has the same token again."""
        if reader.edit is None or reader.match is not None:
            return None
        text, place, left = reader.edit
        reader.edit = (text, place, left - 1) if left > 1 else None
        end = place + _EDIT_TOKENS
        if text is reader.tokens:
            end = min(end, reader.num_read - 1)  # not the very token that was just read
        try:
            at = text.index(token, place, end)
        except ValueError:
            return None
        return _Match(text, at + 1, 1, _RESUMED)

    def _guesses(self, sequence: Sequence, count: int) -> list[int]:
        match = self._readers[sequence].match
        if match is None:
            return []
        return _ahead(match, sequence.token_ids, count)


def _ahead(match: _Match, tokens: list[int], count: int) -> list[int]:
    """So many tokens that the match says next, or fewer at a text's end."""
    found = match.text[match.place : match.place + count]
    # Where a text follows itself it has no end: what was just guessed is there to be followed.
    while match.text is tokens and len(found) < count:
        found.append(found[match.place + len(found) - len(tokens)])
    return found


def _chances(reader: _Reader, limit: int) -> list[float]:
    match = reader.match
    if match is None:
        return []
    chances: list[float] = []
    before, longer, chance = match.text[match.place - 1], match.length, 0.0
    for length, guess in enumerate(_ahead(match, reader.tokens, limit), start=match.length):
        if length >= longer:
            chance = reader.acceptance.chance(_kind(match.source, length))
            longer = next((more for more in _LENGTHS if more > length), limit + length)
        chances.append(reader.verdicts.weigh(chance, before, guess))
        before = guess
    return chances


def _matched(text: list[int], place: int, tokens: list[int], end: int) -> int:
    """How many tokens before `place` and before `end` are the same, as far as that matters."""
    most = min(place, end, _MOST_MATCHED)
    length = 0
    while length < most and text[place - 1 - length] == tokens[end - 1 - length]:
        length += 1
    return length
