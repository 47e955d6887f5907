"""A constraint on an answer behind reasoning, and a bound on the latter. A value."""

from __future__ import annotations

from edgeserve.frozen import frozen
from edgeserve.text.constraint import CompiledConstraint
from edgeserve.text.thinking_matcher import ThinkingGate, ThinkingMatcher
from edgeserve.types import Constraint


@frozen
class ThinkingConstraint:
    """Reasoning as `gate` has it, which the prompt `opened` or not; `inner` is for the answer."""

    gate: ThinkingGate
    inner: CompiledConstraint | None
    opened: bool

    @property
    def constraint(self) -> Constraint | None:
        """What was asked for."""
        return None if self.inner is None else self.inner.constraint

    def matcher(self) -> ThinkingMatcher:
        """At its beginning, for one sequence."""
        inner = None if self.inner is None else self.inner.matcher()
        return ThinkingMatcher.at_beginning(self.gate, inner, opened=self.opened)
