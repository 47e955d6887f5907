"""How much sooner answers come with drafts, and how near the draft lengths come to the best.

    python benches/speculation.py MODEL.gguf [MODEL.gguf ...] [--tokens 160] [--rounds 3]
        [--prompts rewrite,copy,prose] [--lengths 1,2,4,8] [--temperature 0] [--threads 2]

Each prompt is answered without drafts, with those that the engine chooses, and with drafts of fixed
lengths, one after another in every round; of each way the round that took least counts. Answers
must be equal. Nothing of earlier rounds is kept for lookup, but step times are. Then the answer is
replayed with the step times that were met: what the best lengths, known beforehand, would take.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeserve.build import load_model
from edgeserve.cache.kv_cache import BlockTables
from edgeserve.config import Config
from edgeserve.engine.engine import Engine
from edgeserve.engine.live_request import Request
from edgeserve.engine.output import RequestFinished
from edgeserve.engine.sequence import Sequence as Line
from edgeserve.engine.speculation.draft_lengths import PayingLengths
from edgeserve.engine.speculation.lookup import Lookup
from edgeserve.engine.speculation.replay import least_seconds, right_guesses
from edgeserve.engine.speculation.row_times import RowTimes
from edgeserve.engine.speculation.speculator import DraftLengths, FixedLength, Offer, Speculator
from edgeserve.engine_options import EngineOptions
from edgeserve.requests import RequestBuilder
from edgeserve.text.tokenizer import Tokenizer
from edgeserve.types import RequestOutput, SamplingDefaults, SamplingParams

CODE = """import math

class Vector:
    def __init__(self, x, y, z):
        self.x = x
        self.y = y
        self.z = z

    def add(self, other):
        return Vector(self.x + other.x, self.y + other.y, self.z + other.z)

    def sub(self, other):
        return Vector(self.x - other.x, self.y - other.y, self.z - other.z)

    def dot(self, other):
        return self.x * other.x + self.y * other.y + self.z * other.z

    def length(self):
        return math.sqrt(self.dot(self))

    def scale(self, k):
        return Vector(self.x * k, self.y * k, self.z * k)

    def normalize(self):
        n = self.length()
        if n == 0:
            return Vector(0, 0, 0)
        return self.scale(1 / n)
