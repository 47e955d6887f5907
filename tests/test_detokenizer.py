"""Streamed text is the whole text, however the tokens come."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.text.detokenizer import IncrementalDetokenizer
from edgeserve.text.tokenizer import Tokenizer, build_tokenizer
from edgeserve.types import Metadata

from .tiny_vocabularies import Vocabulary, byte_level_vocabulary, sentencepiece_vocabulary


def _build(vocabulary: Vocabulary) -> Tokenizer:
    return build_tokenizer(
        Metadata(
            {
                "tokenizer.ggml.model": vocabulary.model,
                "tokenizer.ggml.pre": "gpt-2",
                "tokenizer.ggml.tokens": tuple(vocabulary.tokens),
                "tokenizer.ggml.token_type": tuple(vocabulary.types),
                "tokenizer.ggml.merges": vocabulary.merges,
                "tokenizer.ggml.scores": vocabulary.scores or (0.0,) * len(vocabulary.tokens),
            }
        )
    )


BYTE_LEVEL = _build(byte_level_vocabulary(300))
SENTENCEPIECE = _build(sentencepiece_vocabulary(320))
TOKENIZERS = {"byte level": BYTE_LEVEL, "sentencepiece": SENTENCEPIECE}

# Ids of the tokens that stand for one byte each.
_FIRST_BYTE_ID = {"byte level": 3, "sentencepiece": 6}


def _byte_ids(name: str, data: bytes) -> list[int]:
    return [_FIRST_BYTE_ID[name] + byte for byte in data]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_character_comes_whole_with_its_last_byte(name: str) -> None:
    detokenizer = IncrementalDetokenizer(TOKENIZERS[name])
    pieces = [detokenizer.feed([i]) for i in _byte_ids(name, "😀".encode())]
    assert pieces == ["", "", "", "😀"]
    assert detokenizer.finish() == ""


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_character_cut_short_ends_as_one_replacement(name: str) -> None:
    detokenizer = IncrementalDetokenizer(TOKENIZERS[name])
    assert detokenizer.feed(_byte_ids(name, b"a\xf0\x9f")) == "a"
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""


@pytest.mark.parametrize("name", TOKENIZERS)
def test_invalid_bytes_are_replaced_as_soon_as_they_are_known(name: str) -> None:
    detokenizer = IncrementalDetokenizer(TOKENIZERS[name])
    assert detokenizer.feed(_byte_ids(name, b"\xf0\x9f")) == ""
    assert detokenizer.feed(_byte_ids(name, b"b\xff")) == "\ufffdb\ufffd"


def test_a_leading_space_stays_since_the_text_goes_on() -> None:
    detokenizer = IncrementalDetokenizer(SENTENCEPIECE)
    ids = SENTENCEPIECE.encode("the in", add_special=False)
    assert [detokenizer.feed([i]) for i in ids] == [" the", " ", "in"]


def test_control_tokens_are_left_out_unless_asked_for() -> None:
    assert IncrementalDetokenizer(BYTE_LEVEL).feed([1, 2]) == ""
    shown = IncrementalDetokenizer(BYTE_LEVEL, skip_special=False)
    assert shown.feed([1, 2]) == "<|im_start|><|im_end|>"


@settings(deadline=None)
@given(st.sampled_from(sorted(TOKENIZERS)), st.booleans(), st.data())
def test_pieces_together_are_the_whole_for_any_split(
    name: str, skip_special: bool, data: st.DataObject
) -> None:
    tokenizer = TOKENIZERS[name]
    text = data.draw(st.text())
    ids = tokenizer.encode(text.encode(errors="ignore").decode(), parse_special=True)
    ids += data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)))))
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special)
    pieces = [
        detokenizer.feed(ids[start:end])
        for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True)
    ]
    pieces.append(detokenizer.finish())
    assert "".join(pieces) == tokenizer.decode_continuation(ids, skip_special=skip_special)
