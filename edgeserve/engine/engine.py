"""The engine: step() is schedule, execute, accept. Synchronous, and owned by one thread.

A failed request never kills a step; a failed step fails the requests in it and the engine goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import asdict

from edgeserve.cache.disk_store import DiskStore
from edgeserve.cache.kv_cache import CacheCounts, Growth, KVCache
from edgeserve.cache.prefix_index import PrefixIndex
from edgeserve.engine.accounting import Accounts, DraftCounts, EngineStats, StepReport, StepSeconds
from edgeserve.engine.admission import Admission
from edgeserve.engine.forward import ForwardPass
from edgeserve.engine.headroom import Headroom
from edgeserve.engine.limits import EngineLimits
from edgeserve.engine.live_request import LiveRequest, Request
from edgeserve.engine.output import (
    ChoiceOutput,
    EngineEvent,
    RequestEmbedded,
    RequestFailed,
    RequestFinished,
    RequestProgress,
)
from edgeserve.engine.prompt_cost import PromptCost
from edgeserve.engine.questions import pooled
from edgeserve.engine.recent_prompts import RecentPrompts
from edgeserve.engine.restorer import Restorer
from edgeserve.engine.saver import Saver
from edgeserve.engine.scheduled_rows import ScheduledRows, SchedulerOutput
from edgeserve.engine.scheduler import Scheduler
from edgeserve.engine.sequence import Sequence
from edgeserve.engine.speculation.speculator import Speculator
from edgeserve.engine.step_load import KeysSeen
from edgeserve.engine.step_times import StepTimes
from edgeserve.engine.time_bound import TimeBound
from edgeserve.errors import (
    EdgeServeError,
    InvalidRequestError,
    NonFiniteLogitsError,
    NothingAllowedError,
    OutOfMemoryError,
    StepError,
)
from edgeserve.runner.batch import BLOCK_SIZE, TokenResult
from edgeserve.runner.runner import Runner
from edgeserve.text.tokenizer import Tokenizer
from edgeserve.types import RequestOutput, SamplingDefaults


class Engine:
    """Many requests over one runner. `clock` gives seconds; answers never depend on it.

    `index` finds the blocks of prefixes that were computed before; without one nothing is shared.
    `growth` lets the cache take its memory little by little.
    `store`, which comes with one, keeps them on disk, and is closed with the engine.
    """

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer,
        limits: EngineLimits,
        defaults: SamplingDefaults,
        clock: Callable[[], float],
        index: PrefixIndex | None = None,
        growth: Growth | None = None,
        speculator: Speculator | None = None,
        store: DiskStore | None = None,
    ) -> None:
        self.limits = limits
        self.defaults = defaults
        self._runner = runner
        self._tokenizer = tokenizer
        self._admission = Admission(limits, tokenizer, defaults)
        self._clock = clock
        self._speculator = speculator
        self._cache = KVCache(
            windows=[group.window for group in runner.cache_groups],
            num_blocks=runner.num_blocks,
            block_size=BLOCK_SIZE,
            index=index,
            growth=growth,
        )
        self._forward = ForwardPass(runner, self._cache)
        self.saver = Saver(self._cache, runner, store)
        """For whoever drives the engine, when nothing is to be computed."""
        self._restorer = None if store is None else Restorer(self._cache, runner, store, clock)
        self._scheduler = Scheduler(
            self._cache,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_num_seqs=limits.max_num_seqs,
            restorer=self._restorer,
            headroom=Headroom(limits.headroom_answers),
        )
        self._live: dict[str, LiveRequest] = {}
        self._half_taken: tuple[ScheduledRows, ...] = ()
        self._accounts = Accounts()
        self._recent = RecentPrompts()
        self._bound = TimeBound(
            StepTimes(limits.prior_s_per_row, limits.prior_s_per_key),
            KeysSeen.of((len(g.caches), g.window) for g in runner.cache_groups),
            max_step_s=limits.max_step_s,
            target_itl_s=limits.target_itl_s,
        )

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    @property
    def num_sequences(self) -> int:
        """Choices of live requests that have not ended, computed right now or not."""
        return self._scheduler.num_running + self._scheduler.num_waiting

    @property
    def cache_counts(self) -> CacheCounts:
        """Blocks that were found, forked, copied, left behind and evicted so far."""
        return self._cache.counts

    @property
    def stats(self) -> EngineStats:
        """What was done so far, and where the time went."""
        drafts = dict[str, DraftCounts]() if self._speculator is None else self._speculator.counts()
        load = self._scheduler.load()
        return self._accounts.stats(asdict(self._cache.counts), drafts, load)

    def is_live(self, request_id: str) -> bool:
        return request_id in self._live

    def now(self) -> float:
        """Seconds, by the engine's clock."""
        return self._clock()

    def validate(self, request: Request) -> None:
        """Whether the request could ever be computed. Of all methods, for any thread.

        Raises InvalidRequestError, ContextLengthError or OutOfBlocksError.
        """
        self._admission.check(request)
        self._scheduler.require_blocks(self._admission.num_tokens(request))

    def add_request(self, request: Request, *, arrived: float | None = None) -> None:
        """Queues a request, which may have `arrived` earlier. Raises what `validate` does."""
        if request.request_id in self._live:
            raise InvalidRequestError("request_id", request.request_id, "unique among live ones")
        self.validate(request)
        arrived = self._clock() if arrived is None else arrived
        tables = [self._cache.new_tables() for _ in range(request.params.n)]
        choices = [
            ChoiceOutput(
                self._admission.sequence(request, index, own), self._tokenizer, request.shape
            )
            for index, own in enumerate(tables)
        ]
        for choice in choices[1:]:
            choice.sequence.forks = choices[0].sequence
        likeness = self._recent.likest(request.prompt_token_ids)
        self._live[request.request_id] = LiveRequest(request, choices, arrived, likeness)
        try:
            for choice in choices:
                self._scheduler.add(choice.sequence)
        except BaseException:  # Ctrl-C too: nothing may be scheduled that is not live
            self.abort(request.request_id)
            raise
        self._recent.remember(request.request_id, request.prompt_token_ids)

    def prompt_cost(self, token_ids: Items[int]) -> PromptCost:
        """What reading these tokens would take now. Nothing is computed, and nothing held."""
        hashes: list[bytes] = []
        self._cache.hash_prefix(hashes, token_ids)
        num_cached = num_found = self._cache.find(hashes, token_ids)[0] * BLOCK_SIZE
        if self._restorer is not None:
            num_found = max(num_cached, self._restorer.num_findable(hashes, token_ids))
        seconds = self._bound.prompt_seconds(
            num_found, len(token_ids), self.limits.max_num_batched_tokens
        )
        return PromptCost(len(token_ids), num_cached, num_found - num_cached, seconds)

    def abort(self, request_id: str) -> None:
        """Drops a request; its blocks are free at once. One that is not live is no error."""
        self._drop(request_id, "abort")

    def _drop(self, request_id: str, how: str) -> None:
        live = self._live.pop(request_id, None)
        if live is None:
            return
        self._accounts.note_failure(how)
        for choice in live.choices:
            choice.sequence.finish_reason = choice.sequence.finish_reason or "abort"
            self._remove(choice.sequence)

    def step(self) -> list[EngineEvent]:
        """One forward pass for whoever is due, and what came of it.

        Safe to interrupt (Ctrl-C raises anywhere): the next step goes on, or fails those requests
        whose answers were half taken.
        """
        if self._half_taken:
            half_taken, self._half_taken = self._half_taken, ()
            return self._fail_all(half_taken, KeyboardInterrupt())
        if self._restorer is not None:
            self._restorer.fill_some()
        began = self._clock()
        output = self._with_drafts(self._scheduler.schedule(self._bound))
        scheduled = output.rows
        if output.unable is not None:
            what = f"the keys and values of {len(output.unable.token_ids)} tokens"
            return [self._fail(output.unable.request_id, OutOfMemoryError(what))]
        if not scheduled:
            if self._restorer is not None and self._live:
                self._restorer.wait()
            return []
        for rows in scheduled:
            live = self._live[rows.sequence.request_id]
            live.started = began if live.started is None else live.started
        chosen = self._clock()
        try:
            wanted = self._forward.compute(scheduled)
            computed = self._clock()
            results = self._forward.sample(wanted)
            states = self._runner.hidden() if output.wants_hidden else None
        except Exception as error:  # the step's boundary: whatever broke, the engine goes on
            return self._fail_all(scheduled, error)
        sampled = self._clock()
        self._half_taken = scheduled
        events = self._accept(scheduled, results)
        if states is not None:
            events += [self._embedded(sequence) for sequence in pooled(scheduled, states)]
        self._half_taken = ()
        self.saver.save_some(output.num_rows)
        ended = self._clock()
        self._note_step(
            output,
            StepSeconds(chosen - began, computed - chosen, sampled - computed, ended - sampled),
        )
        return events

    def close(self) -> None:
        """Ends all requests, saves what is to be kept within two seconds, and frees memory."""
        for request_id in list(self._live):
            self.abort(request_id)
        try:
            self.saver.close()
        finally:
            if self._speculator is not None:
                self._speculator.close()
            self._forward.close()
            self._runner.close()

    def check(self) -> None:
        """Raises AssertionError unless the block accounting is exact."""
        self._scheduler.check()

    def _note_step(self, output: SchedulerOutput, seconds: StepSeconds) -> None:
        self._bound.observe(seconds.total)
        if self._speculator is not None and output.num_decodes == len(output.rows):
            self._speculator.observe(output.num_rows, seconds.total - seconds.schedule)
        report = StepReport(
            seconds=seconds,
            num_rows=output.num_rows,
            num_decodes=output.num_decodes,
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_preempted=output.num_preempted,
            occupancy=self._cache.occupancy(),
        )
        self._accounts.note_step(report)

    def _with_drafts(self, output: SchedulerOutput) -> SchedulerOutput:
        """Drafts of what decodes will say; a prompt beside them is read a little slower."""
        room = self._scheduler.room_for_drafts(output)
        decoding = [rows.sequence for rows in output.rows if rows.sequence.is_decoding]
        if self._speculator is None or not decoding or room <= 0:
            return output
        drafts = self._speculator.drafts(decoding, len(decoding), room)
        if not drafts:
            return output
        drafted = self._scheduler.add_drafts(output, drafts)
        for without, rows in zip(output.rows, drafted.rows, strict=True):
            end = rows.sequence.num_computed_tokens + without.num_tokens
            self._bound.load.add_draft(end, rows.num_rows - without.num_rows)
        return drafted

    def _accept(
        self, scheduled: Iterable[ScheduledRows], results: list[TokenResult]
    ) -> list[EngineEvent]:
        events: list[EngineEvent] = []
        end = 0
        for rows in scheduled:
            first, end = end, end + rows.num_logits_rows
            answers = results[first:end]
            # A choice of this request may have failed earlier in this very step.
            if rows.sequence.request_id not in self._live:
                continue
            try:
                self._take_answers(rows, answers, events)
            except Exception as error:  # an answer that makes no sense ends its request only
                events.append(self._fail(rows.sequence.request_id, _typed(error)))
        return events

    def _take_answers(
        self, rows: ScheduledRows, answers: list[TokenResult], events: list[EngineEvent]
    ) -> None:
        """Prompt scores, and at the end a new token; as many more as a draft foresaw."""
        sequence = rows.sequence
        live = self._live[sequence.request_id]
        choice = live.choices[sequence.index]
        self._scheduler.advance(sequence, rows.num_tokens)
        position = sequence.num_computed_tokens - rows.num_logits_rows + len(rows.draft)
        draft = iter(rows.draft)
        if live.request.wants_prompt_progress and live.first_token is None:
            events.append(live.prompt_progress(self._clock()))
        sequence.note_draft(rows.draft, answers)
        for answer in answers:
            if not answer.finite:
                events.append(self._fail(sequence.request_id, NonFiniteLogitsError(position)))
                return
            if not answer.allowed:
                error = sequence.failure or NothingAllowedError(position)
                events.append(self._fail(sequence.request_id, error))
                return
            if position + 1 < len(sequence.token_ids):
                if position == sequence.num_scored_tokens:
                    choice.score_prompt(answer)
                    sequence.num_scored_tokens += 1
            else:
                was_guessed = next(draft, None) == answer.token_id
                self._take_token(choice, answer, was_guessed, events)
                if sequence.finish_reason is not None or not was_guessed:
                    break  # the rows that follow were computed after another token
                sequence.num_accepted_tokens += 1
                self._scheduler.advance(sequence, 1)
            position += 1
        if rows.draft:
            self._scheduler.drop_draft(sequence)

    def _take_token(
        self,
        choice: ChoiceOutput,
        answer: TokenResult,
        was_guessed: bool,
        events: list[EngineEvent],
    ) -> None:
        sequence = choice.sequence
        live = self._live[sequence.request_id]
        sequence.append(answer.token_id, answer.mu)
        live.note_token(sequence.index, self._clock())
        self._accounts.num_sampled_tokens += 1
        chunk = choice.accept(answer, was_guessed)
        events.append(RequestProgress(sequence.request_id, chunk))
        if chunk.finish_reason is not None:
            self._remove(sequence)
            live.ended.add(sequence.index)
            if len(live.ended) == len(live.choices):
                del self._live[sequence.request_id]
                output = self._finished(live)
                events.append(RequestFinished(sequence.request_id, output))

    def _embedded(self, sequence: Sequence) -> EngineEvent:
        """The end of a request whose prompt's last row is there."""
        assert sequence.pooler is not None
        try:
            vector = sequence.pooler.vector()
        except EdgeServeError as error:
            return self._fail(sequence.request_id, error)
        self._remove(sequence)
        output = self._live.pop(sequence.request_id).embedding(self._clock(), vector)
        self._accounts.note_embedding(output)
        return RequestEmbedded(sequence.request_id, output)

    def _remove(self, sequence: Sequence) -> None:
        self._scheduler.remove(sequence)
        if self._speculator is not None:
            self._speculator.forget(sequence)

    def _finished(self, live: LiveRequest) -> RequestOutput:
        output = live.output(self._clock(), self._tokenizer.decode)
        self._accounts.note_end(output, live.waits)
        self._recent.remember(live.request.request_id, live.choices[0].sequence.token_ids)
        return output

    def _fail(self, request_id: str, error: EdgeServeError) -> EngineEvent:
        self._drop(request_id, "error")
        return RequestFailed(request_id, error)

    def _fail_all(
        self, scheduled: Iterable[ScheduledRows], error: BaseException
    ) -> list[EngineEvent]:
        failed = dict.fromkeys(rows.sequence.request_id for rows in scheduled)
        return [self._fail(request_id, _typed(error)) for request_id in failed]


def _typed(error: BaseException) -> EdgeServeError:
    return error if isinstance(error, EdgeServeError) else StepError(error)
