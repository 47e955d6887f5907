"""ChoiceOutput: text that is whole, stops, logprobs, and pieces that add up to the text."""

from __future__ import annotations

import pytest

from edgeserve.cache.block_tables import BlockTables
from edgeserve.engine.output import ChoiceOutput, logprobs_at
from edgeserve.engine.sequence import Sequence
from edgeserve.runner.batch import TokenResult
from edgeserve.text.tokenizer import Tokenizer
from edgeserve.types import SamplingDefaults, SamplingParams, TokenChunk

from .engine_harness import ids_of, tiny_tokenizer

EOS = 2
REPLACEMENT = "�"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tiny_tokenizer()


def choice(tokenizer: Tokenizer, *, max_tokens: int = 100, **fields: object) -> ChoiceOutput:
    params = SamplingParams(**fields)  # type: ignore[arg-type]
    sequence = Sequence(
        request_id="r",
        index=0,
        token_ids=[5],
        params=params,
        sampling=params.resolved(SamplingDefaults()),
        seed=0,
        max_tokens=max_tokens,
        stop_ids=tokenizer.stop_ids | set(params.stop_token_ids),
        block_tables=BlockTables.empty(0),
    )
    return ChoiceOutput(sequence, tokenizer)


def say(output: ChoiceOutput, ids: list[int]) -> list[TokenChunk]:
    """Feeds tokens until the choice ends."""
    chunks: list[TokenChunk] = []
    for token_id in ids:
        output.sequence.token_ids.append(token_id)
        chunks.append(output.accept(TokenResult(token_id, -0.5, 1, ((token_id, -0.5),))))
        if chunks[-1].finish_reason is not None:
            break
    assert "".join(chunk.text for chunk in chunks) == output.text
    return chunks


def texts(chunks: list[TokenChunk]) -> list[str]:
    return [chunk.text for chunk in chunks]


def test_forced_text_ends_before_its_stop(tokenizer: Tokenizer) -> None:
    output = choice(tokenizer, stop="ta gam")
    chunks = say(output, ids_of(tokenizer, "alpha beta gamma delta"))
    assert output.text == "alpha be"
    completion = output.completion()
    assert (completion.finish_reason, completion.stop_reason) == ("stop", "ta gam")
    assert chunks[-1].finish_reason == "stop"
    assert len(completion.token_ids) == len("alpha beta gam")


def test_stop_that_is_not_completed_is_flushed_at_the_end_of_text(tokenizer: Tokenizer) -> None:
    output = choice(tokenizer, stop=">>>>>>> UPDATED")
    say(output, [*ids_of(tokenizer, "x >>>>>>> UPD"), EOS])
    assert output.text == "x >>>>>>> UPD"
    assert output.completion().stop_reason == EOS


def test_stop_that_is_not_completed_is_flushed_at_the_last_token(tokenizer: Tokenizer) -> None:
    output = choice(tokenizer, stop="abcd", max_tokens=3)
    chunks = say(output, ids_of(tokenizer, "abc"))
    assert texts(chunks) == ["", "", "abc"]
    assert output.completion().finish_reason == "length"
    assert output.completion().stop_reason is None


@pytest.mark.parametrize("stops", [("he", "the"), ("the", "he")])
def test_two_stops_in_one_token(tokenizer: Tokenizer, stops: tuple[str, str]) -> None:
    (the,) = (i for i in range(tokenizer.vocab_size) if tokenizer.token_text(i) == " the")
    output = choice(tokenizer, stop=stops)
    say(output, [*ids_of(tokenizer, "to"), the])
    assert output.text == "to "
    assert output.stop_reason == "the"


def test_emoji_byte_by_byte_is_one_chunk(tokenizer: Tokenizer) -> None:
    output = choice(tokenizer)
    assert texts(say(output, ids_of(tokenizer, "a😀b"))) == ["a", "", "", "", "😀", "b"]


@pytest.mark.parametrize("ended_by", ["token", "length"])
def test_character_that_is_cut_ends_cleanly(tokenizer: Tokenizer, ended_by: str) -> None:
    two_bytes = ids_of(tokenizer, "😀")[:2]
    if ended_by == "token":
        output = choice(tokenizer)
        say(output, [*two_bytes, EOS])
    else:
        output = choice(tokenizer, max_tokens=2)
        say(output, two_bytes)
    assert output.text == REPLACEMENT


def test_stop_that_the_cut_character_completes_ends_by_stop(tokenizer: Tokenizer) -> None:
    output = choice(tokenizer, stop=f"a{REPLACEMENT}", max_tokens=3)
    say(output, [*ids_of(tokenizer, "xa"), ids_of(tokenizer, "😀")[0]])
    assert output.text == "x"
    completion = output.completion()
    assert (completion.finish_reason, completion.stop_reason) == ("stop", f"a{REPLACEMENT}")


def test_stop_token_is_counted_and_not_shown(tokenizer: Tokenizer) -> None:
    output = choice(tokenizer, logprobs=0)
    say(output, [*ids_of(tokenizer, "ab"), EOS])
    completion = output.completion()
    assert completion.text == "ab"
    assert completion.token_ids[-1] == EOS
    assert completion.logprobs is not None
    assert len(completion.logprobs) == 3


@pytest.mark.parametrize(("skip", "text"), [(True, "ab"), (False, "a<|im_start|>b")])
def test_control_tokens_are_shown_when_asked(tokenizer: Tokenizer, skip: bool, text: str) -> None:
    output = choice(tokenizer, skip_special_tokens=skip)
    a, b = ids_of(tokenizer, "ab")
    say(output, [a, 1, b, EOS])
    assert output.text == text


def test_nothing_stops_before_min_tokens(tokenizer: Tokenizer) -> None:
    output = choice(tokenizer, stop="b", min_tokens=3)
    say(output, ids_of(tokenizer, "abcdebf"))
    assert output.text == "abcde"


def test_empty_stops_change_nothing(tokenizer: Tokenizer) -> None:
    output = choice(tokenizer, stop=["", ""])
    assert texts(say(output, [*ids_of(tokenizer, "ab"), EOS])) == ["a", "b", ""]


def test_logprobs_name_the_chosen_token_first(tokenizer: Tokenizer) -> None:
    a, b, c = ids_of(tokenizer, "abc")
    entry = logprobs_at(tokenizer, TokenResult(c, -3.0, 9, ((a, -0.1), (b, -2.0))))
    assert list(entry) == [c, a, b]
    assert [(v.logprob, v.rank, v.decoded_token) for v in entry.values()] == [
        (-3.0, 9, "c"),
        (-0.1, 1, "a"),
        (-2.0, 2, "b"),
    ]
    likeliest = logprobs_at(tokenizer, TokenResult(a, -0.1, 1, ((a, -0.1), (b, -2.0))))
    assert list(likeliest) == [a, b]


def test_cumulative_logprob_is_the_sum_and_absent_unless_asked_for(tokenizer: Tokenizer) -> None:
    asked, not_asked = choice(tokenizer, logprobs=1), choice(tokenizer)
    for output in (asked, not_asked):
        say(output, ids_of(tokenizer, "abcd"))
    assert asked.completion().cumulative_logprob == -2.0
    assert not_asked.completion().cumulative_logprob is None
    assert not_asked.completion().logprobs is None
