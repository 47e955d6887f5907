"""A long prompt before a restart and after it: time to the first token, and who computed what.

    python benches/restart.py MODEL... [--tokens N] [--rounds N]

A process answers a prompt over an empty folder and is killed (SIGKILL) two seconds after the
answer; another then answers the same. Each round ends with a process that was closed instead. The
ratio is of the fastest of both. Ends with an error if an answer differs, if what was found is less
than all full blocks, or if the ratio of a model is above `--most`.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from edgeserve import LLM
from edgeserve.config import Config
from edgeserve.runner.batch import BLOCK_SIZE

_ANSWER_TOKENS = 8
_PAUSE_S = 2.0
_DISK_BYTES = 4 << 30


@dataclass(frozen=True)
class Answer:
    first_token_ms: float
    num_cached: int
    token_ids: list[int]


def prompt(num_tokens: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1000, 20000) for _ in range(num_tokens)]


def answer(given: argparse.Namespace) -> None:
    """What a process of its own does: answers, says so, and waits to be killed or told to end."""
    config = Config(given.folder, given.folder, disk_cache=_DISK_BYTES)
    with LLM(str(given.models[0]), config=config, num_threads=given.threads) as llm:
        asked = {"prompt_token_ids": prompt(given.tokens, given.seed)}
        params = {"temperature": 0.0, "max_tokens": _ANSWER_TOKENS, "ignore_eos": True}
        # Not the first of the process, which finds caches and pages cold.
        llm.generate({"prompt_token_ids": prompt(40, given.seed + 1)}, max_tokens=2)
        (output,) = llm.generate(asked, progress=False, **params)
        found = {
            "first_token_ms": output.timings.first_token_ms,
            "num_cached": output.usage.cached_tokens,
            "token_ids": output.outputs[0].token_ids,
        }
        print(json.dumps(found), flush=True)
        sys.stdin.readline()


def ask(model: Path, folder: Path, given: argparse.Namespace, seed: int, *, kill: bool) -> Answer:
    command = [sys.executable, __file__, str(model), "--answer", "--folder", str(folder)]
    command += ["--tokens", str(given.tokens), "--seed", str(seed)]
    command += ["--threads", str(given.threads)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"no answer from {model}")
        if kill:
            time.sleep(_PAUSE_S)
            process.kill()
        else:
            process.stdin.write("\n")
    return Answer(**json.loads(line))


def measure(model: Path, given: argparse.Namespace) -> bool:
    """Whether all is as it should be."""
    expected = (given.tokens - 1) // BLOCK_SIZE * BLOCK_SIZE
    cold_ms: list[float] = []
    warm_ms: list[float] = []
    is_right = True
    for number in range(given.rounds):
        seed = given.seed + 100 * number
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            cold = ask(model, folder, given, seed, kill=True)
            again = [ask(model, folder, given, seed, kill=kill) for kill in (True, False)]
        cold_ms.append(cold.first_token_ms)
        warm_ms += [each.first_token_ms for each in again]
        is_right &= cold.num_cached == 0
        is_right &= all(each.num_cached == expected for each in again)
        is_right &= all(each.token_ids == cold.token_ids for each in again)
    ratio = min(warm_ms) / min(cold_ms)
    print(
        f"{model.name}: {given.tokens} tokens, {expected} found after a restart; first token "
        f"{min(cold_ms):.0f} ms computed, {min(warm_ms):.0f} ms read (of "
        f"{', '.join(f'{ms:.0f}' for ms in warm_ms)}): {ratio:.3f}"
        f"{'' if is_right else '; WRONG: not all was found, or another answer'}"
    )
    return is_right and ratio <= given.most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=float, default=0.1, help="the ratio that is allowed")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        answer(given)
        return
    results = [measure(model, given) for model in given.models]
    raise SystemExit(not all(results))


if __name__ == "__main__":
    main()
