"""What bounds an engine's requests and steps."""

from __future__ import annotations

from edgeserve.engine.headroom import NUM_ANSWERS
from edgeserve.frozen import frozen


@frozen
class EngineLimits:
    """`max_model_len` bounds prompt plus output; the others bound a step.

    `max_step_s` seconds is what a step with a prompt in it should take at most; how many rows that
    is is learned, from `prior_s_per_row` on. `headroom_answers` is how many answers' room whoever
    starts leaves free: without it the pool is filled, and more is preempted.
    """

    max_model_len: int
    max_num_batched_tokens: int = 512
    max_num_seqs: int = 64
    max_step_s: float = 0.25
    target_itl_s: float | None = None
    prior_s_per_row: float = 0.0
    prior_s_per_key: float = 0.0
    headroom_answers: float = NUM_ANSWERS
