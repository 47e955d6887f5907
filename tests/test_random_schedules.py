"""The law over random schedules: whatever happens around a request, its answer is its own.

Compared with ==, over tiny and real models, with every option of the engine drawn at random, until
each kind of event that could spoil an answer has occurred. EDGESERVE_SCHEDULES raises how many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from edgeserve.cache import prefix_index
from edgeserve.cache.kv_cache import KVCache
from edgeserve.engine import questions
from edgeserve.types import SamplingParams

from .random_schedules import (
    POOL_BLOCKS,
    Ask,
    Machine,
    Workshop,
    random_ask,
    random_machine,
    smallest_failure,
)
from .tiny_models import write_tiny_model

CONTEXT = 96
NUM_SCHEDULES = int(os.environ.get("EDGESERVE_SCHEDULES", "300"))
FAMILIES: dict[str, dict[str, int]] = {
    "llama": {},
    "qwen3": {"layers": 1},
    # Windows of 24 with prompts past them, and every sixth layer full.
    "gemma3": {"layers": 6},
}
TEXTS = (range(100, 160), [*range(100, 132), *range(3, 31)], range(200, 140, -1), [77] * 60)
ALWAYS = {"preemptions", "hit", "restored", "forked", "copied", "evicted", "cancelled"}
ALWAYS |= {"constrained"}
DRAFTS = {"rejected drafts", "rejected inside a block", "accepted tokens"}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def workshop(family: str, tmp_path: Path) -> Iterator[Workshop]:
    path = write_tiny_model(
        tmp_path / f"{family}.gguf", family, context=CONTEXT, **FAMILIES[family]
    )
    shop = Workshop(path, tmp_path, CONTEXT)
    yield shop
    shop.close()


def search(shop: Workshop, count: int, *, blocks: Sequence[int], seeds: str = "") -> None:
    """Runs so many schedules. Fails with what is needed of the first that changes an answer."""
    for n in range(count):
        random = Random(f"{seeds}{n}")
        machine = random_machine(random, blocks, ("f16", "f16", "q8_0", "q4_0"))
        schedule = [random_ask(random, TEXTS, 60, 30) for _ in range(random.randint(1, 6))]
        try:
            shop.check(schedule, machine)
        except AssertionError as error:
            needed = smallest_failure(lambda asks, m=machine: shop.check(asks, m), schedule)
            raise AssertionError(f"schedule {n}: {machine}\n{needed}") from error


def test_tiny_models_answer_the_same_under_any_schedule(workshop: Workshop, family: str) -> None:
    search(
        workshop, -(-NUM_SCHEDULES // len(FAMILIES)), blocks=(7, 7, 12, POOL_BLOCKS), seeds=family
    )
    expected = ALWAYS | DRAFTS | ({"behind"} if family == "gemma3" else set())
    missing = {name for name in expected if workshop.counts[name] == 0}
    assert missing == set(), f"never happened: {missing}; this proves nothing about it"


# --- real models ---------------------------------------------------------------------------------

REAL_CONTEXT = 768
REAL_TEXTS = (range(1000, 1100), [*range(1000, 1040), *range(5000, 5060)], [7, 8, 9, 10] * 25)


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models_answer_the_same_under_any_schedule(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    shop = Workshop(request.getfixturevalue(f"{name}_path"), tmp_path, REAL_CONTEXT)
    for n in range(5):
        random = Random(f"{name}{n}")
        machine = random_machine(random, (12, POOL_BLOCKS), ("f16", "q8_0"))
        machine = replace(machine, num_threads=2, batched=max(machine.batched, 7))
        schedule = [random_ask(random, REAL_TEXTS, 100, 16) for _ in range(3)]
        shop.check(schedule, machine)
    assert min(shop.counts[name] for name in ("hit", *DRAFTS)) > 0
    shop.close()


def test_chat_that_branches_at_an_early_turn_past_the_window_answers_the_same(
    gemma3_path: Path, tmp_path: Path
) -> None:
    shop = Workshop(gemma3_path, tmp_path, REAL_CONTEXT)
    params = SamplingParams(temperature=1.0, max_tokens=6, ignore_eos=True, logprobs=1)
    first, later = tuple(range(1000, 1560)), tuple(range(3000, 3080))
    turns = [first, (*first, *later), (*first, *later, 50, 51), (*first[:300], 60, 61), first]
    schedule = [Ask(prompt, params, seed=3, pause=40) for prompt in turns]
    shop.check(schedule, Machine(num_threads=2, prefix_caching=True, draft_length=3, lies=3))
    assert min(shop.counts[name] for name in ("hit", "behind", *DRAFTS)) > 0
    shop.close()


# --- that a break of the law is seen -------------------------------------------------------------


def shared_blocks_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVCache, "_must_copy", lambda *_: False)


def windows_end_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = KVCache._num_behind  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(KVCache, "_num_behind", lambda s, g, p: behind(s, g, p + 16 if p else p))


def drafts_are_verified_as_if_nothing_had_been_said(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = questions.choose
    monkeypatch.setattr(questions, "choose", lambda sequence, _, mask: choose(sequence, (), mask))


def prefixes_of_other_tokens_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: object, hashes: list[bytes], token_ids: list[int]) -> None:
        size = self._block_size  # type: ignore[attr-defined]
        while len(hashes) * size <= len(token_ids):
            hashes.append(hashes[0] + bytes([len(hashes)]))

    monkeypatch.setattr(prefix_index.PrefixIndex, "extend", careless)
    monkeypatch.setattr(prefix_index.PrefixIndex, "_tokens", lambda *_: ())


BREAKS = [
    shared_blocks_are_written,
    windows_end_too_soon,
    drafts_are_verified_as_if_nothing_had_been_said,
    prefixes_of_other_tokens_are_found,
]


@pytest.mark.parametrize("family", ["gemma3"], indirect=True)
@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_engine_is_found_out(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, broken: Callable[..., None]
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        search(workshop, 100, blocks=(7, 12, POOL_BLOCKS))
