"""Text that came from elsewhere, made safe for a terminal: what would act or hide is spelled.

Knows nothing of widgets. Every answer, paste, title, file name and error passes `shown` once.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from rich.cells import cell_len, set_cell_size

_TAB_CELLS = 4
_MAX_MARKS = 4
"""Combining marks on one character: Vietnamese needs two, pointed Hebrew three."""

_EMOJI = "\u00a9\u00ae\u203c\u2049\u2100-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_JOINING_LETTERS = "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\u0900-\u0dff\u1780-\u17ff\u1820-\u18aa"
"""Scripts whose spelling needs a zero-width (non-)joiner between two letters."""

_HIDDEN = (
    "\x00-\x09\x0b-\x1f\x7f-\x9f"  # C0 but the newline, DEL, C1
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Controls, bidi controls, what takes no room and what is blank though it is a letter."""

_ACTS_IN_ASCII = re.compile("[\x00-\x09\x0b-\x1f\x7f]")


def shown(text: str, *, is_ascii: bool = False) -> str:
    """`text` as it may be written to a terminal: lines ended by "\\n", no other control.

    Escape sequences, bidi controls, invisible characters and lone surrogates are spelled where
    they stand, tabs become spaces, and marks piled on one character end in an ellipsis.
    Idempotent. With `is_ascii` the marks themselves are ASCII; the text's letters stay.
    """
    if text.isascii() and _ACTS_IN_ASCII.search(text) is None:
        return text
    text = text.replace("\r\n", "\n")
    if _suspicious().search(text) is None:
        return text
    spell = _spelled_in_ascii if is_ascii else _spelled
    return _suspects().sub(spell, text).expandtabs(_TAB_CELLS)


def shown_line(text: str, *, is_ascii: bool = False) -> str:
    """The same in one line: for titles, file names and model names."""
    return " ".join(shown(text, is_ascii=is_ascii).split("\n"))


def written(text: str, *, is_ascii: bool = False) -> str:
    """The same for a field that is written in: tabs stay, for they are part of what is written."""
    return "\t".join(shown(part, is_ascii=is_ascii) for part in text.split("\t"))


def cut(text: str, cells: int, ellipsis: str) -> str:
    """At most so wide; what was cut off is marked."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, max(0, cells - len(ellipsis))).rstrip() + ellipsis


@cache
def _suspicious() -> re.Pattern[str]:
    """Finds quickly that there is nothing to do, as in most texts beyond ASCII."""
    return re.compile(f"[{_HIDDEN}]|[{_marks()}]{{{_MAX_MARKS + 1}}}")


@cache
def _suspects() -> re.Pattern[str]:
    one = f"[{_EMOJI}][\U0001f3fb-\U0001f3ff]?[\ufe0e\ufe0f]?"
    return re.compile(
        "(?P<kept>"
        f"{one}(?:\u200d{one}){{0,6}}"
        "|(?<=[0-9#*])\ufe0f(?=\u20e3)"
        f"|(?<=[{_JOINING_LETTERS}])[\u200c\u200d](?=[{_JOINING_LETTERS}])"
        "|\t)"
        f"|(?P<hidden>[{_HIDDEN}])"
        f"|(?P<piled>(?P<few>[{_marks()}]{{{_MAX_MARKS}}})[{_marks()}]+)"
    )


@cache
def _marks() -> str:
    """The characters that are drawn over the one before, as the inside of a regex set."""
    hidden = re.compile(f"[{_HIDDEN}]")
    ranges: list[tuple[int, int]] = []
    for code in (*range(0x300, 0xFE30), *range(0x1D165, 0x1D245)):
        if unicodedata.category(chr(code)) not in ("Mn", "Me") or hidden.match(chr(code)):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


def _spelled(match: re.Match[str]) -> str:
    if (kept := match["kept"]) is not None:
        return kept
    if match["piled"] is not None:
        return match["few"] + "…"
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else _escape(code)


def _spelled_in_ascii(match: re.Match[str]) -> str:
    if (kept := match["kept"]) is not None:
        return kept
    if match["piled"] is not None:
        return match["few"] + "..."
    code = ord(match[0])
    return "^" + chr(code ^ 0x40) if code < 0x20 or code == 0x7F else _escape(code)


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
