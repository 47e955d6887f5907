"""Golden answers: what the native core said to twenty prompts, which no kernel set may change.

    python -m tests.golden check smollm2.gguf tests/data/golden/smollm2.json [--kernels ref]
    python -m tests.golden write smollm2.gguf tests/data/golden/smollm2.json

Under emulated 64-bit ARM (about a minute a model for one prompt):

    python -m tests.arm_python -m tests.golden check smollm2.gguf \\
        tests/data/golden/smollm2.json --kernels neon --prompts 1

Written anew only with a decision record that says why.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgeserve import LLM, SamplingParams
from edgeserve.config import Config

NUM_TOKENS = 16
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n",
    "1, 2, 3, 5, 8,",
    "Dear Sir or Madam,\n\nI am writing to",
    "Water boils at",
    "The three laws of motion state that",
    "SELECT name, COUNT(*) FROM",
    "La plume de ma tante",
    "Äpfel und Birnen: zwei Früchte, die",
    "The quick brown fox",
    "<html>\n<body>\n",
    "Q: What is seven times eight?\nA:",
    "It was the best of times, it was",
    "    if (error != NULL) {\n",
    "Recipe for bread. Ingredients: flour,",
    "こんにちは、",
    "The 😊 emoji means",
    '{"name": "Ada", "age":',
    "In 1969, the first",
)


def answers(
    path: Path, prompts: Sequence[str], *, kernels: str | None = None, num_threads: int = 2
) -> dict[str, list[list[int]]]:
    """Token ids of greedy and of seeded answers, one list per prompt."""
    config = replace(Config.from_environment(), kernels=kernels, disk_cache=0)
    with LLM(str(path), config=config, max_model_len=256, num_threads=num_threads) as llm:
        found: dict[str, list[list[int]]] = {}
        for name, temperature in (("greedy", 0.0), ("seeded", 1.0)):
            params = SamplingParams(
                temperature=temperature,
                top_p=1.0,
                min_p=0.0,
                top_k=0,
                seed=7,
                max_tokens=NUM_TOKENS,
                ignore_eos=True,
            )
            outputs = llm.generate(list(prompts), params, progress=False)
            found[name] = [list(output.outputs[0].token_ids) for output in outputs]
    return found


def read(path: Path) -> dict[str, list[list[int]]]:
    return json.loads(path.read_text())["answers"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("check", "write"))
    parser.add_argument("model", type=Path)
    parser.add_argument("golden", type=Path)
    parser.add_argument("--kernels")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="check the first so many")
    given = parser.parse_args()
    if given.action == "write":
        found = answers(given.model, PROMPTS, kernels=given.kernels)
        given.golden.write_text(json.dumps({"prompts": PROMPTS, "answers": found}) + "\n")
        return
    found = answers(given.model, PROMPTS[: given.prompts], kernels=given.kernels)
    expected = {mode: all_of[: given.prompts] for mode, all_of in read(given.golden).items()}
    pairs = [pair for mode in expected for pair in zip(expected[mode], found[mode], strict=True)]
    wrong = sum(stored != now for stored, now in pairs)
    print(
        f"{given.golden.name}, kernels {given.kernels or 'best'}: "
        f"{wrong} of {len(pairs)} answers differ"
    )
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
