"""Reasoning before a constrained answer: free, for as many tokens as it may take, and then ended.

Token by token, so that any constraint can stand behind it. Knows neither grammars nor models.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol

from edgeserve.errors import ConstraintLimitError
from edgeserve.frozen import frozen
from edgeserve.text.end_tag import EndTag

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
    """How a model's reasoning begins and ends. `open_id` is the token that begins it; where none
    does, the text `opens` does, unless an answer is held to something: then there is no reasoning
    but what the prompt opened. `budget` None is no bound."""

    open_id: int | None
    end: EndTag
    vocab_size: int
    end_ids: frozenset[int]
    budget: int | None = None
    opens: bytes = b""

    def thinking(self, count: int = 0, tail: bytes = b"") -> _Place:
        """In reasoning of so many tokens, with `tail` of the end tag there; if that is enough, the
        rest of the tag comes next."""
        spent = self.budget is not None and count >= self.budget
        return _Place("thinking", count, tail, self.end.rest(tail) if spent else ())


@frozen
class _Place:
    """Before, in or behind reasoning, of which `count` tokens were generated. `tail` is what stands
    there of the tag to come, `rest` are the tokens that end reasoning and come whatever happens."""

    phase: Literal["undecided", "thinking", "answering"]
    count: int = 0
    tail: bytes = b""
    rest: tuple[int, ...] = ()

    def after(self, token_id: int, gate: ThinkingGate) -> _Place:
        if self.phase == "undecided":
            return self._after_beginning(token_id, gate)
        if self.phase == "answering":
            return self
        if self.rest:
            rest = self.rest[1:]
            return _Place("thinking", self.count, rest=rest) if rest else _Place("answering")
        tail = gate.end.follow(self.tail, token_id)
        return _Place("answering") if tail is None else gate.thinking(self.count + 1, tail)

    def _after_beginning(self, token_id: int, gate: ThinkingGate) -> _Place:
        if gate.open_id is not None:
            return gate.thinking() if token_id == gate.open_id else _Place("answering")
        text = (self.tail + gate.end.spelling(token_id)).lstrip()
        if text.startswith(gate.opens):
            return gate.thinking()
        return _Place("undecided" if gate.opens.startswith(text) else "answering", tail=text)


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
        if opened:
            return cls(gate, inner, gate.thinking())
        if inner is None:
            may_open = gate.open_id is not None or bool(gate.opens)
        else:
            may_open = gate.open_id is not None and gate.budget != 0
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
            may_answer = place.phase == "undecided" and self._inner is not None
            if place.phase == "answering" or (may_answer and not opens):
                rest = self._answer_masks(ahead[at:])
                if may_answer:
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
            before, place = place, place.after(token_id, self._gate)
            if place.phase == "answering" and before.phase != "thinking":
                rest = tokens[at:]
                return at + (len(rest) if self._inner is None else self._inner.num_allowed(rest))
            if token_id in self._gate.end_ids or (before.rest and token_id != before.rest[0]):
                return at
            if self._inner is not None and self._runs_on(before, token_id, place):
                return at
        return len(tokens)

    def forced(self) -> list[int]:
        """Tokens that come next whatever the model says."""
        if self._place.phase == "answering":
            return [] if self._inner is None else self._inner.forced()
        return list(self._place.rest)

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
        if place.rest:
            return self._only(place.rest[0])
        allowed = self._all()
        if self._inner is not None:  # what an answer is held to must come, and nothing before it
            end = self._gate.end
            allowed &= ~self._only(*self._gate.end_ids, *end.running_on(place.tail))
        return allowed

    def _runs_on(self, place: _Place, token_id: int, then: _Place) -> bool:
        """Whether a token ends reasoning and begins an answer."""
        if place.phase != "thinking" or place.rest or then.phase != "answering":
            return False
        return token_id in self._gate.end.running_on(place.tail)

    def _all(self) -> NDArray[np.uint32]:
        return _everything(self._gate.vocab_size).copy()

    def _only(self, *token_ids: int | None) -> NDArray[np.uint32]:
        import numpy as np

        allowed = np.zeros(self._gate.vocab_size, np.bool_)
        allowed[[token_id for token_id in token_ids if token_id is not None]] = True
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
