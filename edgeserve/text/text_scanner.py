"""Text that arrives in pieces, read as if all of it were there.

A reader is a generator: it asks the scanner, which yields where the answer depends on text still
to come. So what is read never depends on where the pieces were cut. Knows no format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar, cast

T = TypeVar("T")
Reading = Generator[None, None, T]
"""A reader at work: yields for more text, returns what it found."""
Out = Callable[[str], None]

_STRING_STOPS = re.compile(r'["\\]')
_STRUCTURE = re.compile(r'["{}\[\]]')
_SCALAR_END = re.compile(r"[^-+.0-9A-Za-z]")
_NOT_SPACE = re.compile(r"\S")
_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_NAME_CHARS = 256


class TextScanner:
    """A place in a text that grows."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._ended = False
        self._marked = False

    def supply(self, text: str) -> None:
        """More text. What was read before is dropped, unless somebody may go back to it."""
        if not self._marked:
            self.forget()
        self._text += text

    def end(self) -> None:
        """No more text will come."""
        self._ended = True

    @property
    def at_end(self) -> bool:
        """Whether everything was read and nothing will come."""
        return self._ended and self._at == len(self._text)

    # --- places ------------------------------------------------------------------------------

    def mark(self, back: int = 0) -> int:
        """This place, or one `back` characters before it, to `rewind` to until `forget`."""
        self._marked = True
        return self._at - back

    def rewind(self, mark: int) -> None:
        self._at = mark

    def forget(self) -> None:
        """Nobody goes back to what was read."""
        self._text = self._text[self._at :]
        self._at = 0
        self._marked = False

    # --- looking -----------------------------------------------------------------------------

    def peek(self) -> Reading[str]:
        """The next character; empty at the end."""
        while self._at == len(self._text) and not self._ended:
            yield
        return self._text[self._at : self._at + 1]

    def looking_at(self, text: str) -> Reading[bool]:
        """Whether `text` comes next."""
        while True:
            have = self._text[self._at : self._at + len(text)]
            if have == text:
                return True
            if self._ended or not text.startswith(have):
                return False
            yield

    def accept(self, text: str) -> Reading[bool]:
        """Reads `text` if it comes next, and says so."""
        found = yield from self.looking_at(text)
        if found:
            self._at += len(text)
        return found

    def take(self, count: int) -> str:
        """The next characters, of which it is known that they are there."""
        taken = self._text[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def space(self) -> Reading[str]:
        """Reads white space."""
        return (yield from self.run(_NOT_SPACE))

    def run(self, stop: re.Pattern[str]) -> Reading[str]:
        """What stands before the first character that matches `stop`."""
        pieces: list[str] = []
        while True:
            found = stop.search(self._text, self._at)
            pieces.append(self.take((found.start() if found else len(self._text)) - self._at))
            if found or self._ended:
                return "".join(pieces)
            yield

    def drop_cut(self, marks: Sequence[str]) -> None:
        """Reads what is left of a text that has ended, if that is the beginning of a mark."""
        left = self._text[self._at :].strip()
        if self._ended and any(mark.startswith(left) for mark in marks):
            self._at = len(self._text)

    # --- reading up to something ---------------------------------------------------------------

    def stream_until(self, markers: Sequence[str], out: Out) -> Reading[str | None]:
        """Passes text on up to the first of `markers`, which is read; None if none comes.

        None of the markers may begin another one.
        """
        marker = yield from self.value_until(markers, out)
        if marker is None and self._at < len(self._text):
            out(self.take(len(self._text) - self._at))
        return marker

    def value_until(self, markers: Sequence[str], out: Out) -> Reading[str | None]:
        """As `stream_until`, but keeps back what may be the beginning of a marker that was cut."""
        while True:
            starts = [(self._find(marker), marker) for marker in markers]
            at, marker = min(starts, default=(len(self._text), ""))
            if at > self._at:
                out(self.take(at - self._at))
            if marker and self._text.startswith(marker, at):
                self._at += len(marker)
                return marker
            if self._ended:
                later = [start for start in starts if self._text.startswith(start[1], start[0])]
                if not later:
                    return None
                out(self.take(min(later)[0] - self._at))
                continue
            yield

    def _find(self, marker: str) -> int:
        """Where `marker` stands or may have begun; the end if nowhere."""
        at = self._text.find(marker, self._at)
        if at >= 0:
            return at
        at = self._text.find(marker[0], max(self._at, len(self._text) - len(marker) + 1))
        while at >= 0:
            if marker.startswith(self._text[at:]):
                return at
            at = self._text.find(marker[0], at + 1)
        return len(self._text)

    def name_until(self, markers: Sequence[str]) -> Reading[tuple[str, str] | None]:
        """A short text and the marker that ends it, which is read; None if none comes soon."""
        while True:
            window = self._text[self._at : self._at + MAX_NAME_CHARS]
            found = [(at, marker) for marker in markers if (at := window.find(marker)) >= 0]
            if found and (not self._may_begin(window, markers, min(found)[0])):
                at, marker = min(found)
                self._at += at + len(marker)
                return window[:at], marker
            if self._ended or len(window) == MAX_NAME_CHARS:
                return None
            yield

    def _may_begin(self, window: str, markers: Sequence[str], before: int) -> bool:
        """Whether a marker may have begun before place `before`, and is not complete."""
        if self._ended or len(window) == MAX_NAME_CHARS:
            return False
        return any(
            marker.startswith(window[at:])
            for marker in markers
            for at in range(max(0, len(window) - len(marker) + 1), before)
        )

    # --- JSON ----------------------------------------------------------------------------------

    def raw_value(self, out: Out) -> Reading[bool]:
        """Passes one JSON value on as it is written; False if none begins here or it was cut.

        Looks at strings and brackets only: what the model wrote is what comes out.
        """
        first = yield from self.peek()
        if first == '"':
            out(self.take(1))
            return (yield from self._raw_string(out))
        if first and first in "{[":
            return (yield from self._raw_brackets(out))
        scalar = yield from self.run(_SCALAR_END)
        if scalar:
            out(scalar)
        return bool(scalar) and not self.at_end

    def _raw_brackets(self, out: Out) -> Reading[bool]:
        depth = 0
        while True:
            found = _STRUCTURE.search(self._text, self._at)
            end = found.end() if found else len(self._text)
            if end > self._at:
                out(self.take(end - self._at))
            if found is None:
                if self._ended:
                    return False
                yield
                continue
            char = found.group()
            if char == '"':
                if not (yield from self._raw_string(out)):
                    return False
                continue
            depth += 1 if char in "{[" else -1
            if depth == 0:
                return True

    def _raw_string(self, out: Out) -> Reading[bool]:
        """From behind the opening quote to behind the closing one."""
        while True:
            found = _STRING_STOPS.search(self._text, self._at)
            end = found.start() if found else len(self._text)
            if end > self._at:
                out(self.take(end - self._at))
            if found is not None and found.group() == '"':
                out(self.take(1))
                return True
            if found is not None and found.start() + 1 < len(self._text):
                out(self.take(2))
                continue
            if self._ended:
                return False
            yield

    def json_string(self) -> Reading[str | None]:
        """A JSON string's value, its opening quote included; None if there is none."""
        if not (yield from self.accept('"')):
            return None
        pieces: list[str] = []
        if not (yield from self._raw_string(pieces.append)):
            return None
        return text_of_json('"' + "".join(pieces))


def text_of_json(literal: str) -> str | None:
    """The value of a JSON string literal; None if it is none. Half characters become U+FFFD."""
    try:
        value: object = json.loads(literal, strict=False)
    except ValueError:
        return None
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else None


def json_text(text: str) -> str:
    """A text as the inside of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def parsed_json(text: str) -> object:
    """A JSON value; raises ValueError for what is none, NaN and deep nesting included."""
    try:
        return cast(object, json.loads(text, parse_constant=_refuse_constant))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
