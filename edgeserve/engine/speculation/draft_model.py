"""Guesses by a smaller model of the same vocabulary, drawn with the very noise of the answer.

Leviathan et al. (arXiv 2211.17192) accept by a ratio of probabilities; here a guess is accepted if
it is the token that is drawn from the large model. With noise of its own it would seldom be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from edgeserve.cache.kv_cache import BlockTables, Growth, KVCache
from edgeserve.engine.questions import choose
from edgeserve.engine.sequence import Sequence
from edgeserve.engine.speculation.acceptance import Acceptance, SharedAcceptance
from edgeserve.engine.speculation.proposer import num_alike
from edgeserve.frozen import frozen
from edgeserve.runner.batch import BLOCK_SIZE, Batch, ChooseToken, RowGroup
from edgeserve.runner.runner import Runner

_EXPECTED = 0.7
"""The share of its guesses that is right, before any was verified."""
_NEWEST = 0.2
"""Of the newest pass's time, against all before it."""


@frozen
class DraftLimits:
    """`max_rows` bounds a pass, `max_position` what the model was made for."""

    max_rows: int
    max_position: int


@dataclass(slots=True)
class _Reader:
    """One sequence as the model has it: the tokens whose keys and values are stored, the last ones
    of which may have been rejected since; and what was guessed last, from `first` on, with
    mirostat's `mu` after it."""

    tables: BlockTables
    acceptance: Acceptance
    stored: list[int]
    guesses: list[int]
    first: int = 0
    mu: float = 0.0


@frozen
class _Pass:
    """Rows of one sequence in a pass, which `asks` for a guess if they are its last."""

    sequence: Sequence
    reader: _Reader
    rows: list[int]
    asks: bool


class DraftModel:
    """A Proposer over a runner of its own. `clock` gives seconds."""

    name = "draft model"

    def __init__(
        self,
        runner: Runner,
        limits: DraftLimits,
        clock: Callable[[], float],
        growth: Growth | None = None,
    ) -> None:
        self._runner = runner
        self._limits = limits
        self._clock = clock
        self._cache = KVCache(
            windows=[group.window for group in runner.cache_groups],
            num_blocks=runner.num_blocks,
            block_size=BLOCK_SIZE,
            growth=growth,
        )
        self._shared = SharedAcceptance([_EXPECTED])
        self._readers: dict[Sequence, _Reader] = {}
        self._seconds_per_token = 0.0

    @property
    def seconds_per_token(self) -> float:
        return self._seconds_per_token

    def foresee(self, sequence: Sequence, limit: int, /) -> list[float]:
        reader = self._readers.get(sequence)
        if reader is None:
            tables, acceptance = self._cache.new_tables(), self._shared.of_sequence()
            reader = self._readers[sequence] = _Reader(tables, acceptance, [], [])
        said = sequence.token_ids[reader.first :]
        right = num_alike(reader.guesses, said)
        for n in range(min(right + 1, len(reader.guesses), len(said))):
            reader.acceptance.note(0, n < right)
        reader.guesses = []
        limit = min(limit, self._limits.max_position - len(sequence.token_ids) - 1)
        return [reader.acceptance.chance(0)] * max(0, limit)

    def draft(self, wanted: Mapping[Sequence, int]) -> Mapping[Sequence, list[int]]:
        ready = self._catch_up(wanted)
        for n in range(1, max(wanted.values(), default=0)):
            ready = [sequence for sequence in ready if wanted[sequence] > n]
            if not ready:
                break
            began, num_asking = self._clock(), len(ready)
            ready = self._guess(ready)
            self._note_seconds((self._clock() - began) / num_asking)
        return {sequence: list(self._readers[sequence].guesses) for sequence in wanted}

    def forget(self, sequence: Sequence) -> None:
        reader = self._readers.pop(sequence, None)
        if reader is not None:
            self._cache.release(reader.tables)

    def close(self) -> None:
        """Gives the model's memory back. Twice is fine."""
        self._runner.close()

    def _catch_up(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        """Computes what sequences have said since, up to the rows of one pass, and a first guess
        for those of which that is all."""
        room = self._limits.max_rows
        passed: list[_Pass] = []
        for sequence in sequences:
            reader, tokens = self._readers[sequence], sequence.token_ids
            agreed = min(reader.first, len(reader.stored))
            agreed += num_alike(reader.stored[agreed:], tokens[agreed:])
            # The last token is computed again even if it is stored: a guess needs its logits.
            agreed = min(agreed, len(tokens) - 1)
            del reader.stored[agreed:]
            reader.first = len(tokens)
            rows = tokens[agreed : agreed + room]
            if rows and self._cache.extend(reader.tables, agreed, agreed + len(rows)):
                passed.append(_Pass(sequence, reader, rows, agreed + len(rows) == len(tokens)))
                room -= len(rows)
        return self._execute(passed)

    def _guess(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        """One more guess for each, after those it has."""
        passed: list[_Pass] = []
        for sequence in sequences:
            reader = self._readers[sequence]
            at = len(reader.stored)
            if self._cache.extend(reader.tables, at, at + 1):
                passed.append(_Pass(sequence, reader, reader.guesses[-1:], True))
        return self._execute(passed)

    def _execute(self, passed: list[_Pass]) -> list[Sequence]:
        """Those that have a guess more."""
        if not passed:
            return []
        groups = [
            RowGroup(each.rows, len(each.reader.stored), each.reader.tables.groups, int(each.asks))
            for each in passed
        ]
        self._runner.execute(Batch.from_groups(groups, len(self._runner.cache_groups)))
        for each in passed:
            each.reader.stored += each.rows
        asking = [each for each in passed if each.asks]
        asked = [_question(each.sequence, each.reader) for each in asking]
        for each, answer in zip(asking, self._runner.sample(asked), strict=True):
            each.reader.guesses.append(answer.token_id)
            each.reader.mu = answer.mu
        return [each.sequence for each in asking]

    def _note_seconds(self, seconds: float) -> None:
        known = self._seconds_per_token
        self._seconds_per_token = seconds if known == 0.0 else known + _NEWEST * (seconds - known)


def _question(sequence: Sequence, reader: _Reader) -> ChooseToken:
    """What the sequence itself will ask, but for reports; the row before was of another pass."""
    question = choose(sequence, tuple(reader.guesses))
    mu = reader.mu if reader.guesses else question.mu
    return replace(question, num_logprobs=None, chained=False, mu=mu)
