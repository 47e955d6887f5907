"""The tests' own models: reproducible, readable, and able to say anything."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from edgeserve.loader.gguf import read_gguf
from edgeserve.loader.tensors import TensorReader
from edgeserve.text.tokenizer import build_tokenizer

from .tiny_models import DEFAULTS, describe, tiny_weights, vocabulary_of, write_tiny_model

TEXTS = ["", " ", "Hello the world of and ing", "é😊\n the", "naïve\t\x00 10^5 ≠ １０", "a <unk> b"]


def test_same_arguments_same_bytes(tmp_path: Path) -> None:
    first = write_tiny_model(tmp_path / "a.gguf", "qwen3", seed=3).read_bytes()
    assert write_tiny_model(tmp_path / "b.gguf", "qwen3", seed=3).read_bytes() == first
    assert write_tiny_model(tmp_path / "c.gguf", "qwen3", seed=4).read_bytes() != first


@pytest.mark.parametrize("family", DEFAULTS)
def test_a_description_is_what_the_file_says(tmp_path: Path, family: str) -> None:
    model = DEFAULTS[family]
    file = read_gguf(write_tiny_model(tmp_path / "tiny.gguf", family))
    metadata, tensors = describe(model)
    assert set(file.metadata.values) == set(metadata.values)
    assert {t.name: t.shape for t in file.tensors.values()} == {
        t.name: t.shape for t in tensors.values()
    }
    with TensorReader(file) as reader:
        for name, data in tiny_weights(model, seed=0).items():
            assert np.array_equal(reader.float32(name), data)


def test_an_unknown_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="colour"):
        write_tiny_model(tmp_path / "tiny.gguf", "llama", colour="blue")


@pytest.mark.parametrize("tokenizer", ["gpt2", "llama"])
def test_any_text_is_encoded_as_the_reference_does(
    llama_cpp: ModuleType, tmp_path: Path, tokenizer: str
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", "llama", tokenizer=tokenizer, layers=1)
    ours = build_tokenizer(read_gguf(path).metadata)
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    for text in TEXTS:
        ids = ours.encode(text, add_special=False)
        assert ids == theirs.tokenize(text.encode(), add_bos=False)
        assert ours.decode(ids) == text
    theirs.close()


@pytest.mark.parametrize("family", DEFAULTS)
def test_vocabularies_have_their_size_and_their_turns(family: str) -> None:
    vocabulary = vocabulary_of(DEFAULTS[family])
    assert vocabulary is not None
    assert len(vocabulary.tokens) == len(set(vocabulary.tokens)) == 300
    assert len(vocabulary.types) == 300
    ends = (vocabulary.tokens[vocabulary.end_of_turn], vocabulary.tokens[vocabulary.eos])
    assert ends in (("<|im_end|>", "<|im_end|>"), ("<end_of_turn>", "<eos>"))
