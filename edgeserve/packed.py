"""Arrays of a model file as the file holds them: an element becomes an object when it is asked for.

A vocabulary has a quarter of a million texts and scores, of which a run looks at a few hundred.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, cast, overload

_LENGTH_BYTES = 8
_T = TypeVar("_T")


class _Packed(Sequence[_T]):
    """Compares with any sequence by its elements."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        others = cast("Sequence[object]", other)
        return len(self) == len(others) and all(
            mine == theirs for mine, theirs in zip(self, others, strict=True)
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class PackedStrings(_Packed[str]):
    """Texts, one behind the other: eight bytes of length, then UTF-8.

    Text i begins at `data[starts[i]]`, and ends eight bytes before the next one begins; `starts`
    has one more, as if another followed.
    """

    __slots__ = ("data", "starts")

    def __init__(self, data: bytes, starts: array[int]) -> None:
        self.data = data
        self.starts = starts

    @classmethod
    def of(cls, texts: Sequence[str]) -> PackedStrings:
        """These texts, packed, if they are not already."""
        if isinstance(texts, PackedStrings):
            return texts
        encoded = [text.encode() for text in texts]
        data = b"".join(len(text).to_bytes(_LENGTH_BYTES, "little") + text for text in encoded)
        starts, at = array("I"), _LENGTH_BYTES
        for text in encoded:
            starts.append(at)
            at += len(text) + _LENGTH_BYTES
        starts.append(at)
        return cls(data, starts)

    def followed_by(self, texts: Sequence[str]) -> PackedStrings:
        """These texts and then others."""
        more, num_bytes = PackedStrings.of(texts), len(self.data)
        starts = self.starts[:-1]
        starts.extend(num_bytes + start for start in more.starts)
        return PackedStrings(self.data + more.data, starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        at = index if index >= 0 else len(self) + index
        if at < 0:
            raise IndexError(f"text {index} of {len(self)}")
        end = self.starts[at + 1] - _LENGTH_BYTES
        return self.data[self.starts[at] : end].decode()

    def __iter__(self) -> Iterator[str]:
        data, starts = self.data, iter(self.starts)
        start = next(starts)
        for following in starts:
            yield data[start : following - _LENGTH_BYTES].decode()
            start = following


class PackedNumbers(_Packed[int | float]):
    """Numbers of one of the struct module's types, little-endian. `view` is of that format."""

    __slots__ = ("view",)

    def __init__(self, data: bytes, code: str) -> None:
        self.view: memoryview[Any] = memoryview(data).cast(cast(Any, code))

    @property
    def is_integer(self) -> bool:
        return self.view.format not in ("f", "d")

    def __len__(self) -> int:
        return len(self.view)

    @overload
    def __getitem__(self, index: int) -> int | float: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int | float]: ...
    def __getitem__(self, index: int | slice) -> int | float | Sequence[int | float]:
        if isinstance(index, slice):
            return tuple(self.view[index].tolist())
        return self.view[index]

    def __iter__(self) -> Iterator[int | float]:
        return iter(self.view.tolist())
