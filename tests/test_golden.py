"""The twenty golden prompts on both real models. Under `ref`, which is slow, a few of them here;
all of them by tests/golden.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeserve.binding.executor import kernel_sets

from . import golden

FOLDER = Path(__file__).parent / "data" / "golden"
SETS = [name for name, runs in kernel_sets() if runs]
SLOW = {"ref": 2}


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_answers_are_the_golden_ones(
    request: pytest.FixtureRequest, name: str, kernels: str
) -> None:
    path = request.getfixturevalue(f"{name}_path")
    count = SLOW.get(kernels, len(golden.PROMPTS))
    found = golden.answers(path, golden.PROMPTS[:count], kernels=kernels)
    expected = golden.read(FOLDER / f"{name}.json")
    assert found == {mode: answers[:count] for mode, answers in expected.items()}
