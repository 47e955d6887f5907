"""What keeping room for answers saves when more is asked at once than the pool holds.

    python benches/crowded.py [--answers 1000] [--seed 1]

The scheduler and the cache are the product's; steps are pretended to be computed, at 8 ms and a
millisecond a row (about SmolLM2 on two cores). 64 clients, each of which asks again once it is
answered, and a pool for 16 of them. The longest silence is between two tokens of one answer.
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import dataclass, field

from edgeserve.cache.kv_cache import KVCache
from edgeserve.cache.prefix_index import PrefixIndex
from edgeserve.engine.headroom import NUM_ANSWERS, Headroom
from edgeserve.engine.scheduler import Scheduler
from edgeserve.engine.sequence import Sequence
from edgeserve.runner.batch import BLOCK_SIZE
from edgeserve.types import SamplingDefaults, SamplingParams

NUM_CLIENTS = 64
SHARE = 4
STEP_S, ROW_S = 0.008, 0.001
VOCAB_SIZE = 1000
LOADS = {
    "as long as prompts": ((30, 200), (10, 300)),
    "long answers": ((20, 60), (100, 600)),
    "long prompts": ((500, 3000), (20, 100)),
}
Range = tuple[int, int]


@dataclass
class Crowd:
    """Clients whose prompts and answers are so many tokens long, anew for each."""

    headroom: float
    prompts: Range
    answers: Range
    random: random.Random
    now: float = 0.0
    rows: int = 0
    tokens: int = 0
    preempted: int = 0
    ended: int = 0
    silences: list[float] = field(default_factory=list[float])
    waits: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        pool = NUM_CLIENTS * (sum(self.prompts) + sum(self.answers)) // (2 * SHARE)
        self.cache = KVCache(
            windows=[None],
            num_blocks=pool // BLOCK_SIZE,
            block_size=BLOCK_SIZE,
            index=PrefixIndex(b"", BLOCK_SIZE),
        )
        self.scheduler = Scheduler(
            self.cache,
            max_num_batched_tokens=512,
            max_num_seqs=NUM_CLIENTS,
            headroom=Headroom(self.headroom),
        )
        self._ends: dict[Sequence, int] = {}
        self._since: dict[Sequence, float] = {}
        for _ in range(NUM_CLIENTS):
            self._ask()

    def _ask(self) -> None:
        params = SamplingParams()
        sequence = Sequence(
            request_id="",
            index=0,
            token_ids=[self._token() for _ in range(self.random.randint(*self.prompts))],
            params=params,
            sampling=params.resolved(SamplingDefaults()),
            seed=0,
            max_tokens=self.answers[1],
            stop_ids=frozenset(),
            block_tables=self.cache.new_tables(),
        )
        self._ends[sequence] = self.random.randint(*self.answers)
        self._since[sequence] = self.now
        self.scheduler.add(sequence)

    def _token(self) -> int:
        return self.random.randrange(VOCAB_SIZE)

    def step(self) -> None:
        output = self.scheduler.schedule()
        self.preempted += output.num_preempted
        self.rows += output.num_rows
        self.now += STEP_S + ROW_S * output.num_rows
        for rows in output.rows:
            self.scheduler.advance(rows.sequence, rows.num_tokens)
            if rows.sequence.num_uncomputed_tokens == 0:
                self._answer(rows.sequence)

    def _answer(self, sequence: Sequence) -> None:
        silent_s = self.now - self._since[sequence]
        (self.silences if sequence.num_output_tokens else self.waits).append(silent_s)
        self._since[sequence] = self.now
        sequence.token_ids.append(self._token())
        self.tokens += 1
        if sequence.num_output_tokens == self._ends[sequence]:
            sequence.finish_reason = "stop"
            self.scheduler.remove(sequence)
            del self._ends[sequence], self._since[sequence]
            self.ended += 1
            self._ask()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print("answers kept room for; preempted; rows a token; tokens/s; silence p99.9, s; wait, s")
    for name, (prompts, answers) in LOADS.items():
        print(name)
        for headroom in (0.0, 1.0, NUM_ANSWERS, 2 * NUM_ANSWERS):
            crowd = Crowd(headroom, prompts, answers, random.Random(arguments.seed))
            while crowd.ended < arguments.answers:
                crowd.step()
            silence = statistics.quantiles(crowd.silences, n=1000)[-1]
            print(
                f"  {headroom:3.0f} {crowd.preempted:6} {crowd.rows / crowd.tokens:7.2f}"
                f" {crowd.tokens / crowd.now:7.1f} {silence:7.2f}"
                f" {statistics.fmean(crowd.waits):7.1f}"
            )


if __name__ == "__main__":
    main()
