"""How many tokens a step gives with each way to guess, and what that saves where rows cost little.

    python benches/tokens_per_step.py MODEL.gguf [--draft DRAFT.gguf] [--draft-cost 0.1]
        [--row-cost 0.02] [--tokens 100] [--temperature 0] [--texts prose,code,list] [--threads 1]

Tokens are the model's; time is synthetic: each further row of a step adds `--row-cost` of a step of
one, and a pass of the draft model takes `--draft-cost` of what one of the model does. What pays by
that time is drafted. Answers must be equal. tools/shallow_gguf.py makes a draft model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeserve.build import LoadedModel, load_model
from edgeserve.config import Config
from edgeserve.engine.engine import Engine
from edgeserve.engine.output import RequestFinished
from edgeserve.engine.speculation.draft_lengths import PayingLengths
from edgeserve.engine.speculation.draft_model import DraftLimits, DraftModel
from edgeserve.engine.speculation.lookahead import Lookahead
from edgeserve.engine.speculation.lookup import Lookup
from edgeserve.engine.speculation.proposer import Proposer
from edgeserve.engine.speculation.row_times import RowTimes
from edgeserve.engine.speculation.speculator import Speculator
from edgeserve.engine_options import EngineOptions
from edgeserve.requests import RequestBuilder
from edgeserve.runner.batch import Batch
from edgeserve.types import RequestOutput, SamplingDefaults, SamplingParams

_CONTEXT = 1024
TEXTS = {
    "prose": "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "code": "Write a Python class for a stack with push, pop and peek, and a small test.",
    "list": "List twenty European capitals, each with its country, one a line.",
}


@dataclass
class SyntheticTime:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


class Slowed:
    """A runner whose passes take synthetic time. Closing leaves it open for the next engine."""

    def __init__(self, runner: Any, time: SyntheticTime, cost: float, row_cost: float) -> None:
        self._runner, self._time = runner, time
        self._cost, self._row_cost = cost, row_cost
        self.num_passes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def execute(self, batch: Batch) -> None:
        self._runner.execute(batch)
        self._time.seconds += self._cost * (1.0 + self._row_cost * (batch.num_rows - 1))
        self.num_passes += 1

    def close(self) -> None:
        pass


def load(path: Path, threads: int) -> LoadedModel:
    options = EngineOptions(
        num_threads=threads, max_num_seqs=1, max_model_len=_CONTEXT, speculation="off"
    )
    return load_model(str(path), options, config=Config.from_environment(), clock=time.perf_counter)


class Bench:
    def __init__(self, model: LoadedModel, draft: LoadedModel | None, args: Any) -> None:
        self._model, self._draft, self._args = model, draft, args

    @property
    def ways(self) -> dict[str, Callable[[SyntheticTime], list[Proposer]]]:
        found: dict[str, Callable[[SyntheticTime], list[Proposer]]] = {
            "off": lambda _: [],
            "lookup": lambda _: [Lookup()],
            "lookahead": lambda _: [Lookahead()],
            "lookup and lookahead": lambda _: [Lookup(), Lookahead()],
        }
        if self._draft is not None:
            found["draft model"] = lambda time: [self._drafting(time)]
        return found

    def answer(self, way: str, prompt: str, params: SamplingParams) -> tuple[float, RequestOutput]:
        """Synthetic seconds after the first token, and the answer."""
        now = SyntheticTime()
        runner = Slowed(self._runner_of(self._model), now, 1.0, self._args.row_cost)
        speculator = Speculator(
            self.ways[way](now), PayingLengths(RowTimes()), self._model.tokenizer.vocab_size
        )
        engine = Engine(
            runner,  # pyright: ignore[reportArgumentType]
            self._model.tokenizer,
            self._model.engine.limits,
            SamplingDefaults(),
            now,
            speculator=speculator,
        )
        engine.add_request(
            RequestBuilder(self._model).chat([{"role": "user", "content": prompt}], params)
        )
        while True:
            for event in engine.step():
                if isinstance(event, RequestFinished):
                    if speculator.failures:
                        raise SystemExit(f"{way}: {speculator.failures}")
                    timings = event.output.timings
                    seconds = (timings.total_ms - timings.first_token_ms) / 1e3
                    self.num_steps = runner.num_passes - 1
                    return seconds, event.output

    def _drafting(self, time: SyntheticTime) -> DraftModel:
        assert self._draft is not None
        cost = self._args.draft_cost
        runner = Slowed(self._runner_of(self._draft), time, cost, self._args.row_cost)
        return DraftModel(runner, DraftLimits(512, _CONTEXT), time)  # pyright: ignore[reportArgumentType]

    @staticmethod
    def _runner_of(model: LoadedModel) -> Any:
        return model.engine._runner  # pyright: ignore[reportPrivateUsage]


def measure(bench: Bench, prompt: str, params: SamplingParams) -> None:
    plain, answer = 0.0, None
    for way in bench.ways:
        seconds, output = bench.answer(way, prompt, params)
        plain = plain or seconds
        answer = answer or output.outputs[0].token_ids
        if output.outputs[0].token_ids != answer:
            raise SystemExit("answers differ: drafts must never change them")
        usage, num_tokens = output.usage, len(answer) - 1
        print(
            f"  {way:>20}  {num_tokens / bench.num_steps:5.2f} tokens a step  "
            f"x {plain / seconds:.2f}  drafted {usage.num_draft_tokens:4}, "
            f"accepted {usage.num_accepted_tokens:4}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--draft-cost", type=float, default=0.1)
    parser.add_argument("--row-cost", type=float, default=0.02)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--texts", default=",".join(TEXTS))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    model = load(args.model, args.threads)
    draft = None if args.draft is None else load(args.draft, args.threads)
    bench = Bench(model, draft, args)
    params = SamplingParams(
        temperature=args.temperature, max_tokens=args.tokens, ignore_eos=True, seed=1
    )
    for name in args.texts.split(","):
        print(f"{args.model.stem}, {name}, temperature {args.temperature:g}")
        measure(bench, TEXTS[name], params)


if __name__ == "__main__":
    main()
