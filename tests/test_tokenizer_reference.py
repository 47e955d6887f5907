"""Token ids equal the reference's: its own pairs of text and ids, and its library on any text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from edgeserve.errors import TokenizerError
from edgeserve.loader.gguf import read_gguf
from edgeserve.text.pretokenizer_styles import PRE_TOKENIZER_STYLES
from edgeserve.text.tokenizer import Tokenizer, build_tokenizer
from edgeserve.text.unicode_classes import class_table

from . import gguf_files as hand
from .pair_vocabularies import PairVocabulary, pair_vocabulary
from .reference_vocabulary import ReferenceVocabulary
from .token_texts import NAMED_TEXTS, generated_texts

_NUM_GENERATED = 2000
_NUM_DECODED = 300
_PIECE_STRIDE = 101

WITH_PAIRS = (
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
)
WITHOUT_PAIRS = ("aquila", "baichuan", "gpt-neox")
REFUSED = {"bert-bge": ("bert", "WordPiece"), "nomic-bert-moe": ("t5", "Unigram")}
MODELS = ("smollm2", "gemma3")


def _vocabulary_path(reference_source: Path, name: str) -> Path:
    return reference_source / "models" / f"ggml-vocab-{name}.gguf"


def test_every_vocabulary_of_the_reference_is_tried(reference_source: Path) -> None:
    present = {path.stem for path in (reference_source / "models").glob("ggml-vocab-*.gguf")}
    tried = {f"ggml-vocab-{name}" for name in (*WITH_PAIRS, *WITHOUT_PAIRS, *REFUSED)}
    assert present == tried


@dataclass(frozen=True)
class Vocabulary:
    path: Path
    tokenizer: Tokenizer


@pytest.fixture(scope="module")
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    """A vocabulary by its name, built once for all tests of it."""
    name: str = request.param
    if name in MODELS:
        path: Path = request.getfixturevalue(f"{name}_path")
    else:
        path = _vocabulary_path(request.getfixturevalue("reference_source"), name)
    return Vocabulary(path, build_tokenizer(read_gguf(path).metadata))


@pytest.mark.parametrize("vocabulary", WITH_PAIRS, indirect=True)
def test_ids_equal_the_reference_s_own_pairs(vocabulary: Vocabulary) -> None:
    texts = Path(f"{vocabulary.path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{vocabulary.path}.out").read_text().split("\n")
    assert len(texts) > 40
    for text, line in zip(texts, lines, strict=False):  # either file may end with a newline
        ids = list(map(int, line.split()))
        assert vocabulary.tokenizer.encode(text, add_special=False) == ids, text


@pytest.mark.parametrize("name", REFUSED)
def test_vocabularies_of_other_kinds_are_refused_by_name(reference_source: Path, name: str) -> None:
    model, kind = REFUSED[name]
    metadata = read_gguf(_vocabulary_path(reference_source, name)).metadata
    with pytest.raises(TokenizerError, match=rf"'{model}' \({kind}\)") as raised:
        build_tokenizer(metadata)
    assert raised.value.field == "tokenizer.ggml.model"


@dataclass(frozen=True)
class Pair:
    ours: Tokenizer
    reference: ReferenceVocabulary
    texts: list[str]


@pytest.fixture(scope="module")
def pair(vocabulary: Vocabulary, llama_cpp: ModuleType) -> Iterator[Pair]:
    """One vocabulary in both implementations, with the texts to try on it."""
    ours = vocabulary.tokenizer
    reference = ReferenceVocabulary(llama_cpp, vocabulary.path)
    texts = [*NAMED_TEXTS, *generated_texts(ours.vocab_size, _NUM_GENERATED, ours.control_texts)]
    yield Pair(ours, reference, texts)
    reference.close()


on_every_vocabulary = pytest.mark.parametrize(
    "vocabulary", [*MODELS, *WITH_PAIRS, *WITHOUT_PAIRS], indirect=True
)


@on_every_vocabulary
@pytest.mark.parametrize("parse_special", [False, True])
def test_ids_equal_the_reference(pair: Pair, parse_special: bool) -> None:
    for text in pair.texts:
        expected = pair.reference.encode(text, add_special=True, parse_special=parse_special)
        assert pair.ours.encode(text, parse_special=parse_special) == expected, text


@on_every_vocabulary
def test_special_ids_equal_the_reference(pair: Pair) -> None:
    reference, ours = pair.reference, pair.ours
    assert ours.vocab_size == reference.vocab_size
    assert (ours.bos_id, ours.eos_id) == reference.special_ids()
    stops = {i for i in range(reference.vocab_size) if reference.ends_generation(i)}
    assert ours.stop_ids == stops


@on_every_vocabulary
def test_token_bytes_equal_the_reference(pair: Pair) -> None:
    sample = {*range(0, pair.ours.vocab_size, _PIECE_STRIDE), *range(300), *pair.ours.stop_ids}
    for token_id in sample:
        piece = pair.reference.piece(token_id)
        if not piece.startswith(b"[UNK_BYTE_0x"):  # a token that is not spelt as it should be
            assert pair.ours.token_bytes(token_id) == piece, token_id


@on_every_vocabulary
def test_all_bytes_are_those_of_each_token(pair: Pair) -> None:
    tokenizer = pair.ours
    every = range(tokenizer.vocab_size)
    assert tokenizer.all_bytes() == [tokenizer.token_bytes(token_id) for token_id in every]
    assert tokenizer.control_ids() == list(filter(tokenizer.is_control, every))


@on_every_vocabulary
def test_decoding_inverts_encoding_wherever_the_reference_s_does(pair: Pair) -> None:
    inverted = 0
    for text in pair.texts[:_NUM_DECODED]:
        ids = pair.ours.encode(text, add_special=False)
        if pair.reference.decode(ids, skip_special=False) == text.encode():
            assert pair.ours.decode(ids, skip_special=False) == text
            inverted += 1
    assert inverted > _NUM_DECODED // 2


@pytest.fixture(scope="module")
def cut_texts() -> list[str]:
    short = [text for text in NAMED_TEXTS if len(text) < 1000]
    return [*short, *generated_texts(7, 150, ["hello", " the", "\n\n\n"])]


@pytest.fixture(scope="module")
def cut_vocabulary(cut_texts: list[str]) -> PairVocabulary:
    return pair_vocabulary(cut_texts)


@pytest.mark.parametrize("pre", PRE_TOKENIZER_STYLES)
def test_every_pre_tokenizer_cuts_as_the_reference_does(
    llama_cpp: ModuleType,
    tmp_path: Path,
    cut_texts: list[str],
    cut_vocabulary: PairVocabulary,
    pre: str,
) -> None:
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(cut_vocabulary.gguf(pre))
    ours = build_tokenizer(read_gguf(path).metadata)
    reference = ReferenceVocabulary(llama_cpp, path)
    for text in cut_texts:
        expected = reference.encode(text, add_special=True, parse_special=False)
        assert ours.encode(text) == expected, text
    reference.close()


# Of different lengths, since the reference leaves open which of two equally long ones comes first.
_OVERLAPPING = ["c", "ab", "bca", "a b ", "cabca", " b c a", "\n"]


@pytest.mark.parametrize("name", ["overlapping", "phi-3 overlapping"])
def test_overlapping_user_defined_tokens_are_taken_in_the_reference_s_order(
    llama_cpp: ModuleType, tmp_path: Path, name: str
) -> None:
    """The second name makes each of them swallow the white space after it."""
    tokens = ["<unk>", "<s>", "</s>", "<|endoftext|>", *_OVERLAPPING, "▁", "a", "b"]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    types = [2, 3, 3, 3, *[4] * len(_OVERLAPPING), 1, 1, 1, *[6] * 256]
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(
        hand.gguf(
            [
                hand.scalar("general.architecture", hand.STRING, "llama"),
                hand.scalar("general.name", hand.STRING, name),
                hand.scalar("tokenizer.ggml.model", hand.STRING, "llama"),
                hand.array("tokenizer.ggml.tokens", hand.STRING, tokens),
                hand.array("tokenizer.ggml.token_type", hand.INT32, types),
            ]
        )
    )
    reference = ReferenceVocabulary(llama_cpp, path)
    ours = build_tokenizer(read_gguf(path).metadata)
    letters = ["a", "b", "c", " ", "\n", "a b ", "bca", "</s>"]
    for text in generated_texts(5, 500, letters):
        expected = reference.encode(text, add_special=True, parse_special=True)
        assert ours.encode(text, parse_special=True) == expected, text
    reference.close()


def test_classes_of_characters_are_those_of_python_s_unicode_where_it_knows_them() -> None:
    """The table is of Unicode 15.1; other versions add to it, and seldom change a category."""
    table = class_table()
    class_of = {"L": "é", "N": "²", "M": "¨", "P": "¿", "S": "¤"}
    differing = 0
    for code in range(0x80, 0x110000):
        category = unicodedata.category(chr(code))
        if category != "Cn" and table[code] not in ("¬", "\v"):
            differing += table[code] != class_of.get(category[0])
    assert differing <= 20
