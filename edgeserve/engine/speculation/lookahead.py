"""Guesses by lookahead: what the model itself said after a few tokens while it guessed wrongly.

Fu et al., "Break the sequential dependency of LLM inference using lookahead decoding" (arXiv
2402.02057). Jacobi iteration: each guess at what is to be said gives way to what the model says
after the guesses before it. Such a token is often right and only in the wrong place, so that a pool
keeps it with the tokens before. A draft is a walk through the pool, and behind it the window of
guesses. Its rows are those of any draft: what is right is said, and answers stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgeserve.engine.sequence import Sequence
from edgeserve.engine.speculation.acceptance import Acceptance, SharedAcceptance

_WALK = 8
_WINDOW = 8
"""The most tokens of a draft from the pool, and of the window behind them."""
_PAIR, _SINGLE, _GUESS = range(3)
"""A guess follows two tokens that it followed before, one, or is what was said in its place."""
_EXPECTED = (0.5, 0.25, 0.1)
_EXPECTED_YIELD = 0.1
"""Tokens that a row brings, now or through the pool, before any was computed."""
_YIELD_MEMORY = 64.0


@dataclass(slots=True)
class _Reader:
    """One sequence: `after` is the pool, of what was last said after one or two tokens; `guesses`
    the window, which begins at position `first`; `draft` the last one, with kinds; of rows that
    were `spent` so many tokens were `brought`."""

    acceptance: Acceptance
    num_read: int = 0
    after: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    guesses: list[int] = field(default_factory=list[int])
    first: int = 0
    draft: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    brought: float = _EXPECTED_YIELD * _YIELD_MEMORY / 2
    spent: float = _YIELD_MEMORY / 2


class Lookahead:
    """A Proposer. It reads what rows answered that were computed after a wrong guess."""

    name = "lookahead"
    seconds_per_token = 0.0

    def __init__(self) -> None:
        self._shared = SharedAcceptance(_EXPECTED)
        self._readers: dict[Sequence, _Reader] = {}

    def foresee(self, sequence: Sequence, limit: int, /) -> list[float]:
        reader = self._readers.get(sequence)
        if reader is None:
            reader = self._readers[sequence] = _Reader(self._shared.of_sequence())
            reader.num_read = sequence.num_prompt_tokens
        _read_answers(reader, sequence)
        _read_text(reader, sequence)
        reader.draft = _draft(reader, sequence, limit)
        # A row that will hardly be right still brings what its answer teaches.
        least, reached, before = reader.brought / reader.spent, 1.0, 1.0
        chances: list[float] = []
        for _, kind in reader.draft:
            reached *= reader.acceptance.chance(kind)
            now = max(reached, least)
            chances.append(now / before)
            before = now
        return chances

    def draft(self, wanted: Mapping[Sequence, int]) -> Mapping[Sequence, list[int]]:
        return {
            sequence: [token for token, _ in self._readers[sequence].draft[:count]]
            for sequence, count in wanted.items()
        }

    def forget(self, sequence: Sequence) -> None:
        self._readers.pop(sequence, None)

    def close(self) -> None:
        self._readers.clear()


def _read_answers(reader: _Reader, sequence: Sequence) -> None:
    """What the rows of the last draft said, whoever made it: into pool and window."""
    verified, sequence.verified = sequence.verified, None
    if verified is None:
        return
    first, draft, answers = verified.first, verified.draft, verified.answers
    if list(draft) == [token for token, _ in reader.draft[: len(draft)]]:
        _judge(reader, len(draft), len(sequence.token_ids) - first - 1)
    timeline = [*sequence.token_ids[max(0, first - 2) : first], *draft]
    start = len(timeline) - len(draft)
    for at, answer in enumerate(answers):
        _remember(reader, timeline[: start + at], answer)
    reader.guesses, reader.first = list(answers), first


def _judge(reader: _Reader, num_drafted: int, accepted: int) -> None:
    """Right guesses, the first that was not, and what rows brought."""
    for at, (_, kind) in enumerate(reader.draft[:num_drafted]):
        if at <= accepted:
            reader.acceptance.note(kind, at < accepted)
    keep = (1.0 - 1.0 / _YIELD_MEMORY) ** num_drafted
    reader.brought = reader.brought * keep + accepted
    reader.spent = reader.spent * keep + num_drafted


def _read_text(reader: _Reader, sequence: Sequence) -> None:
    tokens = sequence.token_ids
    for at in range(reader.num_read, len(tokens)):
        _remember(reader, tokens[max(0, at - 2) : at], tokens[at])
    reader.num_read = len(tokens)


def _remember(reader: _Reader, before: list[int], token: int) -> None:
    for size in (1, 2):
        if len(before) >= size:
            reader.after[tuple(before[-size:])] = token


def _draft(reader: _Reader, sequence: Sequence, limit: int) -> list[tuple[int, int]]:
    """Guesses with their kinds: a walk as far as the pool leads, then the window."""
    tokens = sequence.token_ids
    found: list[tuple[int, int]] = []
    last, token = tokens[-2] if len(tokens) > 1 else -1, tokens[-1]
    while len(found) < min(limit, _WALK):
        kind, guess = _PAIR, reader.after.get((last, token))
        if guess is None:
            kind, guess = _SINGLE, reader.after.get((token,))
        if guess is None:
            break
        found.append((guess, kind))
        last, token = token, guess
    end = min(limit, len(found) + _WINDOW)
    for position in range(len(tokens) + len(found), len(tokens) + end):
        at = position - reader.first
        # Where nothing was said yet stands what the text has somewhere: any token does.
        known = 0 <= at < len(reader.guesses)
        found.append((reader.guesses[at] if known else tokens[at * 7 % len(tokens)], _GUESS))
    return found
