"""Which drafts a step verifies: every proposer is asked, a policy picks how much of what pays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence as Items
from itertools import accumulate
from operator import mul
from typing import Protocol

from edgeserve.engine.sequence import Sequence
from edgeserve.engine.speculation.proposer import Proposer
from edgeserve.frozen import frozen

MAX_DRAFT = 24
"""Tokens of one draft."""
_MAX_DRAFT_ROWS = 96
"""Draft rows of a step, over all sequences: a row's logits are a megabyte at 262k tokens."""


class DraftLengths(Protocol):
    """How long the drafts of a step are."""

    def choose(self, offers: Items[Offer], num_rows: int, room: int, /) -> list[int]:
        """Of each offer so many tokens, `room` of them together at most, beside `num_rows` rows
        that the step has without."""
        ...

    def observe(self, num_rows: int, seconds: float, /) -> None:
        """A step of `num_rows` decoding rows, all with logits, took `seconds`."""
        ...


@frozen
class Offer:
    """What one proposer foresees for one sequence: see Proposer.foresee."""

    sequence: Sequence
    proposer: Proposer
    chances: list[float]


@frozen
class FixedLength:
    """Drafts of one length, whatever they cost."""

    length: int

    def choose(self, offers: Items[Offer], _num_rows: int, room: int, /) -> list[int]:
        lengths: list[int] = []
        for offer in offers:
            lengths.append(min(self.length, len(offer.chances), room))
            room -= lengths[-1]
        return lengths

    def observe(self, num_rows: int, seconds: float) -> None:
        pass


class Speculator:
    """Owns the proposers. Without any nothing is ever drafted."""

    def __init__(self, proposers: Items[Proposer], lengths: DraftLengths, vocab_size: int) -> None:
        self._proposers = tuple(proposers)
        self._lengths = lengths
        self._vocab_size = vocab_size

    def drafts(
        self, decoding: Items[Sequence], num_rows: int, room: int
    ) -> dict[Sequence, tuple[int, ...]]:
        """Drafts for some of the sequences, each of which the next step computes one row of: no
        longer than what may still be said, and `room` tokens together at most."""
        if not self._proposers or not decoding:
            return {}
        offers = [offer for sequence in decoding if (offer := self._best_offer(sequence))]
        lengths = self._lengths.choose(offers, num_rows, min(room, _MAX_DRAFT_ROWS))
        wanted: dict[Proposer, dict[Sequence, int]] = defaultdict(dict)
        for offer, length in zip(offers, lengths, strict=True):
            if length > 0:
                wanted[offer.proposer][offer.sequence] = length
        drafts = {
            sequence: self._allowed(tokens)[: sequences[sequence]]
            for proposer, sequences in wanted.items()
            for sequence, tokens in proposer.draft(sequences).items()
        }
        return {sequence: draft for sequence, draft in drafts.items() if draft}

    def observe(self, num_rows: int, seconds: float) -> None:
        """A step of `num_rows` decoding rows, all with logits, took `seconds`."""
        self._lengths.observe(num_rows, seconds)

    def forget(self, sequence: Sequence) -> None:
        """The sequence has ended."""
        for proposer in self._proposers:
            proposer.forget(sequence)

    def _best_offer(self, sequence: Sequence) -> Offer | None:
        """Of the proposer that is right for longest; None where there is nothing to say."""
        limit = min(MAX_DRAFT, sequence.max_tokens - sequence.num_output_tokens - 1)
        if limit <= 0:
            return None
        offers = [Offer(sequence, p, p.foresee(sequence, limit)) for p in self._proposers]
        return max((o for o in offers if o.chances), key=_expected_tokens, default=None)

    def _allowed(self, tokens: Items[int]) -> tuple[int, ...]:
        """Up to the first that is no token at all, which a runner would refuse."""
        bad = (at for at, token in enumerate(tokens) if not 0 <= token < self._vocab_size)
        return tuple(tokens[: next(bad, len(tokens))])


def _expected_tokens(offer: Offer) -> float:
    return sum(accumulate(offer.chances, mul))
