"""Byte-pair encoding for `gpt2` vocabularies: pieces cut by name, merged by the tokenizers library.

Also for those that merge plain UTF-8 (Gemma 4's way). Knows nothing of control tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from edgeserve.errors import TokenizerError
from edgeserve.text.pretokenizer_styles import PreTokenizerStyle
from edgeserve.text.pretokenizers import PreTokenizer
from edgeserve.text.tokenizer_fields import TokenizerFields
from edgeserve.text.vocabulary import Vocabulary

_SPACE = "▁"


def _byte_alphabet() -> str:
    """GPT-2's printable character for each byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTE_ALPHABET = _byte_alphabet()
_BYTE_OF_CHAR = {ord(char): byte for byte, char in enumerate(BYTE_ALPHABET)}


class BytePairEngine:
    """Encodes plain text by merging pairs, each piece of the text on its own."""

    def __init__(
        self, vocabulary: Vocabulary, style: PreTokenizerStyle, fields: TokenizerFields
    ) -> None:
        from tokenizers import Tokenizer
        from tokenizers.models import BPE
        from tokenizers.pre_tokenizers import ByteLevel

        self._style = style
        self._pre_tokenizer = PreTokenizer(style)
        self._num_tokens = len(vocabulary.tokens)
        ids = _ids_with_all_bytes(vocabulary, style)
        self._has_gaps = len(ids) > self._num_tokens
        merges = _read_merges(fields)
        try:
            model = BPE(
                ids,
                merges,
                ignore_merges=style.ignores_merges,
                byte_fallback=not style.byte_level,
            )
        except Exception as error:  # the library raises nothing more special
            raise _merge_error(fields, merges, ids, error) from error
        self._merger = Tokenizer(model)
        if style.byte_level:
            self._merger.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
        self._whole: dict[str, list[int]] = {}
        if style.keeps_newline_runs:
            self._whole = {text: [i] for text, i in ids.items() if not text.strip("\n")}

    def encode(self, text: str) -> list[int]:
        if self._style.escapes_spaces:
            text = text.replace(" ", _SPACE)
        pieces = self._pre_tokenizer.split(text)
        # Text repeats its words, so each goes through the merger once.
        ids_of_piece = {piece: list(self._whole.get(piece, ())) for piece in pieces}
        distinct = [piece for piece, ids in ids_of_piece.items() if not ids]
        merged = self._merger.encode(distinct, is_pretokenized=True, add_special_tokens=False)
        for token_id, index in zip(merged.ids, merged.word_ids, strict=True):
            if index is not None:  # never is, of pieces given as such
                ids_of_piece[distinct[index]].append(token_id)
        ids = list(chain.from_iterable(map(ids_of_piece.__getitem__, pieces)))
        if self._has_gaps:
            return [token_id for token_id in ids if token_id < self._num_tokens]
        return ids

    def spelling(self, token: str) -> bytes:
        """The bytes that a normal token's text stands for."""
        if not self._style.byte_level:
            return (token.replace(_SPACE, " ") if self._style.escapes_spaces else token).encode()
        try:
            return bytes(map(_BYTE_OF_CHAR.__getitem__, map(ord, token)))
        except KeyError:
            return token.encode()  # not spelt in the byte alphabet, though it should be


def _ids_with_all_bytes(vocabulary: Vocabulary, style: PreTokenizerStyle) -> dict[str, int]:
    """Ids by text, with ids past the vocabulary's end for the bytes that it cannot spell.

    Text holding such a byte loses it, as in the reference; what is around it does not merge.
    """
    ids = dict(zip(vocabulary.tokens, range(len(vocabulary.tokens)), strict=True))
    for byte in range(256):
        ids.setdefault(BYTE_ALPHABET[byte] if style.byte_level else f"<0x{byte:02X}>", len(ids))
    return ids


def _read_merges(fields: TokenizerFields) -> list[tuple[str, str]]:
    merges = fields.texts("merges")
    if merges is None:
        if fields.text("pre") == "kimi-k2":  # its first files came without, and the reference copes
            return []
        raise fields.error("merges", "is missing, and a byte-pair vocabulary needs it")
    distinct = dict.fromkeys(merges)  # of two equal merges the first counts
    # The first part may itself begin with a space.
    pairs = [(m[:at], m[at + 1 :]) for m in distinct if (at := m.find(" ", 1)) > 0]
    if len(pairs) < len(distinct):
        index, merge = next((i, m) for i, m in enumerate(merges) if " " not in m[1:])
        raise fields.error("merges", f"merge {index}, {merge!r}, is not two parts and a space")
    return pairs


def _merge_error(
    fields: TokenizerFields, merges: list[tuple[str, str]], ids: Mapping[str, int], cause: Exception
) -> TokenizerError:
    """Which merge the library refused, found only once it has: looking takes long."""
    for first, second in merges:
        for text in (first, second, first + second):
            if text not in ids:
                return fields.error("merges", f"{first!r} + {second!r}: {text!r} is not a token")
    return fields.error("merges", str(cause))