"""
PROMPTS = {
    "rewrite": "Rewrite this code, renaming the class Vector to Vec3. Output only the code."
    f"\n\n```python\n{CODE}```",
    "copy": f"Repeat this code exactly, without any change.\n\n```python\n{CODE}```",
    "prose": "Write a short story about a lighthouse keeper who finds a message in a bottle.",
}


@dataclass
class Noted:
    """DraftLengths that note what steps took."""

    lengths: DraftLengths
    seconds: dict[int, list[float]]

    def choose(self, offers: Sequence[Offer], num_rows: int, room: int, /) -> list[int]:
        return self.lengths.choose(offers, num_rows, room)

    def observe(self, num_rows: int, seconds: float, /) -> None:
        self.seconds[num_rows].append(seconds)
        self.lengths.observe(num_rows, seconds)


class Bench:
    """One model, and an engine of each way over it."""

    def __init__(self, path: Path, num_threads: int | None, lengths: Sequence[int]) -> None:
        options = EngineOptions(
            num_threads=num_threads, max_num_seqs=1, max_model_len=2048, speculation="off"
        )
        self._model = load_model(
            str(path), options, config=Config.from_environment(), clock=time.perf_counter
        )
        self.tokenizer: Tokenizer = self._model.tokenizer
        self.seconds: dict[int, list[float]] = defaultdict(list)
        self._ways: dict[str, DraftLengths] = {
            "off": FixedLength(0),
            "auto": PayingLengths(RowTimes()),
            **{f"{length}": FixedLength(length) for length in lengths},
        }

    @property
    def ways(self) -> list[str]:
        return list(self._ways)

    def answer(self, way: str, prompt: str, params: SamplingParams) -> RequestOutput:
        """By an engine that has seen nothing yet."""
        lengths = Noted(self._ways[way], self.seconds)
        engine = Engine(
            self._model.engine._runner,  # pyright: ignore[reportPrivateUsage]
            self.tokenizer,
            self._model.engine.limits,
            SamplingDefaults(),
            time.perf_counter,
            speculator=Speculator([Lookup()], lengths, self.tokenizer.vocab_size),
        )
        engine.add_request(self._request(prompt, params))
        while True:
            for event in engine.step():
                if isinstance(event, RequestFinished):
                    return event.output

    def least_seconds(self, output: RequestOutput) -> float:
        """What the answer would take with the best lengths that lookup allows."""
        known = sorted(self.seconds)

        def step_seconds(num_rows: int) -> float:
            # A step nobody took counts as the next larger that somebody did.
            rows = next((rows for rows in known if rows >= num_rows), known[-1])
            return usual(self.seconds[rows])

        params = SamplingParams()
        line = Line(
            request_id="r",
            index=0,
            token_ids=list(output.prompt_token_ids),
            params=params,
            sampling=params.resolved(SamplingDefaults()),
            seed=1,
            max_tokens=len(output.outputs[0].token_ids),
            stop_ids=frozenset(),
            block_tables=BlockTables.empty(0),
        )
        answer = output.outputs[0].token_ids
        return least_seconds(right_guesses(line, answer, Lookup()), len(answer), step_seconds)

    def close(self) -> None:
        self._model.engine.close()

    def _request(self, prompt: str, params: SamplingParams) -> Request:
        requests = RequestBuilder(self._model)
        if self._model.template is None:
            text = f"<start_of_turn>user\n{prompt}<end_of_turn>\n<start_of_turn>model\n"
            return requests.raw(text, params)
        return requests.chat([{"role": "user", "content": prompt}], params)


def usual(seconds: Sequence[float]) -> float:
    """Low among what was met: other programs only ever add."""
    return sorted(seconds)[len(seconds) // 5]


def measure(bench: Bench, prompt: str, params: SamplingParams, rounds: int) -> None:
    """Prints a line for each way, and what would be the best."""
    seconds: dict[str, list[float]] = defaultdict(list)
    outputs: dict[str, RequestOutput] = {}
    for turn in range(rounds):
        ways = bench.ways if turn % 2 == 0 else bench.ways[::-1]
        for way in ways:
            output = bench.answer(way, prompt, params)
            timings = output.timings
            seconds[way].append((timings.total_ms - timings.first_token_ms) / 1e3)
            outputs[way] = output
    answers = {output.outputs[0].token_ids for output in outputs.values()}
    if len(answers) != 1:
        raise SystemExit("answers differ: drafts must never change them")
    num_tokens = len(answers.pop()) - 1
    off = min(seconds["off"])
    for way, output in outputs.items():
        usage = output.usage
        share = usage.num_accepted_tokens / max(1, usage.num_draft_tokens)
        least = min(seconds[way])
        print(
            f"  {way:>5}  {num_tokens / least:7.1f} tokens/s  x {off / least:.2f}  drafted "
            f"{usage.num_draft_tokens:4}, accepted {usage.num_accepted_tokens:4} ({share:.0%})"
        )
    met = usual(bench.seconds[1]) * num_tokens
    print(f"   best  x {met / bench.least_seconds(outputs['auto']):.2f} by replay", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", default=",".join(PROMPTS))
    parser.add_argument("--lengths", default="1,2,4,8")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    lengths = [int(length) for length in args.lengths.split(",") if length]
    params = SamplingParams(
        temperature=args.temperature, max_tokens=args.tokens, ignore_eos=True, seed=1
    )
    for path in args.models:
        bench = Bench(path, args.threads, lengths)
        for name in args.prompts.split(","):
            print(f"{path.stem}, {name}")
            measure(bench, PROMPTS[name], params, args.rounds)
        shape = {
            rows: usual(found) / usual(bench.seconds[1])
            for rows, found in sorted(bench.seconds.items())
            if len(found) > 2
        }
        print("  step times by rows:", ", ".join(f"{r}: {t:.2f}" for r, t in shape.items()))
        bench.close()


if __name__ == "__main__":
    main()
