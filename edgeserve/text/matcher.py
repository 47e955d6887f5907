"""Where one sequence stands in its constraint: which tokens may come next, and which must."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

from edgeserve.errors import ConstraintError, ConstraintLimitError

_MAX_REASON = 400
_SILENT = 0
_MAX_ITEMS = 20_000  # of a parser's row: four for each member that an object may still have


def first_matcher(
    kind: str, tokenizer: LLTokenizer, grammar: str, end_ids: frozenset[int]
) -> Matcher:
    """At the beginning of a grammar that something satisfies. Raises ConstraintError."""
    limits = LLParserLimits(
        max_items_in_row=_MAX_ITEMS, step_max_items=10 * _MAX_ITEMS, verbose_errors=False
    )
    found = LLMatcher(tokenizer, grammar, log_level=_SILENT, limits=limits)
    if found.is_error():
        raise ConstraintError(kind, reason_of(found.get_error()))
    matcher = Matcher(found, tokenizer.vocab_size, end_ids)
    trial = matcher.fork()
    allowed = trial.masks(())[0]
    if trial.failure is not None:
        raise ConstraintError(kind, f"cannot be followed: {trial.failure.reason}")
    if not allowed.any():
        raise ConstraintError(kind, "nothing satisfies it")
    return matcher


class Matcher:
    """One sequence's own. For one thread at a time; masks may be computed beside a forward pass.

    `failure` says why it could not be followed further; from then on no token is allowed.
    """

    def __init__(self, matcher: LLMatcher, vocab_size: int, end_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._num_words = (vocab_size + 31) // 32
        self._end_ids = end_ids
        self.failure: ConstraintLimitError | None = None

    def fork(self) -> Matcher:
        """Another at the same place."""
        return Matcher(self._matcher.deep_copy(), self._vocab_size, self._end_ids)

    def masks(self, ahead: Sequence[int]) -> list[NDArray[np.uint32]]:
        """Which tokens may come next, and after each of those `ahead`: bitmaps for ChooseToken.

        Behind a token that is not allowed, or ends the answer, nothing is meant by them.
        """
        found = [self._mask()]
        num_ahead = 0
        for token_id in ahead:
            if token_id in self._end_ids or self._matcher.try_consume_tokens([token_id]) != 1:
                break
            num_ahead += 1
            found.append(self._mask())
        if num_ahead > 0 and not self._matcher.rollback(num_ahead):
            self._note_failure()
        return found + found[-1:] * (len(ahead) + 1 - len(found))

    def num_allowed(self, tokens: Sequence[int]) -> int:
        """How many of these may come next, one after another, without ending the answer."""
        ends = (at for at, token_id in enumerate(tokens) if token_id in self._end_ids)
        before_end = tokens[: next(ends, len(tokens))]
        return self._matcher.validate_tokens(list(before_end)) if before_end else 0

    def forced(self) -> list[int]:
        """Tokens that come next whatever the model says: each is all that its mask allows."""
        return self._matcher.compute_ff_tokens()

    def accept(self, token_id: int) -> None:
        """The token came. Raises ConstraintLimitError where it cannot be followed."""
        if not self._matcher.consume_token(token_id):
            self._note_failure()
        if self.failure is not None:
            raise self.failure

    def _mask(self) -> NDArray[np.uint32]:
        data = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            self._note_failure()
        if self.failure is not None:
            return np.zeros(self._num_words, np.uint32)
        return np.frombuffer(data, np.uint32, self._num_words)

    def _note_failure(self) -> None:
        self.failure = self.failure or ConstraintLimitError(reason_of(self._matcher.get_error()))


def reason_of(message: str) -> str:
    """llguidance's words on one line, without what is only for its makers."""
    words = " ".join(message.split("<state>")[0].split("<non-verbose/>")[0].split())
    return words if len(words) <= _MAX_REASON else f"{words[:_MAX_REASON]}…"
