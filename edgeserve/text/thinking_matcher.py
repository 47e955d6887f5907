"""Reasoning before a constrained answer: free, for as many tokens as it may take, and then ended.

Token by token, so that any constraint can stand behind it. Knows neither grammars nor models.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol

from edgeserve.errors import ConstraintLimitError
from edgeserve.frozen import frozen

if TYPE_CHECKING:  # every server would import numpy for it before it loads anything
    import numpy as np
    from numpy.typing import NDArray

Masks = list["NDArray[np.uint32]"]


class TokenMatcher(Protocol):
    """Where one sequence stands in what it is held to. See matcher.py."""

    failure: ConstraintLimitError | None

    def fork(self) -> TokenMatcher: ...

    def masks(self, ahead: Sequence[int]) -> Masks: ...

    def num_allowed(self, tokens: Sequence[int]) -> int: ...

    def forced(self) -> list[int]: ...

    def accept(self, token_id: int) -> None: ...


@frozen
class ThinkingGate:
    """How a model's reasoning begins and ends, in tokens. `budget` None is no bound."""

    open_id: int | None
    close_id: int
    vocab_size: int
    end_ids: frozenset[int]
    budget: int | None = None


@frozen
class _Place:
    """Before, in or behind reasoning, of which `count` tokens were generated."""

    phase: Literal["undecided", "thinking", "answering"]
    count: int = 0

    def after(self, token_id: int, gate: ThinkingGate) -> _Place:
        if self.phase == "undecided" and token_id == gate.open_id:
            return _Place("thinking")
        if self.phase == "thinking" and token_id != gate.close_id:
            return _Place("thinking", self.count + 1)
        return _Place("answering")

    def is_spent(self, gate: ThinkingGate) -> bool:
        return gate.budget is not None and self.count >= gate.budget


class ThinkingMatcher:
    """A TokenMatcher that leaves reasoning free and holds the answer behind it to another; with no
    other, the answer is free, too."""

    def __init__(self, gate: ThinkingGate, inner: TokenMatcher | None, place: _Place) -> None:
        self._gate = gate
        self._inner = inner
        self._place = place
        self.failure: ConstraintLimitError | None = None

    @classmethod
    def at_beginning(
        cls, gate: ThinkingGate, inner: TokenMatcher | None, *, opened: bool
    ) -> ThinkingMatcher:
        """Of an answer whose prompt has `opened` reasoning, or not."""
        may_open = gate.open_id is not None and gate.budget != 0
        if opened:
            return cls(gate, inner, _Place("thinking"))
        return cls(gate, inner, _Place("undecided" if may_open else "answering"))

    def fork(self) -> ThinkingMatcher:
        """Another at the same place."""
        inner = None if self._inner is None else self._inner.fork()
        return ThinkingMatcher(self._gate, inner, self._place)

    def masks(self, ahead: Sequence[int]) -> Masks:
        """Which tokens may come next, and after each of those `ahead`."""
        found: Masks = []
        place = self._place
        for at in range(len(ahead) + 1):
            opens = at < len(ahead) and ahead[at] == self._gate.open_id
            if place.phase == "answering" or (place.phase == "undecided" and not opens):
                rest = self._answer_masks(ahead[at:])
                if place.phase == "undecided":
                    rest[0] = rest[0] | self._only(self._gate.open_id)
                return found + rest
            found.append(self._thinking_mask(place))
            if at < len(ahead):
                place = place.after(ahead[at], self._gate)
        return found

    def num_allowed(self, tokens: Sequence[int]) -> int:
        """How many of these may come next, one after another, without ending the answer."""
        place = self._place
        for at, token_id in enumerate(tokens):
            if place.phase == "answering" or (
                place.phase == "undecided" and token_id != self._gate.open_id
            ):
                rest = tokens[at:]
                return at + (len(rest) if self._inner is None else self._inner.num_allowed(rest))
            spent = place.phase == "thinking" and place.is_spent(self._gate)
            if token_id in self._gate.end_ids or (spent and token_id != self._gate.close_id):
                return at
            place = place.after(token_id, self._gate)
        return len(tokens)

    def forced(self) -> list[int]:
        """Tokens that come next whatever the model says."""
        if self._place.phase == "answering":
            return [] if self._inner is None else self._inner.forced()
        spent = self._place.phase == "thinking" and self._place.is_spent(self._gate)
        return [self._gate.close_id] if spent else []

    def accept(self, token_id: int) -> None:
        """The token came. Raises ConstraintLimitError where it cannot be followed."""
        before = self._place
        self._place = before.after(token_id, self._gate)
        is_answer = self._place.phase == "answering" and before.phase != "thinking"
        if is_answer and self._inner is not None:
            try:
                self._inner.accept(token_id)
            finally:
                self.failure = self._inner.failure

    def _answer_masks(self, ahead: Sequence[int]) -> Masks:
        if self._inner is None:
            return [self._all()] * (len(ahead) + 1)
        found = self._inner.masks(ahead)
        self.failure = self._inner.failure
        return found

    def _thinking_mask(self, place: _Place) -> NDArray[np.uint32]:
        if place.phase == "undecided":
            return self._answer_masks(())[0] | self._only(self._gate.open_id)
        if place.is_spent(self._gate):
            return self._only(self._gate.close_id)
        allowed = self._all()
        if self._inner is not None:  # what an answer is held to must come
            for token_id in self._gate.end_ids:
                allowed &= ~self._only(token_id)
        return allowed

    def _all(self) -> NDArray[np.uint32]:
        return _everything(self._gate.vocab_size).copy()

    def _only(self, token_id: int | None) -> NDArray[np.uint32]:
        import numpy as np

        allowed = np.zeros(self._gate.vocab_size, np.bool_)
        if token_id is not None:
            allowed[token_id] = True
        return _bitmap(allowed)


@lru_cache(maxsize=4)
def _everything(vocab_size: int) -> NDArray[np.uint32]:
    import numpy as np

    return _bitmap(np.ones(vocab_size, np.bool_))


def _bitmap(allowed: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """One bit a token, as ChooseToken has them."""
    import numpy as np

    padded = np.zeros(-(-len(allowed) // 32) * 32, np.bool_)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view(np.uint32)
