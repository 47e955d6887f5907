"""What models answer, to the bit, as JSON: the same program runs here and on another processor.

python -m tests.arm_answers MODEL... > answers.json
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace

from edgeserve import LLM, SamplingParams
from edgeserve.binding.executor import kernel_sets
from edgeserve.config import Config
from edgeserve.errors import LibraryError

NUM_TOKENS = 24
# The second is longer than one of attention's chunks, and longer than any tiny model's window.
PROMPTS = ("Once upon a time", "It was the best of times, it was the worst of times, " * 4)
_SEEDED = SamplingParams(
    temperature=1.0,
    top_p=1.0,
    min_p=0.0,
    top_k=0,
    seed=7,
    max_tokens=NUM_TOKENS,
    ignore_eos=True,
    logprobs=4,
)
PARAMS = {"greedy": replace(_SEEDED, temperature=0.0), "seeded": _SEEDED}

Answers = dict[str, list[list[list[list[int | str]]]]]
"""By mode: prompt, position, [token id, its logprob's bits], the chosen token first."""


def answers(path: str, config: Config) -> Answers:
    """All prompts in one batch, greedily and with a seed."""
    with LLM(path, config=config, max_model_len=320, num_threads=2) as llm:
        return {
            mode: [
                [
                    [[token_id, at.logprob.hex()] for token_id, at in position.items()]
                    for position in output.outputs[0].logprobs or ()
                ]
                for output in llm.generate(list(PROMPTS), params, progress=False)
            ]
            for mode, params in PARAMS.items()
        }


def refusal(path: str, config: Config) -> str | None:
    """What is said of a kernel set that does not run here; None where it does."""
    try:
        LLM(path, config=config, max_model_len=320, num_threads=2).close()
    except LibraryError as error:
        return str(error)
    return None


def main(paths: Sequence[str]) -> None:
    config = replace(Config.from_environment(), disk_cache=0)
    found = {
        "machine": platform.machine(),
        "refusals": {
            name: refusal(paths[0], replace(config, kernels=name)) for name, _ in kernel_sets()
        },
        "answers": [answers(path, config) for path in paths],
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
