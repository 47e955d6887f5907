"""Reads tool calls written as a language's literals, Python's or Gemma's; gives JSON."""

from __future__ import annotations

import re

from edgeserve.text.call_writer import CallWriter
from edgeserve.text.text_scanner import Out, Reading, TextScanner, json_text, parsed_json
from edgeserve.text.tool_formats import LiteralFormat

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_NO_KEY = re.compile(r"[,{}()\[\]'\"]")
_WORD_END = re.compile(r"[\s,:=()\[\]{}]")
_STRING_STOP = re.compile(r"[\\'\"]")
_WORDS = {"True": "true", "False": "false", "None": "null", "null": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_CLOSERS = {"{": "}", "[": "]", "(": ")"}
_MAX_DEPTH = 64


def read_literals(form: LiteralFormat, text: TextScanner, calls: CallWriter) -> Reading[bool]:
    """Calls behind the tag that opens them: one, or a list. False, nothing begun, if none is."""
    yield from text.space()
    listed = yield from text.accept("[")
    begun = False
    while True:
        yield from text.space()
        found = yield from text.name_until((form.brackets[0],))
        if found is None or not _NAME.fullmatch(found[0]):
            return begun
        text.forget()
        calls.begin(found[0])
        begun = True
        if not (yield from _Literals(form, text).fields(form.brackets[1], calls.arguments, 0)):
            return True
        calls.end()
        yield from text.space()
        if not listed or not (yield from text.accept(",")):
            break
    yield from text.accept("]")
    return True


class _Literals:
    """Values in one form, passed on as JSON. Every reader says false where text was cut or is no
    value, and what came before it is out then."""

    def __init__(self, form: LiteralFormat, text: TextScanner) -> None:
        self._form = form
        self._text = text
        self._raw_quote = form.quote if len(form.quote) > 1 else None

    def fields(self, closer: str, out: Out, depth: int) -> Reading[bool]:
        """Keys and values up to `closer`, as an object."""
        text, separator = self._text, "{"
        while True:
            yield from text.space()
            if (yield from text.accept(closer)):
                out("{}" if separator == "{" else "}")
                return True
            key = yield from self._key()
            if not key:
                return False
            out(f'{separator}"{json_text(key)}": ')
            separator = ", "
            if not (yield from self._value(out, depth + 1)):
                return False
            yield from text.space()
            yield from text.accept(",")

    def _key(self) -> Reading[str]:
        """A key, quoted or not, and what assigns to it; empty where none is."""
        text, marks = self._text, tuple({self._form.assign, ":"})
        pieces: list[str] = []
        if (yield from self._string(pieces.append)):
            yield from text.space()
            assigned = (yield from text.accept(marks[0])) or (yield from text.accept(marks[-1]))
            return "".join(pieces) if assigned else ""
        found = None if pieces else (yield from text.name_until(marks))
        key = "" if found is None else found[0].strip()
        return "" if _NO_KEY.search(key) else key

    def _value(self, out: Out, depth: int) -> Reading[bool]:
        text = self._text
        yield from text.space()
        first = yield from text.peek()
        if depth > _MAX_DEPTH or not first:
            return False
        if self._raw_quote and (yield from text.looking_at(self._raw_quote)):
            return (yield from self._quoted(out))
        if first in "'\"":
            return (yield from self._quoted(out))
        if first == "{":
            text.take(1)
            return (yield from self.fields("}", out, depth))
        if first in "[(":
            text.take(1)
            return (yield from self._items(_CLOSERS[first], out, depth))
        word = yield from text.run(_WORD_END)
        if not word or text.at_end:  # a word that was cut may be another
            return False
        out(_json_of_word(word))
        return True

    def _items(self, closer: str, out: Out, depth: int) -> Reading[bool]:
        text, separator = self._text, ""
        out("[")
        while True:
            yield from text.space()
            if (yield from text.accept(closer)):
                out("]")
                return True
            out(separator)
            separator = ", "
            if not (yield from self._value(out, depth + 1)):
                return False
            yield from text.space()
            yield from text.accept(",")

    def _quoted(self, out: Out) -> Reading[bool]:
        out('"')
        whole = yield from self._string(lambda piece: out(json_text(piece)))
        if whole:
            out('"')
        return whole

    def _string(self, out: Out) -> Reading[bool]:
        """The value of a text; false, with nothing read, where none begins."""
        text = self._text
        if self._raw_quote and (yield from text.accept(self._raw_quote)):
            return (yield from text.value_until((self._raw_quote,), out)) is not None
        first = yield from text.peek()
        if not first or first not in "'\"":
            return False
        text.take(1)
        while True:
            out((yield from text.run(_STRING_STOP)))
            stop = yield from text.peek()
            if not stop:
                return False
            text.take(1)
            if stop == first:
                return True
            out(stop if stop != "\\" else (yield from self._escape()))

    def _escape(self) -> Reading[str]:
        """What a backslash and the characters behind it stand for."""
        kind = yield from self._text.peek()
        written = self._text.take(1)
        if kind not in _HEX_DIGITS:
            return _ESCAPES.get(kind, kind)
        for _ in range(_HEX_DIGITS[kind]):
            yield from self._text.peek()
            written += self._text.take(1)
        try:
            code = int(written[1:], 16)
        except ValueError:
            return "\\" + written
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def _json_of_word(word: str) -> str:
    word = _WORDS.get(word, word)
    try:
        parsed_json(word)
    except ValueError:
        return f'"{json_text(word)}"'
    return word
