"""How much a model shall think before it answers, in the words that its chat template knows."""

from __future__ import annotations

import re
from collections.abc import Mapping

from edgeserve.frozen import frozen

_SWITCHES = ("enable_thinking", "thinking", "reasoning", "enable_reasoning")
"""Variables that templates read as yes or no."""
_EFFORTS = ("reasoning_effort", "thinking_effort")
_BUDGETS = ("thinking_budget", "reasoning_budget")
_LADDER = ("minimal", "low", "medium", "high", "xhigh", "max")
_OFF_EFFORTS = frozenset({"none", "no_think"})


@frozen
class Thinking:
    """How a model that thinks first shall do so; None leaves it to the model. `budget` is in
    tokens, after which reasoning is ended; 0 is no reasoning."""

    enabled: bool | None = None
    effort: str | None = None
    budget: int | None = None

    @property
    def wanted(self) -> bool | None:
        """Whether there shall be reasoning, whichever field says so."""
        if self.enabled is False or self.budget == 0 or self.effort in _OFF_EFFORTS:
            return False
        return True if self.enabled or self.budget is not None or self.effort else None


def thinking_variables(template: str, thinking: Thinking) -> Mapping[str, object]:
    """What to tell a template: those of these variables that it mentions."""
    found: dict[str, object] = {}
    wanted = thinking.wanted
    if wanted is not None:
        found |= {name: wanted for name in _SWITCHES if _reads(template, name)}
        if _reads(template, "thinking_mode"):
            found["thinking_mode"] = "enabled" if wanted else "disabled"
    for name in _EFFORTS:
        effort = _effort(template, thinking) if _reads(template, name) else None
        if effort is not None:
            found[name] = effort
    if thinking.budget is not None:
        found |= {name: thinking.budget for name in _BUDGETS if _reads(template, name)}
    return found


def _effort(template: str, thinking: Thinking) -> str | None:
    """The asked effort, or the nearest that the template names; some refuse all others."""
    off = next((name for name in sorted(_OFF_EFFORTS) if _names(template, name)), None)
    if thinking.wanted is False:
        return off
    asked = thinking.effort
    known = [name for name in _LADDER if _names(template, name)]
    if asked is None or not known or asked in known or asked not in _LADDER:
        return asked
    place = _LADDER.index(asked)
    return min(known, key=lambda name: abs(_LADDER.index(name) - place))


def _reads(template: str, name: str) -> bool:
    """Whether a template mentions the variable, other than to set it."""
    return re.search(rf"(?<![\w.'\"]){name}(?![\w'\"(])(?!\s*=[^=])", template) is not None


def _names(template: str, word: str) -> bool:
    return re.search(rf"['\"]{word}['\"]", template) is not None
