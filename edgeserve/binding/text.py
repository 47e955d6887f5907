"""Texts and tokens in the native library: where texts begin, a text's id, and what merges.

Knows bytes and ids, and nothing of what a token is for.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from edgeserve.binding.library import CData, check, load_library
from edgeserve.frozen import frozen
from edgeserve.packed import PackedStrings

_LENGTH_BYTES = 8


def find_texts(data: bytearray, first: int, position: int, count: int, starts: array[int]) -> int:
    """Appends to `starts` where up to `count` texts begin (eight bytes of length, then UTF-8),
    counted from `first`; those before `position` are known. Returns the position behind the last:
    too soon where `data` holds no more, or no UTF-8.
    """
    count = min(count, (len(data) - position) // _LENGTH_BYTES)
    library = load_library()
    ffi = library.ffi
    at, num_found = ffi.new("size_t *", position - first), ffi.new("int32_t *")
    found = array("I", bytes(4 * (count + 1)))
    status = library.functions.es_strings_find(
        ffi.from_buffer("uint8_t[]", data) + first,
        len(data) - first,
        count,
        at,
        ffi.from_buffer("uint32_t[]", found),
        num_found,
    )
    check(library, status, "reading texts")
    starts.extend(found[: num_found[0]])
    return first + at[0]


class NativeTokens:
    """A vocabulary: ids by text. `duplicate` is a token whose text is another's too, or None.

    With a duplicate there is nothing to find.
    """

    def __init__(self, texts: PackedStrings) -> None:
        self._library = load_library()
        ffi, functions = self._library.ffi, self._library.functions
        self.texts = texts
        self.c_texts, self._kept = _c_strings(texts)
        out, duplicate = ffi.new("es_tokens **"), ffi.new("int32_t *")
        # A secret, so that a file cannot choose its texts to share one place in the table.
        seed = int.from_bytes(os.urandom(8), "little")
        status = functions.es_tokens_create(self.c_texts, seed, out, duplicate)
        self.duplicate: int | None = None
        if duplicate[0] >= 0:
            self.duplicate = duplicate[0]
            return
        check(self._library, status, "reading the vocabulary")
        self.handle: CData = ffi.gc(out[0], functions.es_tokens_free)

    def find(self, text: str) -> int | None:
        encoded = text.encode()
        found = self._library.functions.es_tokens_find(self.handle, encoded, len(encoded))
        return None if found < 0 else found


@frozen(kw_only=True)
class MergerOptions:
    """`byte_ids` is the token of each byte, None without any. Text is merged `by_bytes`, else by
    characters. A piece that is a token itself is not merged where the merger `takes_whole`. Runs
    of what has no token become `unknown`."""

    byte_ids: Sequence[int] | None = None
    by_bytes: bool = False
    takes_whole: bool = False
    unknown: int | None = None


class NativeMerger:
    """Encodes pieces of text. Immutable; for any number of threads."""

    def __init__(self, tokens: NativeTokens, handle: CData) -> None:
        self._library = load_library()
        self._tokens = tokens  # borrowed by what the handle points to
        self._handle = self._library.ffi.gc(handle, self._library.functions.es_merger_free)

    def merge(self, pieces: Sequence[str]) -> list[list[int]]:
        """The ids of each piece. Releases the GIL."""
        encoded = [piece.encode() for piece in pieces]
        ends = array("i")
        at = 0
        for piece in encoded:
            at += len(piece)
            ends.append(at)
        ffi = self._library.ffi
        ids = array("i", bytes(4 * (at + 1)))
        id_ends = array("i", bytes(4 * (len(ends) + 1)))
        status = self._library.functions.es_merge(
            self._handle,
            ffi.from_buffer("uint8_t[]", b"".join(encoded)),
            ffi.from_buffer("int32_t[]", ends),
            len(ends),
            ffi.from_buffer("int32_t[]", ids),
            ffi.from_buffer("int32_t[]", id_ends),
        )
        check(self._library, status, "encoding text")
        bounds = [0, *id_ends[: len(ends)]]
        found = ids.tolist()
        return [found[first:end] for first, end in pairwise(bounds)]


def ranked_merger(
    tokens: NativeTokens, merges: PackedStrings, options: MergerOptions
) -> NativeMerger | int:
    """Merges pairs, "left right", the first listed first; or the number of a merge that is not
    two tokens which together are one."""
    library = load_library()
    ffi = library.ffi
    out, fault = ffi.new("es_merger **"), ffi.new("int32_t *")
    c_merges, _kept = _c_strings(merges)
    status = library.functions.es_merger_create_ranked(
        tokens.handle, _c_options(options), c_merges, out, fault
    )
    if fault[0] >= 0:
        return int(fault[0])
    check(library, status, "reading the vocabulary's merges")
    return NativeMerger(tokens, out[0])


def scored_merger(
    tokens: NativeTokens, scores: memoryview[Any], is_merged: bytes, options: MergerOptions
) -> NativeMerger | int:
    """Merges what is a token together, that of the highest score first; or the number of a score
    that is not finite.

    `scores` is (n_tokens,) of float32; `is_merged` (n_tokens,) is 0 for tokens that never come out
    of a merge.
    """
    library = load_library()
    ffi = library.ffi
    out, fault = ffi.new("es_merger **"), ffi.new("int32_t *")
    status = library.functions.es_merger_create_scored(
        tokens.handle,
        _c_options(options),
        ffi.from_buffer("float[]", scores),
        ffi.from_buffer("uint8_t[]", is_merged),
        out,
        fault,
    )
    if fault[0] >= 0:
        return int(fault[0])
    check(library, status, "reading the vocabulary's scores")
    return NativeMerger(tokens, out[0])


def _c_strings(texts: PackedStrings) -> tuple[CData, tuple[CData, CData]]:
    """The struct, and what has to live as long as it is used."""
    ffi = load_library().ffi
    kept = (ffi.from_buffer("uint8_t[]", texts.data), ffi.from_buffer("uint32_t[]", texts.starts))
    strings = ffi.new("es_strings *")
    strings.bytes, strings.starts = kept
    strings.n = len(texts)
    return strings, kept


def _c_options(options: MergerOptions) -> CData:
    c_options = load_library().ffi.new("es_merger_options *")
    c_options.byte_ids = [-1] * 256 if options.byte_ids is None else list(options.byte_ids)
    c_options.by_bytes = options.by_bytes
    c_options.takes_whole = options.takes_whole
    c_options.unknown = -1 if options.unknown is None else options.unknown
    return c_options
