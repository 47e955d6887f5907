"""The whole package on an emulated 64-bit ARM processor: it answers what it answers here, to the
bit. What it needs is fetched once; without a cross compiler, qemu or network this is skipped."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest

from edgeserve.config import Config

from . import arm_answers
from .arm_python import ArmPython, Unavailable, arm_python
from .tiny_models import write_tiny_model

# One of each: full layers and windows, every kind of activation, scale and offset.
MODELS = (("llama", "Q4_0"), ("gemma3", "Q5_1"), ("qwen3", "Q8_0"), ("qwen2", "BF16"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    return [
        str(write_tiny_model(folder / f"{family}.gguf", family, quant=quant, seed=3))
        for family, quant in MODELS
    ]


@pytest.fixture(scope="module")
def answers_here(models: list[str]) -> list[arm_answers.Answers]:
    config = replace(Config.from_environment(), kernels="ref")
    return [arm_answers.answers(path, config) for path in models]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> ArmPython:
    try:
        return arm_python(tmp_path_factory.mktemp("arm"))
    except Unavailable as error:
        pytest.skip(str(error))


def test_seeded_answers_here_are_all_different(answers_here: list[arm_answers.Answers]) -> None:
    answers = [answer for model in answers_here for answer in model["seeded"]]
    ids = {tuple(position[0][0] for position in answer) for answer in answers}
    assert len(ids) == len(MODELS) * len(arm_answers.PROMPTS)
    assert {len(answer) for answer in ids} == {arm_answers.NUM_TOKENS}


# No kernels asked for: the best that the processor runs, and nothing that it does not.
@pytest.mark.parametrize(
    ("cpu", "kernels", "runs"),
    [
        ("max", "i8mm", {"i8mm", "neon", "ref"}),
        ("cortex-a76", "", {"neon", "ref"}),
        ("cortex-a72", "", {"ref"}),
    ],
)
def test_arm_answers_what_this_machine_answers(
    python: ArmPython,
    models: list[str],
    answers_here: list[arm_answers.Answers],
    cpu: str,
    kernels: str,
    runs: set[str],
) -> None:
    ran = subprocess.run(
        python.command(["-m", "tests.arm_answers", *models], cpu=cpu),
        env=python.environment({"EDGESERVE_KERNELS": kernels}),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout)
    assert found["machine"] == "aarch64"
    refusals = found["refusals"]
    assert {name for name, said in refusals.items() if said is None} == runs
    assert all(f"(kernels: {name})" in said for name, said in refusals.items() if said is not None)
    assert {"i8mm", "neon", "avxvnni", "avx2", "ref"} <= set(refusals)
    assert found["answers"] == answers_here
