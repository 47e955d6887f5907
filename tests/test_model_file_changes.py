"""What becomes of the model's file while a model runs changes nothing: weights are in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgeserve import LLM, SamplingParams

from .tiny_models import write_tiny_model

PROMPT = "A file that goes away"
LONG = SamplingParams(temperature=1.0, seed=5, max_tokens=60, ignore_eos=True)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(0)


def overwrite(path: Path) -> None:
    """Other bytes in the same file, as a download over it would leave."""
    with path.open("r+b") as file:
        file.write(b"\xa5" * path.stat().st_size)


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("change", [cut, overwrite, remove])
def test_a_changed_file_changes_no_token(
    tmp_path: Path, change: Callable[[Path], None], tied: bool
) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", "llama", context=256, quant="Q8_0", tied=tied)
    with LLM(str(path), device="cpu", num_threads=2) as llm:
        expected = llm.generate(PROMPT, LONG)[0].outputs[0].token_ids
        expected_next = llm.generate("Another prompt", LONG)[0].outputs[0].token_ids
    with LLM(str(path), device="cpu", num_threads=2) as llm:
        with llm.stream({"prompt": PROMPT}, LONG) as stream:
            next(iter(stream))
            change(path)
            for _ in stream:
                pass
        assert stream.output is not None
        assert stream.output.outputs[0].token_ids == expected
        # And what is computed afterwards, from its prompt on.
        assert llm.generate("Another prompt", LONG)[0].outputs[0].token_ids == expected_next
