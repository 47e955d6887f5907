"""lm-evaluation-harness over `local-completions`, and the same questions by the Python API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from client_programs import ClientError, Place, Server, output_of

from edgeserve import LLM, SamplingParams

_TASK = "edgeserve_facts"
_QUESTIONS = (
    ("The capital of France is", ("Paris", "Berlin", "Madrid"), 0),
    ("Two plus two is", ("five", "four", "nine"), 1),
    ("The opposite of hot is", ("warm", "red", "cold"), 2),
    ("Cats like to chase", ("mice", "clouds", "numbers"), 0),
    ("The sun rises in the", ("west", "east", "north"), 1),
    ("Water freezes and becomes", ("ice", "steam", "sand"), 0),
    ("A week has seven", ("hours", "years", "days"), 2),
    ("Bees make", ("paper", "honey", "glass"), 1),
)
_EVALUATION = """\
task: {task}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: acc}}]
"""
NUM_QUESTIONS = len(_QUESTIONS)
Scores = Sequence[Sequence[float]]
"""The log-likelihood of each choice of each question."""


def lm_eval(server: Server, place: Place, model: Path) -> str:
    """Raises ClientError unless both ways give the same score, by the same log-likelihoods."""
    accuracy, asked = _by_harness(server, place)
    computed = _by_python(model)
    if asked != computed:
        raise ClientError(f"log-likelihoods differ from the Python API's: {asked} {computed}")
    right = sum(
        scores.index(max(scores)) == answer
        for scores, (_, _, answer) in zip(computed, _QUESTIONS, strict=True)
    )
    if accuracy != right / NUM_QUESTIONS:
        raise ClientError(f"acc {accuracy}, and {right / NUM_QUESTIONS} by the Python API")
    return f"acc {accuracy} and {sum(map(len, asked))} log-likelihoods, the Python API's"


def _by_harness(server: Server, place: Place) -> tuple[float, Scores]:
    data = place.work / "facts.jsonl"
    entries = [dict(zip(("question", "choices", "answer"), q, strict=True)) for q in _QUESTIONS]
    data.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    (place.work / "facts.yaml").write_text(_EVALUATION.format(task=_TASK, data=data))
    model = f"model={server.model},base_url={server.url}/completions,num_concurrent=1"
    command = ["lm_eval", "run", "--model=local-completions", f"--model_args={model}"]
    command += [f"--tasks={_TASK}", f"--include_path={place.work}", "--log_samples"]
    program = place.prefix / "bin" / command[0]
    output_of([program, *command[1:], f"--output_path={place.work}"], place)
    (results,) = place.work.rglob("results_*.json")
    (samples,) = place.work.rglob("samples_*.jsonl")
    found = [json.loads(line) for line in samples.read_text().splitlines()]
    found.sort(key=lambda sample: sample["doc_id"])
    scores = [[float(resp[0][0]) for resp in sample["resps"]] for sample in found]
    return json.loads(results.read_text())["results"][_TASK]["acc,none"], scores


def _by_python(model: Path) -> Scores:
    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
    with LLM(str(model), disk_cache=0) as llm:
        return [
            [_log_likelihood(llm, question, choice, params) for choice in choices]
            for question, choices, _ in _QUESTIONS
        ]


def _log_likelihood(llm: LLM, question: str, choice: str, params: SamplingParams) -> float:
    """Of the choice's tokens behind the question's."""
    ids = llm.tokenize(f"{question} {choice}", add_special=False)
    context = len(llm.tokenize(question, add_special=False))
    (output,) = llm.generate([{"prompt_token_ids": ids}], params)
    return sum(
        next(iter(entry.values())).logprob
        for entry in (output.prompt_logprobs or ())[context:]
        if entry is not None
    )
