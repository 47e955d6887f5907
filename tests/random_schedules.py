"""Random schedules of requests over real runners, and what they must not change.

A Workshop lends runners of tiny or real models to many engines, each with limits of its own, and
remembers what every request answers alone, its prompt in one piece and everything else off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from edgeserve.build import LoadedModel, load_model
from edgeserve.cache.disk_folder import DiskFolder
from edgeserve.cache.disk_store import DiskStore
from edgeserve.cache.kv_cache import Growth
from edgeserve.cache.prefix_index import PrefixIndex
from edgeserve.config import Config
from edgeserve.engine.engine import Engine, EngineLimits
from edgeserve.engine.live_request import Request
from edgeserve.engine.sequence import Sequence as Line
from edgeserve.engine.speculation.draft_lengths import PayingLengths
from edgeserve.engine.speculation.forced import Forced
from edgeserve.engine.speculation.lookahead import Lookahead
from edgeserve.engine.speculation.lookup import Lookup
from edgeserve.engine.speculation.row_times import RowTimes
from edgeserve.engine.speculation.speculator import FixedLength, Speculator
from edgeserve.engine_options import EngineOptions
from edgeserve.runner.batch import BLOCK_SIZE
from edgeserve.types import (
    Constraint,
    EmbeddingOutput,
    PoolingParams,
    RequestOutput,
    SamplingParams,
)

from .engine_harness import Harness, poison_reused_blocks, uneven_clock

POOL_BLOCKS = 96
CONSTRAINTS = (
    Constraint.regex("(the|in|on)+ (forced text that is in all of them|another one)[0-9]?"),
    Constraint.json_schema({"enum": ["the one", "the other", {"a": [1, 2]}]}),
    Constraint.json_schema({"type": "array", "items": {"type": "integer"}, "minItems": 2}),
)

Answer = RequestOutput | EmbeddingOutput


@dataclass(frozen=True)
class Ask:
    """One request. `pause` steps are taken after it was queued; `gone_after` steps later, where
    that is not None, it is cancelled."""

    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int = 0
    pause: int = 0
    gone_after: int | None = None
    priority: int = 0
    pooling: PoolingParams | None = None
    """With it the prompt's vector is asked for."""


@dataclass(frozen=True)
class Machine:
    """How an engine computes: nothing of it may show in an answer, but for `kv_type`."""

    kv_type: str = "f16"
    num_threads: int = 1
    batched: int = 512
    seqs: int = 64
    num_blocks: int = POOL_BLOCKS
    slab_blocks: int | None = None
    prefix_caching: bool = False
    draft_length: int = 0
    lies: int = 0
    """Of ten guesses, so many are wrong."""
    looks_up: bool = False
    """Guesses are looked up in what was said, and as long as they pay by the clock."""
    looks_ahead: bool = False
    """Guesses are what the model said after wrong ones, `draft_length` or 5 tokens of them."""
    disk: bool = False
    """Blocks are kept in a store that all engines of a workshop share."""
    headroom: float = 0.0
    """Answers whose room is left free by who starts; with none the pool is filled, and overfull."""


class Lent:
    """A runner with fewer blocks, which closing leaves open."""

    def __init__(self, runner: Any, num_blocks: int) -> None:
        self._runner, self.num_blocks = runner, num_blocks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def close(self) -> None:
        """The workshop closes it."""


@dataclass(eq=False)
class Guesses:
    """A proposer that knows what each request answers alone, and errs in `lies` of ten guesses.

    `counts` says how often a draft was cut short, and how often in the middle of a block.
    """

    answers: Mapping[str, Answer]
    lies: int
    counts: Counter[str]
    name: str = "guesses"
    seconds_per_token: float = 0.0
    _pending: dict[Line, tuple[int, int]] = field(default_factory=dict)

    def foresee(self, sequence: Line, limit: int, /) -> list[float]:
        self._learn(sequence)
        return [1.0] * limit

    def draft(self, wanted: Mapping[Line, int]) -> Mapping[Line, list[int]]:
        found: dict[Line, list[int]] = {}
        for sequence, count in wanted.items():
            answer = self.answers[sequence.request_id]
            assert isinstance(answer, RequestOutput), "what is embedded says nothing"
            known = answer.outputs[sequence.index].token_ids
            first = sequence.num_output_tokens
            guess = [
                token if (first + at) * 7 % 10 >= self.lies else 3 + (first + at) % 50
                for at, token in enumerate(known[first : first + count])
            ]
            found[sequence] = guess
            self._pending[sequence] = len(sequence.token_ids), len(guess)
        return found

    def forget(self, sequence: Line) -> None:
        self._learn(sequence)

    def close(self) -> None:
        """There is nothing to give back."""

    def _learn(self, sequence: Line) -> None:
        """What became of the draft before."""
        num_tokens, num_drafted = self._pending.pop(sequence, (0, 0))
        end = len(sequence.token_ids)
        accepted = end - num_tokens - 1
        if 0 <= accepted < num_drafted:
            self.counts["rejected drafts"] += 1
            self.counts["rejected inside a block"] += (end - 1) % BLOCK_SIZE != 0


