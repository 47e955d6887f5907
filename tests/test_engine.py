"""Engine: one request among others, whatever breaks. Over a runner that computes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from edgeserve.cache.kv_cache import Growth
from edgeserve.engine.live_request import Request
from edgeserve.errors import (
    ContextLengthError,
    InvalidRequestError,
    LibraryError,
    NonFiniteLogitsError,
    NothingAllowedError,
    OutOfBlocksError,
    OutOfMemoryError,
    StepError,
)
from edgeserve.runner.batch import Batch, ChooseToken, ScoreToken, TokenResult
from edgeserve.types import SamplingParams

from .engine_harness import VOCAB_SIZE, Harness, ids_of, make_engine, tiny_tokenizer
from .fake_runner import FakeRunner, History, hashed_logits, scripted_logits

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
PROMPTS = {"a": [5, 6, 7], "b": [8, 9], "c": [10] * 20}


def fake(num_blocks: int = 64, num_groups: int = 2) -> FakeRunner:
    return FakeRunner(hashed_logits(VOCAB_SIZE), num_blocks=num_blocks, num_groups=num_groups)


def harness(runner: FakeRunner | None = None, **limits: int) -> Harness:
    return Harness(make_engine(runner or fake(), **limits))


def alone(prompt: list[int], params: SamplingParams = GREEDY, seed: int = 0) -> object:
    bench = harness()
    bench.add("r", prompt, params, seed)
    bench.run()
    return bench.answer("r").outputs


def scripted(text: str, prompt: list[int], **fields: object) -> Harness:
    """An engine that says `text` after `prompt`, a byte a token, and then end of text."""
    tokenizer = tiny_tokenizer()
    script = [*ids_of(tokenizer, text), tokenizer.eos_id or 0]
    runner = FakeRunner(scripted_logits(VOCAB_SIZE, len(prompt), script), num_blocks=64)
    bench = Harness(make_engine(runner, tokenizer=tokenizer))
    bench.add("r", prompt, SamplingParams(temperature=0.0, **fields))  # type: ignore[arg-type]
    bench.run()
    return bench


# --- what is allowed -----------------------------------------------------------------------------


@pytest.mark.parametrize(("token_id", "index"), [(VOCAB_SIZE, 1), (-1, 1), (2**40, 1)])
def test_prompt_token_outside_the_vocabulary_is_refused_with_its_index(
    token_id: int, index: int
) -> None:
    bench = harness()
    with pytest.raises(InvalidRequestError) as caught:
        bench.add("r", [3, token_id])
    assert caught.value.parameter == f"prompt_token_ids[{index}]"
    assert not bench.engine.has_work


def test_empty_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"prompt = .*at least one token"):
        harness().add("r", [])


def test_stop_token_outside_the_vocabulary_is_refused_before_it_breaks_a_step() -> None:
    bench = harness()
    with pytest.raises(InvalidRequestError) as caught:
        bench.add("r", [3], SamplingParams(stop_token_ids=[1, VOCAB_SIZE], min_tokens=2))
    assert caught.value.parameter == "stop_token_ids[1]"


def test_biased_token_outside_the_vocabulary_is_refused_by_key() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        harness().add("r", [3], SamplingParams(logit_bias={999999: -100}))
    assert caught.value.parameter == "logit_bias[999999]"


def test_two_live_requests_cannot_have_one_name() -> None:
    bench = harness()
    bench.add("r", [3], GREEDY)
    with pytest.raises(InvalidRequestError, match="request_id"):
        bench.add("r", [4], GREEDY)
    bench.run()
    assert bench.answer("r").outputs == alone([3])


@pytest.mark.parametrize("num_tokens", [32, 33, 1000])
def test_prompt_that_leaves_no_room_is_refused_with_both_numbers(num_tokens: int) -> None:
    bench = harness(max_model_len=32)
    with pytest.raises(ContextLengthError) as caught:
        bench.add("r", [3] * num_tokens)
    assert (caught.value.num_prompt_tokens, caught.value.max_model_len) == (num_tokens, 32)
    text = f"maximum context length is 32 tokens. However, your messages resulted in {num_tokens} "
    assert text in str(caught.value)


@pytest.mark.parametrize("max_tokens", [10, 10**9, 2**63, None])
def test_prompt_one_short_of_the_context_gives_one_token(max_tokens: int | None) -> None:
    bench = harness(max_model_len=32)
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    bench.add("r", [3] * 31, params)
    bench.run()
    (choice,) = bench.answer("r").outputs
    assert len(choice.token_ids) == 1
    assert choice.finish_reason == "length"


def test_without_max_tokens_it_runs_to_the_end_of_the_context() -> None:
    bench = harness(max_model_len=40)
    bench.add("r", [3] * 7, SamplingParams(temperature=0, ignore_eos=True))
    bench.run()
    assert bench.answer("r").usage.completion_tokens == 33


def test_request_that_no_pool_could_hold_is_refused_and_others_go_on() -> None:
    bench = harness(fake(num_blocks=2))
    bench.add("a", PROMPTS["a"], GREEDY)
    with pytest.raises(OutOfBlocksError):
        bench.add("b", [3] * 20, SamplingParams(max_tokens=20, n=2))
    bench.engine.check()
    bench.run()
    assert list(bench.outputs) == ["a"]


# --- stops ---------------------------------------------------------------------------------------


def test_stop_string_across_tokens_ends_the_text_before_it_streamed_or_not() -> None:
    bench = scripted("alpha beta gamma delta", [9, 9], stop="ta gam")
    assert bench.answer("r").text == "alpha be"
    assert bench.streamed_text("r") == "alpha be"
    assert bench.chunks["r"][-1].finish_reason == "stop"


def test_empty_stop_does_not_stop() -> None:
    assert scripted("alpha", [9], stop="").answer("r").text == "alpha"
    assert scripted("alpha", [9], stop=["", ""]).answer("r").text == "alpha"


def test_end_of_text_ends_it_unless_ignored() -> None:
    assert scripted("ab", [9]).answer("r").outputs[0].finish_reason == "stop"
    bench = scripted("ab", [9], ignore_eos=True, max_tokens=5)
    (choice,) = bench.answer("r").outputs
    assert (choice.text, choice.finish_reason) == ("ab", "length")
    assert choice.token_ids[2:] == (2, 2, 2)


def test_stop_token_ends_it_and_is_named() -> None:
    (b,) = ids_of(tiny_tokenizer(), "b")
    for ignore_eos in (True, False):
        bench = scripted("abc", [9], stop_token_ids=[b], ignore_eos=ignore_eos)
        (choice,) = bench.answer("r").outputs
        assert (choice.text, choice.finish_reason, choice.stop_reason) == ("a", "stop", b)


def test_min_tokens_puts_the_end_off() -> None:
    bench = scripted("", [9], min_tokens=4)
    (choice,) = bench.answer("r").outputs
    assert choice.finish_reason == "stop"
    assert len(choice.token_ids) == 5
    assert 2 not in choice.token_ids[:4]


def test_emoji_a_byte_a_token_comes_in_one_piece() -> None:
    bench = scripted("😀", [9])
    assert [chunk.text for chunk in bench.chunks["r"] if chunk.text] == ["😀"]


def test_each_choice_ends_with_its_own_reason_and_seed() -> None:
    bench = harness()
    prompt = [4, 5]
    first = bench.engine.defaults  # temperature 0.8: choices differ
    assert first.temperature > 0
    probe = SamplingParams(n=4, max_tokens=12, ignore_eos=True)
    bench.add("probe", prompt, probe, seed=11)
    bench.run()
    words = [choice.text for choice in bench.answer("probe").outputs]
    assert len(set(words)) == 4
    stop = words[2][1:3]
    bench.add("r", prompt, SamplingParams(n=4, max_tokens=12, ignore_eos=True, stop=stop), seed=11)
    bench.run()
    answer = bench.answer("r")
    assert [choice.index for choice in answer.outputs] == [0, 1, 2, 3]
    assert answer.outputs[2].finish_reason == "stop"
    assert {choice.finish_reason for choice in answer.outputs} == {"stop", "length"}
    for choice in answer.outputs:
        assert bench.streamed_text("r", choice.index) == choice.text
        lone = SamplingParams(max_tokens=12, ignore_eos=True, stop=stop)
        (same,) = alone(prompt, lone, choice.seed)  # type: ignore[misc]
        assert (same.text, same.token_ids) == (choice.text, choice.token_ids)


# --- going away ----------------------------------------------------------------------------------


def test_abort_frees_blocks_at_once_in_every_state() -> None:
    bench = harness(max_num_batched_tokens=4, max_num_seqs=3)
    bench.add("decoding", [3, 4], GREEDY)
    bench.step()
    bench.add("prefilling", [5] * 30, SamplingParams(n=2, max_tokens=3))
    bench.add("queued", [6], GREEDY)
    bench.step()
    for name in ("queued", "prefilling", "decoding"):
        bench.engine.abort(name)
        bench.engine.check()
        bench.engine.abort(name)  # once more is no error
        assert not bench.engine.is_live(name)
    assert not bench.engine.has_work
    assert bench.step() == []


def test_abort_changes_nothing_for_others() -> None:
    bench = harness(max_num_batched_tokens=8)
    for name, prompt in PROMPTS.items():
        bench.add(name, prompt, GREEDY)
    bench.step()
    bench.step()
    bench.engine.abort("b")
    bench.run()
    assert set(bench.outputs) == {"a", "c"}
    for name in bench.outputs:
        assert bench.answer(name).outputs == alone(PROMPTS[name])


def test_close_drops_everything_and_closes_the_runner() -> None:
    runner = fake()
    bench = harness(runner)
    bench.add("a", PROMPTS["a"], GREEDY)
    bench.step()
    bench.engine.close()
    bench.engine.check()
    assert (bench.engine.has_work, runner.closed) == (False, 1)


# --- failures ------------------------------------------------------------------------------------


def raising(error: BaseException, at_step: int) -> Callable[..., None]:
    steps = iter(range(10**6))

    def hook(*_: object) -> None:
        if next(steps) == at_step:
            raise error

    return hook


@pytest.mark.parametrize("where", ["on_execute", "on_sample"])
@pytest.mark.parametrize(
    ("error", "kind"), [(RuntimeError("boom"), StepError), (LibraryError("gone"), LibraryError)]
)
def test_failed_step_fails_those_in_it_and_the_engine_goes_on(
    where: str, error: Exception, kind: type[Exception]
) -> None:
    runner = fake()
    setattr(runner, where, raising(error, at_step=2))
    bench = harness(runner, max_num_seqs=2)
    for name, prompt in PROMPTS.items():
        bench.add(name, prompt, GREEDY)
    bench.run()
    assert set(bench.errors) == {"a", "b"}
    assert all(isinstance(found, kind) for found in bench.errors.values())
    assert "boom" in str(bench.errors["a"]) or "gone" in str(bench.errors["a"])
    assert bench.answer("c").outputs == alone(PROMPTS["c"])
    bench.add("again", PROMPTS["a"], GREEDY)
    bench.run()
    assert bench.answer("again").outputs == alone(PROMPTS["a"])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_row_without_meaning_fails_its_request_only(value: float) -> None:
    sound = hashed_logits(VOCAB_SIZE)

    def logits_of(history: History) -> np.ndarray:
        logits = sound(history)
        if history[:2] == (8, 9) and len(history) == 4:
            logits[:] = value
        return logits

    bench = harness(FakeRunner(logits_of, num_blocks=64))
    for name, prompt in PROMPTS.items():
        bench.add(name, prompt, SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, n=2))
    bench.run()
    error = bench.errors["b"]
    assert isinstance(error, NonFiniteLogitsError)
    assert error.position == 3
    for name in ("a", "c"):
        assert bench.answer(name).outputs[0] == alone(PROMPTS[name])[0]  # type: ignore[index]


def test_row_whose_mask_allows_nothing_fails_its_request_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = fake()
    sample = runner.sample

    def masked(rows: Sequence[ChooseToken | ScoreToken]) -> list[TokenResult]:
        """Every token is masked for the request with seed 5, from its third on."""
        nothing = np.zeros((VOCAB_SIZE + 31) // 32, np.uint32)
        return sample(
            [
                replace(row, mask=nothing)
                if isinstance(row, ChooseToken) and row.seed == 5 and row.position >= 4
                else row
                for row in rows
            ]
        )

    monkeypatch.setattr(runner, "sample", masked)
    bench = harness(runner)
    for name, prompt in PROMPTS.items():
        bench.add(name, prompt, GREEDY, seed=5 if name == "b" else 0)
    bench.run()
    error = bench.errors["b"]
    assert isinstance(error, NothingAllowedError)
    assert error.position == 3
    assert sum(len(chunk.token_ids) for chunk in bench.chunks["b"]) == 2
    for name in ("a", "c"):
        assert bench.answer(name).outputs == alone(PROMPTS[name])


def test_only_one_token_possible_is_that_token_and_no_nan() -> None:
    def logits_of(_: History) -> np.ndarray:
        logits = np.full(VOCAB_SIZE, -math.inf)
        logits[77] = 1.0
        return logits

    bench = harness(FakeRunner(logits_of, num_blocks=64))
    bench.add("r", [3], SamplingParams(temperature=5.0, max_tokens=3, logprobs=1))
    bench.run()
    (choice,) = bench.answer("r").outputs
    assert choice.token_ids == (77, 77, 77)
    assert choice.cumulative_logprob == 0.0


def test_token_that_does_not_exist_fails_its_request_only() -> None:
    sound = hashed_logits(VOCAB_SIZE + 8)

    def logits_of(history: History) -> np.ndarray:
        logits = sound(history)
        logits[VOCAB_SIZE:] = 99.0 if history[0] == 8 else -99.0
        return logits

    bench = harness(FakeRunner(logits_of, num_blocks=64))
    for name, prompt in PROMPTS.items():
        bench.add(name, prompt, GREEDY)
    bench.run()
    assert list(bench.errors) == ["b"]
    assert set(bench.outputs) == {"a", "c"}


def test_runner_that_answers_too_few_rows_fails_the_step() -> None:
    runner = fake()
    sample = runner.sample
    runner.sample = lambda rows: sample(rows)[:-1]  # type: ignore[method-assign]
    bench = harness(runner)
    for name, prompt in PROMPTS.items():
        bench.add(name, prompt, GREEDY)
    bench.run()
    assert set(bench.errors) == set(PROMPTS)
    assert "2 rows of 3" in str(bench.errors["a"])


# --- Ctrl-C in a step ----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["on_execute", "on_sample"])
def test_interrupt_in_the_forward_pass_loses_nothing(where: str) -> None:
    runner = fake()
    setattr(runner, where, raising(KeyboardInterrupt(), at_step=1))
    bench = harness(runner, max_num_batched_tokens=8)
    for name, prompt in PROMPTS.items():
        bench.add(name, prompt, GREEDY)
    bench.step()
    with pytest.raises(KeyboardInterrupt):
        bench.step()
    bench.engine.check()
    bench.run()
    for name, prompt in PROMPTS.items():
        assert bench.answer(name).outputs == alone(prompt)


def test_interrupt_while_answers_are_taken_fails_them_and_never_gives_wrong_text() -> None:
    for at in range(12):
        bench = harness()
        tokenizer = bench.engine._tokenizer  # pyright: ignore[reportPrivateUsage]
        sound, calls = tokenizer.token_bytes, iter(range(10**6))

        def token_bytes(token_id: int, sound=sound, calls=calls, at=at) -> bytes:
            if next(calls) == at:
                raise KeyboardInterrupt
            return sound(token_id)

        tokenizer.token_bytes = token_bytes  # type: ignore[method-assign]
        for name, prompt in PROMPTS.items():
            bench.add(name, prompt, GREEDY)
        with pytest.raises(KeyboardInterrupt):
            bench.run()
        bench.engine.check()
        bench.run()
        assert set(bench.outputs) | set(bench.errors) == set(PROMPTS)
        assert bench.errors
        for name in bench.outputs:
            assert bench.answer(name).outputs == alone(PROMPTS[name])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("when", ["before", "after"])
def test_copy_of_a_shared_block_that_is_cut_short_is_made_before_the_block_is_written(
    error: BaseException, when: str
) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=20, ignore_eos=True, n=3)
    whole = alone(PROMPTS["c"], params, 5)
    runner = fake()
    sound, calls = runner.copy_blocks, iter([error])

    def copy_blocks(group: int, pairs: list[tuple[int, int]]) -> None:
        cut_short = next(calls, None)
        if when == "after" or cut_short is None:
            sound(group, pairs)
        if cut_short is not None:
            raise cut_short

    runner.copy_blocks = copy_blocks  # type: ignore[method-assign]
    bench = harness(runner)
    bench.add("c", PROMPTS["c"], params, 5)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            bench.run()
    bench.run()
    if isinstance(error, MemoryError):
        assert isinstance(bench.errors["c"], StepError)
        bench.add("again", PROMPTS["c"], params, 5)
        bench.run()
        assert bench.answer("again").outputs == whole
    else:
        assert bench.answer("c").outputs == whole
    assert bench.engine.cache_counts.copied > 0


def test_interrupt_while_blocks_are_taken_loses_none() -> None:
    prompt = list(range(50, 90))
    bench = harness()
    bench.add("first", prompt, GREEDY)
    bench.run()
    cache = bench.engine._cache  # pyright: ignore[reportPrivateUsage]
    extend = cache.extend

    def interrupted(*_: object) -> bool:
        cache.extend = extend  # type: ignore[method-assign]
        raise KeyboardInterrupt

    cache.extend = interrupted  # type: ignore[method-assign]
    bench.add("second", prompt, GREEDY)
    with pytest.raises(KeyboardInterrupt):
        bench.step()
    bench.engine.check()
    bench.run()
    assert bench.answer("second").outputs == alone(prompt)
    assert bench.outputs["second"].num_cached_tokens == 32


# --- reports -------------------------------------------------------------------------------------


def test_timings_come_from_the_clock_and_usage_from_the_tokens() -> None:
    seconds: Iterator[float] = iter(range(1000))
    runner = fake()
    engine = make_engine(runner, max_num_batched_tokens=2, clock=lambda: next(seconds))
    engine.add_request(Request("r", "text", (3, 4, 5), GREEDY, 0))
    bench = Harness(engine)
    bench.run()
    output = bench.outputs["r"]
    assert (output.prompt, output.prompt_token_ids) == ("text", (3, 4, 5))
    assert (output.usage.prompt_tokens, output.usage.completion_tokens) == (3, 6)
    assert output.timings.queue_ms == 1000.0
    assert output.timings.queue_ms < output.timings.first_token_ms < output.timings.total_ms
    decode_s = (output.timings.total_ms - output.timings.first_token_ms) / 1e3
    assert output.timings.decode_tokens_per_s == 5 / decode_s


def test_batches_stay_within_the_budget_and_are_of_one_shape_of_rows() -> None:
    runner = fake()
    bench = harness(runner, max_num_batched_tokens=7, max_num_seqs=3)
    for name, prompt in PROMPTS.items():
        bench.add(name, prompt, SamplingParams(n=2, max_tokens=4, prompt_logprobs=1))
    bench.run()
    batches: list[Batch] = runner.batches
    assert max(batch.num_rows for batch in batches) == 7
    assert max(batch.num_groups for batch in batches) == 3


def test_prompt_scores_are_one_a_token_after_the_first() -> None:
    bench = harness(max_num_batched_tokens=3)
    prompt = [5, 6, 7, 8, 9, 10, 11]
    bench.add("r", prompt, SamplingParams(prompt_logprobs=2, max_tokens=2, n=2))
    bench.add("one", [5], SamplingParams(prompt_logprobs=2, max_tokens=2))
    bench.run()
    scores = bench.answer("r").prompt_logprobs
    assert scores is not None
    assert scores[0] is None
    assert [next(iter(at)) for at in scores if at is not None] == prompt[1:]
    assert all(len(at) in (2, 3) for at in scores if at is not None)
    assert bench.answer("one").prompt_logprobs == (None,)


def test_prompt_that_is_preempted_while_it_is_scored_gets_each_score_once() -> None:
    prompt, params = list(range(50, 98)), SamplingParams(prompt_logprobs=1, max_tokens=2, seed=1)
    whole = harness()
    whole.add("b", prompt, params)
    whole.run()
    bench = harness(fake(num_blocks=4), max_num_batched_tokens=6)
    bench.add("a", [9] * 14, SamplingParams(max_tokens=10, ignore_eos=True))
    bench.add("b", prompt, params)
    (b,) = bench.engine._live["b"].choices  # pyright: ignore[reportPrivateUsage]
    while b.sequence.num_preemptions == 0:
        bench.step()
    assert 0 < b.sequence.num_scored_tokens < len(prompt) - 1
    bench.run()
    assert bench.answer("b") == whole.answer("b")


def test_decodes_do_not_shorten_the_chunks_of_the_next_prompt() -> None:
    seconds = [0.0]
    runner = fake()

    def takes(batch: Batch) -> None:
        # A pass over the weights, and a little more for each row.
        seconds[0] += 0.05 + 0.002 * batch.num_rows

    runner.on_execute = takes
    bench = Harness(make_engine(runner, clock=lambda: seconds[0]))
    bench.add("first", [5] * 200, SamplingParams(max_tokens=40, ignore_eos=True))
    bench.run()
    runner.batches.clear()
    bench.add("second", [6] * 200, SamplingParams(max_tokens=1))
    bench.run()
    assert runner.batches[0].num_rows >= 100


# --- memory that is not there --------------------------------------------------------------------


def test_request_that_memory_has_no_room_for_fails_and_others_go_on() -> None:
    room = [0]
    growth = Growth(slab_blocks=4, may_grow=lambda _group, num_blocks: num_blocks <= room[0])
    bench = Harness(make_engine(fake(), growth=growth))
    bench.add("long", [5] * 100, GREEDY)
    bench.add("short", PROMPTS["a"], GREEDY)
    bench.run()
    assert isinstance(bench.errors["long"], OutOfMemoryError)
    assert "100 tokens" in str(bench.errors["long"])
    assert bench.answer("short").outputs == alone(PROMPTS["a"])
    room[0] = 100
    bench.add("again", [5] * 100, GREEDY)
    bench.run()
    assert bench.answer("again").outputs == alone([5] * 100)


def test_request_that_outgrows_memory_fails_once_nobody_else_holds_any() -> None:
    growth = Growth(slab_blocks=4, may_grow=lambda _group, _num_blocks: False)
    bench = Harness(make_engine(fake(), growth=growth))
    bench.add("other", [9] * 30, GREEDY)
    bench.add("grows", [5] * 30, SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True))
    bench.run()
    assert isinstance(bench.errors["grows"], OutOfMemoryError)
    assert bench.answer("other").outputs == alone([9] * 30)
