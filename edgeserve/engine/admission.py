"""From a request to its sequences: whether it can be computed at all, and how long it may get."""

from __future__ import annotations

from edgeserve.cache.block_tables import BlockTables
from edgeserve.engine.limits import EngineLimits
from edgeserve.engine.live_request import Request, check_constraint, check_token_ids
from edgeserve.engine.pooling import Pooler
from edgeserve.engine.sequence import Sequence
from edgeserve.errors import ContextLengthError, InvalidRequestError
from edgeserve.runner.noise import choice_seed
from edgeserve.text.tokenizer import Tokenizer
from edgeserve.types import SamplingDefaults


class Admission:
    """Holds requests to the model's vocabulary and context. For any thread."""

    def __init__(
        self, limits: EngineLimits, tokenizer: Tokenizer, defaults: SamplingDefaults
    ) -> None:
        self._limits = limits
        self._tokenizer = tokenizer
        self._defaults = defaults

    def check(self, request: Request) -> None:
        """Raises InvalidRequestError or ContextLengthError."""
        ids, limit = request.prompt_token_ids, self._limits.max_model_len
        if not ids:
            raise InvalidRequestError("prompt", request.prompt or [], "at least one token")
        # What is embedded may take the whole context; what is answered leaves room for a token.
        if len(ids) > limit or (len(ids) == limit and request.pooling is None):
            raise ContextLengthError(len(ids), limit)
        check_token_ids(request, self._tokenizer.vocab_size)
        check_constraint(request)

    def num_tokens(self, request: Request) -> int:
        """Of the prompt and of one choice, at most."""
        return len(request.prompt_token_ids) + self._max_tokens(request)

    def sequence(self, request: Request, index: int, tables: BlockTables) -> Sequence:
        """Choice number `index`."""
        params, pooling = request.params, request.pooling
        ends = frozenset[int]() if params.ignore_eos else self._tokenizer.stop_ids
        num_prompt = len(request.prompt_token_ids)
        return Sequence(
            request_id=request.request_id,
            index=index,
            token_ids=list(request.prompt_token_ids),
            params=params,
            sampling=params.resolved(self._defaults, request.breakers),
            seed=choice_seed(request.seed, index),
            max_tokens=self._max_tokens(request),
            stop_ids=ends | frozenset(params.stop_token_ids),
            block_tables=tables,
            priority=request.priority,
            matcher=None if request.constraint is None else request.constraint.matcher(),
            pooler=None if pooling is None else Pooler(pooling, num_prompt),
        )

    def _max_tokens(self, request: Request) -> int:
        """Of each choice: as many as asked for, or as the context has room for."""
        if request.pooling is not None:
            return 0
        room = self._limits.max_model_len - len(request.prompt_token_ids)
        asked = request.params.max_tokens
        return room if asked is None else min(asked, room)
