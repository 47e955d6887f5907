"""The law over tiny models: real keys and values, of each type, with rows that were rejected."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from edgeserve.build import load_model
from edgeserve.config import Config
from edgeserve.engine.engine import Engine
from edgeserve.engine.speculation.speculator import FixedLength, Speculator
from edgeserve.engine_options import EngineOptions
from edgeserve.types import RequestOutput

from .engine_harness import Harness, poison_reused_blocks
from .test_engine_laws import CONTEXT, MODELS, SCHEDULE
from .test_speculation import answers_together, knowing
from .tiny_models import write_tiny_model


def opened(path: Path, kv_cache_dtype: str, **options: object) -> Engine:
    folder = path.parent
    return load_model(
        str(path),
        EngineOptions(kv_cache_dtype=kv_cache_dtype, num_threads=1, **options),  # type: ignore[arg-type]
        config=Config(folder, folder),
        clock=time.monotonic,
    ).engine


def alone(path: Path, kv_cache_dtype: str) -> list[RequestOutput]:
    engine = opened(path, kv_cache_dtype, prefix_caching=False, speculation="off")
    found: list[RequestOutput] = []
    for ask in SCHEDULE:
        found += answers_together(engine, [ask])
    engine.close()
    return [replace(output, request_id="") for output in found]


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("kv_cache_dtype", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("batched", [7, 512])
def test_model_answers_the_same_with_drafts(
    tmp_path: Path, family: str, kv_cache_dtype: str, batched: int
) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", family, context=CONTEXT, **MODELS[family])
    expected = alone(path, kv_cache_dtype)
    engine = opened(path, kv_cache_dtype, max_num_batched_tokens=batched)
    vocab_size = engine._tokenizer.vocab_size  # pyright: ignore[reportPrivateUsage]
    liar = knowing(expected, (None, None, 5, None, None, None, vocab_size))
    engine._speculator = Speculator([liar], FixedLength(5), vocab_size)  # pyright: ignore[reportPrivateUsage]
    poison_reused_blocks(engine)
    bench = Harness(engine)
    assert answers_together(engine, SCHEDULE, bench) == expected
    accepted = sum(output.usage.num_accepted_tokens for output in bench.outputs.values())
    drafted = sum(output.usage.num_draft_tokens for output in bench.outputs.values())
    assert 0 < accepted < drafted
    assert answers_together(engine, SCHEDULE[::-1]) == expected[::-1]
    engine.close()


def test_text_that_repeats_itself_comes_several_tokens_a_step(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", "llama", context=CONTEXT)
    params = replace(SCHEDULE[0].params, max_tokens=40, logit_bias={60: 100.0})
    ask = replace(SCHEDULE[0], params=params)
    answers: list[RequestOutput] = []
    steps: list[int] = []
    for speculation in ("off", "auto"):
        engine = opened(path, "f16", speculation=speculation)
        if engine._speculator is not None:  # pyright: ignore[reportPrivateUsage]
            # Tiny models' steps are all overhead: what they take says nothing of rows.
            engine._speculator._lengths = FixedLength(4)  # pyright: ignore[reportPrivateUsage]
        bench = Harness(engine)
        answers += answers_together(engine, [ask], bench)
        steps.append(bench.num_steps)
        engine.close()
    assert answers[0] == answers[1]
    assert steps[0] >= 40
    assert steps[1] < 15
