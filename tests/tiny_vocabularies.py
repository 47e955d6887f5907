"""Vocabularies of a few hundred tokens that can still encode any text, in both GGUF kinds."""

from __future__ import annotations

from dataclasses import dataclass

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_MERGES = """
Ġ t, h e, i n, Ġ a, r e, o n, Ġt he, e r, Ġ s, a t, Ġ o, e n, Ġ c, i t, o r, e s, i s, Ġ w, a n,
Ġo f, Ġa n, Ġan d, in g, Ġ p, o u, Ġ f, a l
"""
_PIECES = "▁t he in ▁a re on ▁the er ▁s at ▁o en ▁c it or es is ▁w an ▁of nd ▁and ing"


@dataclass(frozen=True)
class Vocabulary:
    """What the tokenizer section of a file holds. `model` is "gpt2" or "llama"."""

    model: str
    tokens: list[str]
    types: list[int]
    bos: int
    eos: int
    end_of_turn: int
    add_bos: bool
    merges: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    unknown: int | None = None


def _byte_characters() -> list[str]:
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    stand_in = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in stand_in]
    stand_in |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [stand_in[byte] for byte in range(256)]


def _filled(tokens: list[str], types: list[int], vocab_size: int) -> None:
    """Unused tokens up to `vocab_size`, as published vocabularies have them."""
    missing = vocab_size - len(tokens)
    assert missing >= 0, f"vocab_size {vocab_size} is less than {len(tokens)}"
    tokens += [f"<unused{i}>" for i in range(missing)]
    types += [UNUSED] * missing


def byte_level_vocabulary(vocab_size: int) -> Vocabulary:
    """Control tokens first (as SmolLM2 has them), bytes, then merges."""
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    merges = [merge.strip() for merge in _MERGES.split(",")]
    tokens = [*control, *_byte_characters(), *(merge.replace(" ", "") for merge in merges)]
    types = [CONTROL] * len(control) + [NORMAL] * (len(tokens) - len(control))
    _filled(tokens, types, vocab_size)
    return Vocabulary(
        "gpt2",
        tokens,
        types,
        bos=0,
        eos=2,
        end_of_turn=2,
        add_bos=False,
        merges=tuple(merges),
    )


def sentencepiece_vocabulary(vocab_size: int) -> Vocabulary:
    """Gemma's order: <pad>, <eos>, <bos>, <unk>, turns, bytes, then pieces by falling score."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    types = [CONTROL, CONTROL, CONTROL, UNKNOWN, CONTROL, CONTROL]
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    types += [BYTE] * 256
    pieces, letters = _PIECES.split(), ["▁", *"etaoinshr"]
    scores = [0.0] * len(tokens) + [-float(i) for i in range(len(pieces))]
    tokens += [*pieces, *letters]
    types += [NORMAL] * (len(pieces) + len(letters))
    scores += [-1000.0 - i for i in range(len(letters))]
    _filled(tokens, types, vocab_size)
    scores += [0.0] * (len(tokens) - len(scores))
    return Vocabulary(
        "llama",
        tokens,
        types,
        bos=2,
        eos=1,
        end_of_turn=5,
        add_bos=True,
        scores=tuple(scores),
        unknown=3,
    )
