"""How often guesses of a kind were right: for all sequences, and for each one by itself."""

from __future__ import annotations

from collections.abc import Sequence

_MEMORY = 24.0
"""Guesses after which the oldest count for little: texts change their ways."""
_SHARED_MEMORY = 400.0
_TRUST = 7.0
"""As many guesses of a sequence's own weigh as much as what all sequences say."""


class _Rates:
    """Right guesses and all guesses of each kind, fading."""

    def __init__(self, num_kinds: int, memory: float) -> None:
        self.right = [0.0] * num_kinds
        self.total = [0.0] * num_kinds
        self._keep = 1.0 - 1.0 / memory

    def note(self, kind: int, right: bool) -> None:
        self.total[kind] = self.total[kind] * self._keep + 1.0
        self.right[kind] = self.right[kind] * self._keep + right


class SharedAcceptance:
    """What all sequences say, from the share of right guesses of each kind that is expected."""

    def __init__(self, expected: Sequence[float]) -> None:
        self._rates = _Rates(len(expected), _SHARED_MEMORY)
        for kind, share in enumerate(expected):
            self._rates.total[kind] = _TRUST
            self._rates.right[kind] = _TRUST * share

    def note(self, kind: int, right: bool) -> None:
        self._rates.note(kind, right)

    def chance(self, kind: int) -> float:
        return self._rates.right[kind] / self._rates.total[kind]

    def of_sequence(self) -> Acceptance:
        """What one more sequence will say."""
        return Acceptance(self, len(self._rates.total))


class Acceptance:
    """One sequence's guesses: few of its own lean on what all say."""

    def __init__(self, shared: SharedAcceptance, num_kinds: int) -> None:
        self._shared = shared
        self._rates = _Rates(num_kinds, _MEMORY)

    def note(self, kind: int, right: bool) -> None:
        """A guess of that kind was right, or was not."""
        self._rates.note(kind, right)
        self._shared.note(kind, right)

    def chance(self, kind: int) -> float:
        """How likely the next guess of that kind is right."""
        rates, shared = self._rates, self._shared.chance(kind)
        return (rates.right[kind] + _TRUST * shared) / (rates.total[kind] + _TRUST)
