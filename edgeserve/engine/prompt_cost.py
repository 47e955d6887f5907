"""What reading a prompt would take: asked without computing or taking anything."""

from __future__ import annotations

from edgeserve.frozen import frozen


@frozen
class PromptCost:
    """Of `num_tokens`, the first `num_cached` are found in memory and `num_stored` more on disk.
    Reading the others should take so many `seconds`; None until a step has told."""

    num_tokens: int
    num_cached: int
    num_stored: int
    seconds: float | None
