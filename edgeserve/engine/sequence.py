"""A sequence: one choice of a request, from its prompt to its last token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeserve.cache.block_tables import BlockTables
from edgeserve.engine.pooling import Pooler
from edgeserve.errors import ConstraintLimitError
from edgeserve.frozen import frozen
from edgeserve.runner.batch import TokenResult
from edgeserve.types import FinishReason, ResolvedSampling, SamplingParams

if TYPE_CHECKING:  # it comes with llguidance, which takes long to load
    from edgeserve.text.thinking_matcher import TokenMatcher


@frozen
class VerifiedDraft:
    """A draft that began at position `first`, and what was answered there and after each of its
    tokens: also after those that were wrong."""

    first: int
    draft: tuple[int, ...]
    answers: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Sequence:
    """Owned by the scheduler while it lives. `token_ids` is prompt and output.

    The keys and values of the first `num_computed_tokens` are in the cache. Preemption sets that
    to 0 and loses nothing else. `num_scored_tokens` prompt tokens have their logprob already.
    `num_cached_tokens` of the prompt were found in the cache when it first ran. Of the
    `num_draft_tokens` that were proposed for it `num_accepted_tokens` were right. `mu` is
    mirostat's, after the last token. `forks` is the request's first choice, whose prompt this one
    shares. `prefix_hashes` are those of its full blocks; the one that is `awaited` is of a block
    which another sequence is about to compute. `matcher` says what its constraint allows next.
    Lower `rank`s go first: the scheduler makes them of arrival and `priority`. `verified` is its
    newest draft. One with a `pooler` has no output but what that makes of its rows.
    """

    request_id: str
    index: int
    token_ids: list[int]
    params: SamplingParams
    sampling: ResolvedSampling
    seed: int
    max_tokens: int
    stop_ids: frozenset[int]
    block_tables: BlockTables
    priority: int = 0
    rank: int = 0
    num_prompt_tokens: int = 0
    num_computed_tokens: int = 0
    num_scored_tokens: int = 0
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    mu: float = field(init=False)
    finish_reason: FinishReason | None = None
    forks: Sequence | None = None
    prefix_hashes: list[bytes] = field(default_factory=list[bytes])
    awaited: bytes | None = None
    verified: VerifiedDraft | None = None
    matcher: TokenMatcher | None = None
    pooler: Pooler | None = None
    _needs_history: bool = field(init=False)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.token_ids)
        self.mu = self.sampling.first_mu
        self._needs_history = self.sampling.needs_history

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def wants_prompt_scores(self) -> bool:
        """Whether prompt rows still need logits: asked for, and not all there yet.

        The prompt's scores are the same for every choice; the first one gets them.
        """
        return (
            self.index == 0
            and self.params.prompt_logprobs is not None
            and self.num_scored_tokens < self.num_prompt_tokens - 1
        )

    @property
    def needs_every_row(self) -> bool:
        """Whether rows are asked about whose keys and values may be there already."""
        return self.wants_prompt_scores or (self.pooler is not None and self.pooler.needs_every_row)

    @property
    def is_decoding(self) -> bool:
        """Whether the next step computes its last token alone, and chooses another."""
        return (
            self.num_uncomputed_tokens == 1 and not self.wants_prompt_scores and self.pooler is None
        )

    @property
    def waits_for_prompt(self) -> bool:
        """Whether the choice that this one forks is still to compute their prompt."""
        first = self.forks
        return (
            first is not None
            and first.finish_reason is None
            and first.num_computed_tokens < first.num_prompt_tokens
        )

    @property
    def failure(self) -> ConstraintLimitError | None:
        """Why its constraint could not be followed further."""
        return None if self.matcher is None else self.matcher.failure

    def append(self, token_id: int, mu: float) -> None:
        """The next token came. Raises ConstraintLimitError where the constraint cannot go on."""
        self.token_ids.append(token_id)
        self.mu = mu
        if self.matcher is not None:
            self.matcher.accept(token_id)

    def banned_ids(self, num_ahead: int = 0) -> list[int]:
        """Tokens that would end the sequence before `min_tokens`, were so many more there."""
        least = self.params.min_tokens
        if least == 0 or self.num_output_tokens + num_ahead >= least:
            return []
        return sorted(self.stop_ids)

    def note_draft(self, draft: tuple[int, ...], answers: list[TokenResult]) -> None:
        """A draft's rows were computed, which gave these answers, and none is taken yet."""
        if draft:
            self.num_draft_tokens += len(draft)
            said = tuple(answer.token_id for answer in answers)
            self.verified = VerifiedDraft(len(self.token_ids), draft, said)

    def history(self, ahead: tuple[int, ...] = ()) -> list[int]:
        """Tokens so far and those `ahead`, where the sampler needs them."""
        if not self._needs_history:
            return []
        return [*self.token_ids, *ahead] if ahead else self.token_ids

    def finish_after(self, token_id: int) -> FinishReason | None:
        """Why the sequence ends with the token just appended, if it does."""
        if token_id in self.stop_ids and self.num_output_tokens > self.params.min_tokens:
            return "stop"
        return "length" if self.num_output_tokens >= self.max_tokens else None
