"""Which drafts a step verifies: every proposer is asked, a policy picks how much of what pays."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items
from itertools import accumulate
from operator import mul
from typing import Protocol

from edgeserve.engine.accounting import DraftCounts
from edgeserve.engine.sequence import Sequence
from edgeserve.engine.speculation.proposer import Proposer
from edgeserve.frozen import frozen

MAX_DRAFT = 24
"""Tokens of one draft."""
_MAX_DRAFT_ROWS = 96
"""Draft rows of a step, over all sequences: a row's logits are a megabyte at 262k tokens."""
_SHARES = 4
"""Even shares of those rows that one draft may take: to foresee more costs time for nothing."""


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


@frozen
class _OpenDraft:
    """A draft that was handed out, and its sequence's counts before it."""

    proposer: str
    num_tokens: int
    num_accepted: int


class Speculator:
    """Owns the proposers. One that fails is asked no more; `failures` says which did, and how."""

    def __init__(self, proposers: Items[Proposer], lengths: DraftLengths, vocab_size: int) -> None:
        self._proposers = tuple(proposers)
        self._lengths = lengths
        self._vocab_size = vocab_size
        self.failures: list[tuple[str, Exception]] = []
        self._open: dict[Sequence, _OpenDraft] = {}
        self._counts = {proposer.name: DraftCounts() for proposer in proposers}

    def drafts(
        self, decoding: Items[Sequence], num_rows: int, room: int
    ) -> dict[Sequence, tuple[int, ...]]:
        """Drafts for some of the sequences, each of which the next step computes one row of: no
        longer than what may still be said, and `room` tokens together at most."""
        for sequence in list(self._open):
            self._settle(sequence)
        room = min(room, _MAX_DRAFT_ROWS)
        found: dict[Sequence, tuple[int, ...]] = {}
        most = min(MAX_DRAFT, _SHARES * _MAX_DRAFT_ROWS // max(1, len(decoding)))
        ranked = [self._offers(sequence, most) for sequence in decoding]
        for rank in range(len(self._proposers)):
            offers = [
                best[rank] for best in ranked if len(best) > rank and best[0].sequence not in found
            ]
            num_drafted = sum(map(len, found.values()))
            lengths = self._lengths.choose(offers, num_rows + num_drafted, room - num_drafted)
            for proposer in self._proposers:
                wanted = {
                    offer.sequence: length
                    for offer, length in zip(offers, lengths, strict=True)
                    if length > 0 and offer.proposer is proposer
                }
                found.update(self._drafted(proposer, wanted))
        return found

    def observe(self, num_rows: int, seconds: float) -> None:
        """A step of `num_rows` decoding rows, all with logits, took `seconds`."""
        self._lengths.observe(num_rows, seconds)

    def forget(self, sequence: Sequence) -> None:
        """The sequence has ended."""
        self._settle(sequence)
        for proposer in self._proposers:
            proposer.forget(sequence)

    def counts(self) -> Mapping[str, DraftCounts]:
        """By proposer, of drafts whose step is over. For any thread."""
        return dict(self._counts)

    def close(self) -> None:
        """Gives back what proposers hold. Twice is fine."""
        for proposer in self._proposers:
            proposer.close()

    def _offers(self, sequence: Sequence, most: int) -> list[Offer]:
        """Of the proposers that have something to say, that which is right for longest first."""
        limit = min(most, sequence.max_tokens - sequence.num_output_tokens - 1)
        if limit <= 0:
            return []
        found: list[Offer] = []
        for proposer in self._proposers:
            try:
                chances = proposer.foresee(sequence, limit)
            except Exception as error:  # it only ever saves time: the answers go on without
                self._give_up(proposer, error)
                continue
            if chances:
                found.append(Offer(sequence, proposer, chances))
        return sorted(found, key=_expected_tokens, reverse=True)

    def _drafted(
        self, proposer: Proposer, wanted: Mapping[Sequence, int]
    ) -> dict[Sequence, tuple[int, ...]]:
        if not wanted:
            return {}
        try:
            drafts = proposer.draft(wanted)
        except Exception as error:  # as above
            self._give_up(proposer, error)
            return {}
        allowed = {
            sequence: self._allowed(sequence, drafts.get(sequence, ())[:n])
            for sequence, n in wanted.items()
        }
        found = {sequence: draft for sequence, draft in allowed.items() if draft}
        for sequence in found:
            self._open[sequence] = _OpenDraft(
                proposer.name, sequence.num_draft_tokens, sequence.num_accepted_tokens
            )
        return found

    def _settle(self, sequence: Sequence) -> None:
        """Counts how a draft fared, once its step is over. A step may have had no room for it."""
        draft = self._open.pop(sequence, None)
        if draft is None or sequence.num_draft_tokens == draft.num_tokens:
            return
        before = self._counts[draft.proposer]
        self._counts[draft.proposer] = DraftCounts(
            before.num_drafts + 1,
            before.num_tokens + sequence.num_draft_tokens - draft.num_tokens,
            before.num_accepted + sequence.num_accepted_tokens - draft.num_accepted,
        )

    def _give_up(self, proposer: Proposer, error: Exception) -> None:
        self.failures.append((proposer.name, error))
        self._proposers = tuple(other for other in self._proposers if other is not proposer)
        proposer.close()

    def _allowed(self, sequence: Sequence, tokens: Items[int]) -> tuple[int, ...]:
        """Up to the first that is no token at all, which a runner would refuse, or that the
        sequence's constraint does not allow: no row behind it is worth computing."""
        bad = (at for at, token in enumerate(tokens) if not 0 <= token < self._vocab_size)
        known = tuple(tokens[: next(bad, len(tokens))])
        matcher = sequence.matcher
        return known if matcher is None else known[: matcher.num_allowed(known)]


def _expected_tokens(offer: Offer) -> float:
    return sum(accumulate(offer.chances, mul))
