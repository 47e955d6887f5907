"""What of each sequence a step computes, and which of those rows are asked for something."""

from __future__ import annotations

from edgeserve.engine.sequence import Sequence
from edgeserve.frozen import frozen

_MAX_SCORED_ROWS = 32
"""Prompt rows of one sequence that get logits in a step: a row is a megabyte at 262k tokens."""


@frozen
class ScheduledRows:
    """`num_tokens` of a sequence from its first uncomputed one, and a `draft` of what may follow;
    the last rows need logits, all of the draft's among them, or give hidden states."""

    sequence: Sequence
    num_tokens: int
    num_logits_rows: int
    draft: tuple[int, ...] = ()
    num_hidden_rows: int = 0

    @property
    def num_rows(self) -> int:
        return self.num_tokens + len(self.draft)

    @property
    def is_last(self) -> bool:
        """Whether nothing of the sequence is left to compute then."""
        return self.num_tokens == self.sequence.num_uncomputed_tokens

    @property
    def chooses(self) -> bool:
        """Whether a new token comes of it."""
        return self.num_logits_rows > 0 and self.is_last


@frozen
class SchedulerOutput:
    """The first `num_decodes` rows are of sequences that go on with their newest token. `unable` is
    one that has the pools to itself and still finds no room in memory."""

    rows: tuple[ScheduledRows, ...]
    num_decodes: int = 0
    num_preempted: int = 0
    unable: Sequence | None = None

    @property
    def num_rows(self) -> int:
        return sum(rows.num_rows for rows in self.rows)

    @property
    def chunk(self) -> ScheduledRows | None:
        """The rows of a prompt that goes on after them, if any: without logits."""
        found = (rows for rows in self.rows if rows.num_logits_rows == 0 and not rows.is_last)
        return next(found, None)

    @property
    def wants_hidden(self) -> bool:
        return any(rows.num_hidden_rows for rows in self.rows)


def scheduled_rows(sequence: Sequence, num_tokens: int) -> ScheduledRows:
    """Logits for the last token if it ends the chunk; for all rows while the prompt is scored. Of
    what is embedded none, but hidden states."""
    if sequence.pooler is not None:
        num_hidden = sequence.pooler.num_wanted(sequence.num_computed_tokens, num_tokens)
        return ScheduledRows(sequence, num_tokens, 0, num_hidden_rows=num_hidden)
    if sequence.wants_prompt_scores:
        num_tokens = min(num_tokens, _MAX_SCORED_ROWS)
        return ScheduledRows(sequence, num_tokens, num_tokens)
    reaches_end = num_tokens == sequence.num_uncomputed_tokens
    return ScheduledRows(sequence, num_tokens, 1 if reaches_end else 0)
