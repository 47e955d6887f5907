"""Answers that are known already, spoken again: what drafts would have cost and saved.

For benches and tests: no model is needed, only what a step of so many rows takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

from edgeserve.engine.sequence import Sequence
from edgeserve.engine.speculation.proposer import Proposer, num_alike
from edgeserve.engine.speculation.speculator import MAX_DRAFT, DraftLengths, Offer

StepSeconds = Callable[[int], float]
"""What a decoding step of so many rows takes."""


@dataclass(slots=True)
class Replay:
    """What an answer took. `seconds` is of all steps but the prompt's."""

    seconds: float = 0.0
    num_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


def replay(
    sequence: Sequence,
    answer: Items[int],
    proposer: Proposer,
    lengths: DraftLengths,
    step_seconds: StepSeconds,
) -> Replay:
    """Lets a sequence that holds its prompt say `answer`. Its first token comes from the prompt."""
    found = Replay()
    first = len(sequence.token_ids)
    sequence.token_ids.append(answer[0])
    while (at := len(sequence.token_ids) - first) < len(answer):
        limit = min(MAX_DRAFT, len(answer) - at - 1)
        chances = proposer.foresee(sequence, limit) if limit > 0 else []
        offers = [Offer(sequence, proposer, chances)] if chances else []
        (length,) = lengths.choose(offers, 1, MAX_DRAFT) or [0]
        draft = proposer.draft({sequence: length})[sequence][:length] if length > 0 else []
        accepted = num_alike(draft, answer[at:])
        seconds = step_seconds(1 + len(draft))
        lengths.observe(1 + len(draft), seconds)
        found.seconds += seconds
        found.num_steps += 1
        found.num_draft_tokens += len(draft)
        found.num_accepted_tokens += accepted
        sequence.token_ids += answer[at : at + accepted + 1]
    proposer.forget(sequence)
    return found


def right_guesses(sequence: Sequence, answer: Items[int], proposer: Proposer) -> dict[int, int]:
    """How many guesses are right where the answer has so many tokens, for 1, 2, … of them."""
    found: dict[int, int] = {}
    first = len(sequence.token_ids)
    for at in range(1, len(answer)):
        sequence.token_ids[first:] = answer[:at]
        count = len(proposer.foresee(sequence, min(MAX_DRAFT, len(answer) - at)))
        guesses = proposer.draft({sequence: count})[sequence][:count] if count else []
        found[at] = num_alike(guesses, answer[at:])
    return found


def least_seconds(right: Mapping[int, int], num_tokens: int, step_seconds: StepSeconds) -> float:
    """What an answer would take if it were known beforehand which guesses are right."""
    least = [0.0] * (num_tokens + MAX_DRAFT + 2)
    for at in range(num_tokens - 1, 0, -1):
        most = min(right.get(at, 0), num_tokens - at - 1)
        least[at] = min(step_seconds(1 + n) + least[at + n + 1] for n in range(most + 1))
    return least[1]
