"""RecentPrompts: which prompt before was likest, and in what words a miss is explained."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from edgeserve.engine.recent_prompts import Likeness, RecentPrompts, prefix_miss
from edgeserve.types import PrefixMiss, SamplingParams

from .engine_harness import VOCAB_SIZE, Harness, ids_of, make_engine, tiny_tokenizer
from .fake_runner import FakeRunner, hashed_logits

prompts = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=8)


@given(prompts, st.lists(st.integers(0, 2), max_size=12))
def test_likest_is_the_one_with_the_longest_common_beginning(
    earlier: list[list[int]], now: list[int]
) -> None:
    recent = RecentPrompts()
    for n, token_ids in enumerate(earlier):
        recent.remember(str(n), token_ids)

    def alike(token_ids: Sequence[int]) -> int:
        pairs = zip(token_ids, now, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(token_ids), len(now)))

    found = recent.likest(now)
    if not earlier:
        assert found is None
        return
    best = max(reversed(earlier), key=alike)  # of equals the latest
    end = alike(best) + 8
    assert found == Likeness(
        alike(best), tuple(best[alike(best) : end]), tuple(now[alike(best) : end])
    )


def test_a_changed_line_is_told_from_another_conversation() -> None:
    recent = RecentPrompts()
    recent.remember("a", [1, 2, 3, *range(10, 210)])
    changed = recent.likest([1, 2, 4, 5, *range(10, 500)])
    assert changed is not None
    assert (changed.num_alike, changed.num_after) == (2, 201)
    another = recent.likest([1, 2, 4, 5, *range(500, 900)])
    assert another is not None
    assert (another.num_alike, another.num_after) == (2, 0)


def test_oldest_are_forgotten_and_a_request_is_remembered_once() -> None:
    recent = RecentPrompts()
    recent.remember("a", [1, 2])
    recent.remember("a", [1, 2, 3])
    likest = recent.likest([1, 2, 4])
    assert likest == Likeness(2, (3,), (4,))
    for n in range(64):
        recent.remember(str(n), [9])
    assert recent.likest([1, 2, 4]) == Likeness(0, (9,), (1, 2, 4))
    recent.remember("long", [5] * (1 << 20))
    assert recent.likest([9]) == Likeness(0, (5,) * 8, (9,))


def miss(likeness: Likeness | None, num_prompt: int, num_cached: int) -> PrefixMiss | None:
    return prefix_miss(
        likeness, num_prompt=num_prompt, num_cached=num_cached, block_size=16, text_of=str
    )


def test_reasons() -> None:
    assert miss(None, 40, 0) is None
    assert miss(Likeness(0, (7,), (8,)), 40, 0) is None  # another text altogether
    assert miss(Likeness(40, (7,), ()), 40, 32) is None  # the last token is always computed
    assert miss(Likeness(20, (), (7,)), 40, 16) is None  # a chat's next turn
    assert miss(Likeness(40, (), ()), 40, 16) == PrefixMiss("evicted", 16, num_lost=16)
    diverged = PrefixMiss("diverged", 20, "(7,)", "(8,)", num_lost=20)
    assert miss(Likeness(20, (7,), (8,), 90), 40, 16) == diverged
    short = PrefixMiss("diverged", 20, "(7,)", "(8,)", num_lost=3)
    assert miss(Likeness(20, (7,), (8,), 3), 40, 16) == short
    assert miss(Likeness(20, (7,), (8,), 90), 400, 384) is None  # found on disk, of another
    assert miss(Likeness(35, (7,), (8,), 9), 40, 16) == PrefixMiss("evicted", 16, num_lost=16)


def test_a_header_that_changed_is_named_with_both_texts() -> None:
    tokenizer = tiny_tokenizer()
    bench = Harness(
        make_engine(FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=64), tokenizer=tokenizer)
    )
    params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
    for name, minute in [("first", "1"), ("again", "1"), ("later", "2")]:
        bench.add(
            name, ids_of(tokenizer, f"You are helpful. It is 10:4{minute} now, and so on."), params
        )
        bench.run()
    assert bench.outputs["first"].prefix_miss is None
    assert bench.outputs["again"].prefix_miss is None
    assert bench.outputs["later"].num_cached_tokens == 16
    found = bench.outputs["later"].prefix_miss
    assert found == PrefixMiss("diverged", 27, "1 now, a", "2 now, a")
    assert "token 27 differs: '2 now, a'" in str(found)


def test_what_the_cache_let_go_is_said_to_be_gone() -> None:
    bench = Harness(make_engine(FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=8)))
    params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
    for name, token in [("a", 5), ("b", 6), ("c", 7), ("a again", 5)]:
        bench.add(name, [token] * 60, params)
        bench.run()
    # The end of a prompt goes before its beginning.
    assert bench.outputs["a again"].num_cached_tokens == 16
    assert bench.outputs["a again"].prefix_miss == PrefixMiss("evicted", 16, num_lost=32)
    assert "no longer in the cache" in str(bench.outputs["a again"].prefix_miss)