class Workshop:
    """Engines over one model file."""

    def __init__(self, path: Path, folder: Path, context: int) -> None:
        self._path, self._folder, self._context = path, folder, context
        self._models: dict[tuple[str, int], LoadedModel] = {}
        self._alone: dict[tuple[str, Ask], Answer] = {}
        self.counts: Counter[str] = Counter()

    def close(self) -> None:
        for model in self._models.values():
            model.engine.close()

    def alone(self, ask: Ask, kv_type: str) -> Answer:
        """What it answers with an engine to itself and everything off."""
        ask = replace(ask, pause=0, gone_after=None, priority=0)
        key = kv_type, ask
        if key not in self._alone:
            bench = Harness(self._engine(Machine(kv_type)))
            bench.engine.add_request(self._request("alone", ask))
            bench.run()
            self._alone[key] = replace(bench.answer("alone"), request_id="")
        return self._alone[key]

    def check(self, schedule: Sequence[Ask], machine: Machine, times: int = 2) -> None:
        """Runs the schedule `times` times on one engine, and compares every answer."""
        alone = [self.alone(ask, machine.kv_type) for ask in schedule]
        told = {f"{time}.{n}": answer for time in range(times) for n, answer in enumerate(alone)}
        engine = self._engine(machine, Guesses(told, machine.lies, self.counts))
        poison_reused_blocks(engine)
        for time in range(times):
            answers = self._run(engine, schedule, time)
            for n, answer in answers.items():
                assert answer == alone[n], f"request {n}, time {time}"
        self._count(engine)
        engine.close()

    def _run(self, engine: Engine, schedule: Sequence[Ask], time: int) -> dict[int, Answer]:
        bench = Harness(engine)
        gone: dict[int, list[str]] = {}
        for n, ask in enumerate(schedule):
            name = f"{time}.{n}"
            engine.add_request(self._request(name, ask))
            if ask.gone_after is not None:
                gone.setdefault(bench.num_steps + ask.gone_after, []).append(name)
            for _ in range(ask.pause):
                self._step(bench, gone)
        while engine.has_work:
            self._step(bench, gone)
            assert bench.num_steps < 20_000, "a request that never ends"
        assert bench.errors == {}, bench.errors
        assert engine._cache.occupancy() == 0.0  # pyright: ignore[reportPrivateUsage]
        for output in bench.outputs.values():
            self.counts["accepted tokens"] += output.usage.num_accepted_tokens
        done = [n for n in range(len(schedule)) if f"{time}.{n}" in bench.outputs]
        assert set(done) >= {n for n, ask in enumerate(schedule) if ask.gone_after is None}
        return {n: replace(bench.answer(f"{time}.{n}"), request_id="") for n in done}

    def _request(self, name: str, ask: Ask) -> Request:
        asked = ask.params.constraint
        compiler = self._model("f16", 1).constraints  # of one vocabulary, however it is computed
        constraint = None if asked is None else compiler.compile(asked)
        self.counts["constrained"] += asked is not None
        return Request(
            name,
            None,
            ask.prompt,
            ask.params,
            ask.seed,
            ask.priority,
            constraint=constraint,
            pooling=ask.pooling,
        )

    def _step(self, bench: Harness, gone: dict[int, list[str]]) -> None:
        for name in gone.pop(bench.num_steps, ()):
            self.counts["cancelled"] += bench.engine.is_live(name)
            bench.engine.abort(name)
            bench.engine.check()
        bench.step()

    def _count(self, engine: Engine) -> None:
        for name, count in engine.stats.num_blocks.items():
            self.counts[name] += count
        self.counts["preemptions"] += engine.stats.num_preemptions

    def _engine(self, machine: Machine, guesses: Guesses | None = None) -> Engine:
        model = self._model(machine.kv_type, machine.num_threads)
        speculator = None
        vocab_size = model.tokenizer.vocab_size
        if guesses is not None and machine.looks_ahead:
            lengths = FixedLength(machine.draft_length or 5)
            speculator = Speculator([Lookahead()], lengths, vocab_size)
        elif guesses is not None and machine.looks_up:
            speculator = Speculator([Forced(), Lookup()], PayingLengths(RowTimes()), vocab_size)
        elif guesses is not None and machine.draft_length > 0:
            speculator = Speculator([guesses], FixedLength(machine.draft_length), vocab_size)
        growth = None
        if machine.slab_blocks is not None:
            growth = Growth(machine.slab_blocks, lambda _group, _num_blocks: True)
        return Engine(
            Lent(model.engine._runner, machine.num_blocks),  # pyright: ignore[reportPrivateUsage]
            model.tokenizer,
            EngineLimits(
                self._context, machine.batched, machine.seqs, headroom_answers=machine.headroom
            ),
            model.defaults,
            uneven_clock(),
            PrefixIndex(b"", BLOCK_SIZE) if machine.prefix_caching else None,
            growth,
            speculator,
            self._store(machine.kv_type) if machine.disk else None,
        )

    def _store(self, kv_type: str) -> DiskStore:
        folder = DiskFolder(self._folder / "disk")
        store = DiskStore(folder, kv_type.encode().ljust(16), {}, bound_bytes=1 << 24)
        assert store.wait_ready(30)
        return store

    def _model(self, kv_type: str, num_threads: int) -> LoadedModel:
        key = kv_type, num_threads
        if key not in self._models:
            options = EngineOptions(
                kv_cache_dtype=kv_type,
                num_threads=num_threads,
                max_model_len=self._context,
                max_num_seqs=-(-POOL_BLOCKS * BLOCK_SIZE // self._context),
            )
            self._models[key] = load_model(
                str(self._path),
                options,
                config=Config(self._folder, self._folder),
                clock=uneven_clock(),
            )
        return self._models[key]


def random_machine(random: Random, num_blocks: Sequence[int], kv_types: Sequence[str]) -> Machine:
    """Any, with a pool of one of these sizes."""
    prefix_caching = random.random() < 0.6
    return Machine(
        kv_type=random.choice(kv_types),
        num_threads=random.choice([1, 2]),
        batched=random.choice([1, 7, 32, 512]),
        seqs=random.choice([1, 3, 64, 64]),
        num_blocks=random.choice(num_blocks),
        slab_blocks=random.choice([None, 3]),
        prefix_caching=prefix_caching,
        draft_length=random.choice([0, 1, 3, 20]),
        lies=random.choice([0, 3, 10]),
        looks_up=random.random() < 0.25,
        disk=prefix_caching and random.random() < 0.5,
        looks_ahead=random.random() < 0.2,
        headroom=random.choice([0.0, 0.0, 3.0]),
    )


def random_ask(random: Random, texts: Sequence[Sequence[int]], prompt: int, output: int) -> Ask:
    """A request of at most so many tokens, whose prompt often begins like another's: so far one
    of `texts`, then the end of another."""
    one, other = random.choice(texts), random.choice(texts)
    params = SamplingParams(
        temperature=random.choice([0.0, 0.0, 1.0]),
        top_p=random.choice([None, 0.7, 1.0]),
        top_k=random.choice([None, 3]),
        repetition_penalty=random.choice([None, 1.3]),
        frequency_penalty=random.choice([0.0, 0.5]),
        logit_bias=random.choice([None, {40: 3.0, 2: -100.0}]),
        mirostat=random.choice([None, None, None, 2]),
        dry_multiplier=random.choice([None, None, 0.8]),
        xtc_probability=random.choice([None, None, 0.5]),
        dynatemp_range=random.choice([None, None, 0.3]),
        n=random.choice([1, 1, 2]),
        max_tokens=random.randint(1, output),
        min_tokens=random.choice([0, 1]),
        stop=random.choice([None, None, "e", ["th", " o"]]),
        stop_token_ids=random.choice([(), (), (), tuple(range(100, 130))]),
        ignore_eos=random.random() < 0.7,
        logprobs=random.choice([None, 0, 2]),
        prompt_logprobs=random.choice([None, None, 1]),
    )
    if random.random() < 0.25:
        constraint = random.choice(CONSTRAINTS)
        params = replace(params, ignore_eos=False, min_tokens=0, constraint=constraint)
    pooling = random.choice([None] * 6 + [PoolingParams("mean"), PoolingParams("last")])
    return Ask(
        pooling=pooling,
        prompt=(*one[: random.randint(0, prompt - 12)], *other[-random.randint(1, 12) :]),
        params=params if pooling is None else SamplingParams(),
        seed=random.choice([0, 1, 2**64 - 1]),
        pause=random.randint(0, 4),
        gone_after=random.choice([None, None, None, None, 0, 5]),
        priority=random.choice([0, 0, -1, 1]),
    )


def smallest_failure(
    check: Callable[[Sequence[Ask]], None], schedule: Sequence[Ask]
) -> Sequence[Ask]:
    """What is left of a schedule that fails, when requests go that are not needed for it."""
    for n in range(len(schedule)):
        rest = [*schedule[:n], *schedule[n + 1 :]]
        try:
            check(rest)
        except AssertionError:
            return smallest_failure(check, rest)
    return schedule
