"""What a constraint costs: a model's masks, the library's start, compiling, and a chat with one.

    python benches/masks.py MODEL [--answers]

Masks are of a schema with names, texts, numbers and a list, along an answer; figures are minima and
means of milliseconds of a mask. With --answers the model answers with and without the schema, the
same number of tokens.
"""

from __future__ import annotations

import argparse
import json
import time

from edgeserve import LLM
from edgeserve.loader.gguf import read_gguf
from edgeserve.text.constraint import CompiledConstraint, ConstraintCompiler
from edgeserve.text.tokenizer import Tokenizer, build_tokenizer
from edgeserve.types import Constraint

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 80},
        "kind": {"enum": ["article", "letter", "report"]},
        "year": {"type": "integer", "minimum": 1000, "maximum": 2999},
        "people": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 5},
    },
    "required": ["title", "kind", "year", "people"],
    "additionalProperties": False,
}
ANSWER = json.dumps(
    {"title": "On the stars over the sea", "kind": "letter", "year": 1843,
     "people": ["Ada Lovelace", "Mary Somerville"]}
)  # fmt: skip
_ROUNDS = 20


def along(compiled: CompiledConstraint, tokenizer: Tokenizer) -> list[float]:
    """Milliseconds of each mask along the answer: of each the least of several rounds."""
    ids = tokenizer.encode_continuation(ANSWER)
    rounds: list[list[float]] = []
    for _ in range(_ROUNDS):
        matcher, times = compiled.matcher(), []
        for token_id in ids:
            began = time.perf_counter()
            matcher.masks(())
            times.append((time.perf_counter() - began) * 1e3)
            matcher.accept(token_id)
        rounds.append(times)
    return [min(each) for each in zip(*rounds, strict=True)]


def compare_answers(path: str) -> None:
    """An answer with the schema and without it, in turns, of the same number of tokens."""
    with LLM(path, speculation="off") as llm:  # or it would copy its answer before
        held = Constraint.json_schema(SCHEMA)
        prompt = "Describe a letter of Ada Lovelace as JSON: title, kind, year, people."
        plain: list[float] = []
        constrained: list[float] = []
        for _ in range(5):
            output = llm.generate(prompt, constraint=held, temperature=0, max_tokens=60)[0]
            constrained.append(output.timings.decode_tokens_per_s)
            num_tokens = output.usage.completion_tokens
            output = llm.generate(prompt, temperature=0, max_tokens=num_tokens, ignore_eos=True)[0]
            plain.append(output.timings.decode_tokens_per_s)
        print(f"tokens a second: {max(constrained):.1f} with the schema, {max(plain):.1f} without")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--answers", action="store_true", help="answer with it, too")
    options = parser.parse_args()
    tokenizer = build_tokenizer(read_gguf(options.model).metadata)
    compiler = ConstraintCompiler(tokenizer)
    began = time.perf_counter()
    compiler.prepare()
    prepared = time.perf_counter()
    compiled = compiler.compile(Constraint.json_schema(SCHEMA))
    ready = time.perf_counter()
    masks = along(compiled, tokenizer)
    print(f"{tokenizer.vocab_size:,} tokens: ready in {prepared - began:.2f} s,", end=" ")
    print(f"a schema in {(ready - prepared) * 1e3:.1f} ms, of {len(masks)} masks the mean", end=" ")
    print(f"{sum(masks) / len(masks):.3f} ms, the least {min(masks):.3f}, most {max(masks):.3f}")
    if options.answers:
        compare_answers(options.model)


if __name__ == "__main__":
    main()
