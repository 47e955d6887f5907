"""What a step asks of the runner: rows of a sequence, a question for each of their logits, and who
gets their hidden states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING

from edgeserve.engine.scheduled_rows import ScheduledRows
from edgeserve.engine.sequence import Sequence
from edgeserve.runner.batch import ChooseToken, RowGroup, ScoreToken

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Masks = Items["NDArray[np.uint32]"]
"""Of a constrained sequence: for its next token, and after each token of its draft."""


def row_group(rows: ScheduledRows) -> RowGroup:
    """The rows, those of a draft last."""
    sequence = rows.sequence
    first = sequence.num_computed_tokens
    tokens = [*sequence.token_ids[first : first + rows.num_tokens], *rows.draft]
    tables = sequence.block_tables.groups
    return RowGroup(tokens, first, tables, rows.num_logits_rows, rows.num_hidden_rows)


def questions(rows: ScheduledRows, masks: Masks = ()) -> list[ChooseToken | ScoreToken]:
    """One for each row with logits. A draft's rows are asked as if it were accepted so far."""
    sequence, num_draft = rows.sequence, len(rows.draft)
    end = sequence.num_computed_tokens + rows.num_tokens
    first, last = end + num_draft - rows.num_logits_rows, len(sequence.token_ids) - 1
    found: list[ChooseToken | ScoreToken]
    found = [_score(sequence, position + 1) for position in range(first, min(end, last))]
    if first <= last < end:
        found += [
            choose(sequence, rows.draft[:count], masks[count] if masks else None)
            for count in range(num_draft + 1)
        ]
    return found


def pooled(scheduled: Iterable[ScheduledRows], states: NDArray[np.floating]) -> Iterator[Sequence]:
    """Hands a step's hidden states to those who asked for them; who has all of them now."""
    end = 0
    for rows in scheduled:
        first, end = end, end + rows.num_hidden_rows
        sequence = rows.sequence
        if sequence.pooler is not None and end > first and sequence.finish_reason is None:
            sequence.pooler.take(states[first:end])
            if sequence.num_uncomputed_tokens == 0:
                yield sequence


def _score(sequence: Sequence, position: int) -> ScoreToken:
    return ScoreToken(sequence.token_ids[position], sequence.params.prompt_logprobs or 0)


def choose(
    sequence: Sequence, ahead: tuple[int, ...], mask: NDArray[np.uint32] | None = None
) -> ChooseToken:
    """The token after those that are there and those `ahead`, of those in `mask`."""
    return ChooseToken(
        sampling=sequence.sampling,
        seed=sequence.seed,
        position=len(sequence.token_ids) + len(ahead),
        history=sequence.history(ahead),
        num_prompt_tokens=sequence.num_prompt_tokens,
        banned=sequence.banned_ids(len(ahead)),
        num_logprobs=sequence.params.logprobs,
        mask=mask,
        mu=sequence.mu,
        chained=bool(ahead) and sequence.sampling.mirostat,
    )
