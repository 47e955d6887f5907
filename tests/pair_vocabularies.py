"""A small vocabulary that shows where a text was cut: other neighbours mostly merge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from edgeserve.text.bpe import BYTE_ALPHABET

from . import gguf_files as hand

_NORMAL, _CONTROL, _BYTE = 1, 3, 6
_NUM_PAIRS = 3000
_WHOLE_WORDS = ("hello", "world", "function", "\n\n\n", " the")


@dataclass(frozen=True)
class PairVocabulary:
    """Its tokens and merges are spelt in the byte alphabet and, for Gemma 4's way, in plain."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]

    def gguf(self, pre: str) -> bytes:
        """The file that names `pre` as its pre-tokenizer."""
        return hand.gguf(
            [
                hand.scalar("general.architecture", hand.STRING, "llama"),
                hand.scalar("tokenizer.ggml.model", hand.STRING, "gpt2"),
                hand.scalar("tokenizer.ggml.pre", hand.STRING, pre),
                hand.array("tokenizer.ggml.tokens", hand.STRING, self.tokens),
                hand.array("tokenizer.ggml.token_type", hand.INT32, self.types),
                hand.array("tokenizer.ggml.merges", hand.STRING, self.merges),
                hand.scalar("tokenizer.ggml.bos_token_id", hand.UINT32, 0),
                hand.scalar("tokenizer.ggml.eos_token_id", hand.UINT32, 0),
            ]
        )


def pair_vocabulary(texts: Sequence[str]) -> PairVocabulary:
    """The vocabulary that merges the commonest neighbours of these texts."""
    spelt = ["".join(BYTE_ALPHABET[byte] for byte in text.encode()) for text in texts]
    # The reference ends a token of a file at its first NUL.
    plain = [text.replace(" ", "▁").replace("\0", "") for text in texts]
    pairs: Counter[tuple[str, str]] = Counter(
        chain.from_iterable(pairwise(text) for text in chain(spelt, plain))
    )
    merges = [pair for pair, _ in pairs.most_common(_NUM_PAIRS)]
    # Reached by no merge: found only where a piece that is a token is not merged from its parts.
    words = ["".join(BYTE_ALPHABET[byte] for byte in word.encode()) for word in _WHOLE_WORDS]
    words += [word.replace(" ", "▁") for word in _WHOLE_WORDS]
    normal = chain(BYTE_ALPHABET, *merges, map("".join, merges), words)
    byte_tokens = tuple(f"<0x{byte:02X}>" for byte in range(256))
    tokens = tuple(dict.fromkeys(("<|end|>", *byte_tokens, *normal)))
    types = (_CONTROL, *([_BYTE] * 256), *([_NORMAL] * (len(tokens) - 257)))
    return PairVocabulary(tokens, types, tuple(" ".join(pair) for pair in merges))
