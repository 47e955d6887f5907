"""Byte-pair encoding for `gpt2` vocabularies: pieces cut by name, merged by the native library.

Also for those that merge plain UTF-8 (Gemma 4's way). Knows nothing of control tokens.
"""

from __future__ import annotations

from itertools import chain

from edgeserve.binding.text import MergerOptions, NativeTokens, ranked_merger
from edgeserve.errors import TokenizerError
from edgeserve.packed import PackedStrings
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
        self._style = style
        self._pre_tokenizer = PreTokenizer(style)
        self._num_tokens = len(vocabulary.tokens)
        self._ids, byte_ids = _with_all_bytes(vocabulary, style)
        self._has_gaps = len(self._ids.texts) > self._num_tokens
        merges = _read_merges(fields)
        options = MergerOptions(
            byte_ids=byte_ids, by_bytes=style.byte_level, takes_whole=style.ignores_merges
        )
        merger = ranked_merger(self._ids, merges, options)
        if isinstance(merger, int):
            raise _merge_error(fields, merges, merger, self._ids)
        self._merger = merger

    def encode(self, text: str) -> list[int]:
        if self._style.escapes_spaces:
            text = text.replace(" ", _SPACE)
        pieces = self._pre_tokenizer.split(text)
        # Text repeats its words, so each goes through the merger once.
        distinct = list(dict.fromkeys(pieces))
        ids_of_piece = dict(zip(distinct, self._merger.merge(distinct), strict=True))
        if self._style.keeps_newline_runs:
            runs = ((piece, self._ids.find(piece)) for piece in distinct if not piece.strip("\n"))
            ids_of_piece |= {run: [token_id] for run, token_id in runs if token_id is not None}
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


def _with_all_bytes(
    vocabulary: Vocabulary, style: PreTokenizerStyle
) -> tuple[NativeTokens, list[int]]:
    """The vocabulary and the tokens of all bytes, of which those that it cannot spell are added
    past its end.

    Text holding such a byte loses it, as in the reference; what is around it does not merge.
    """
    tokens, byte_ids = vocabulary.ids, list[int]()
    spellings = [*BYTE_ALPHABET] if style.byte_level else [f"<0x{byte:02X}>" for byte in range(256)]
    missing = [spelling for spelling in spellings if tokens.find(spelling) is None]
    if missing:
        tokens = NativeTokens(vocabulary.tokens.followed_by(missing))
    for spelling in spellings:
        token_id = tokens.find(spelling)
        assert token_id is not None  # it was missing, and has been added
        byte_ids.append(token_id)
    return tokens, byte_ids


def _read_merges(fields: TokenizerFields) -> PackedStrings:
    merges = fields.texts("merges")
    if merges is not None:
        return merges
    if fields.text("pre") == "kimi-k2":  # its first files came without, and the reference copes
        return PackedStrings.of(())
    raise fields.error("merges", "is missing, and a byte-pair vocabulary needs it")


def _merge_error(
    fields: TokenizerFields, merges: PackedStrings, index: int, ids: NativeTokens
) -> TokenizerError:
    merge = merges[index]
    at = merge.find(" ", 1)  # the first part may itself begin with a space
    if at < 0:
        return fields.error("merges", f"merge {index}, {merge!r}, is not two parts and a space")
    first, second = merge[:at], merge[at + 1 :]
    lacking = next(t for t in (first, second, first + second) if ids.find(t) is None)
    return fields.error("merges", f"{first!r} + {second!r}: {lacking!r} is not a token")
