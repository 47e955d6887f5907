"""Text from elsewhere does nothing to a terminal, and hides nothing."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeserve.tui.terminal_text import shown, shown_line

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
NASTY = (
    "\x00\x07\x08\t\n\r\x1b\x7f\x80\x9b\x9d"
    + BIDI
    + "\u00ad\u034f\u200b\u200c\u200d\u2028\u2060\ufe0e\ufe0f\ufeff\ud800\udfff\U000e0041\U000e0100"
    + "a 1#\u0301\u0300\u0489\u20e3é中\u0628\u0915👩🏽❤🇩🇪"
)
texts = st.text(st.one_of(st.sampled_from(NASTY), st.characters()), max_size=60)


@given(texts, st.booleans())
@settings(deadline=None)
def test_nothing_shown_acts_on_a_terminal(text: str, is_ascii: bool) -> None:
    result = shown(text, is_ascii=is_ascii)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in result.replace("\n", ""))
    assert not set(result) & set(BIDI)
    result.encode()  # no lone surrogate


@given(texts, st.booleans())
@settings(deadline=None)
def test_shown_twice_is_shown_once(text: str, is_ascii: bool) -> None:
    once = shown(text, is_ascii=is_ascii)
    assert shown(once, is_ascii=is_ascii) == once


@given(st.lists(texts, max_size=4))
@settings(deadline=None)
def test_lines_are_neutralised_one_by_one(lines: list[str]) -> None:
    lines = [line.replace("\n", "").replace("\r", "") for line in lines]
    assert shown("\n".join(lines)) == "\n".join(shown(line) for line in lines)


@given(st.text(st.sampled_from("e\u0301\u0489\u0e31"), max_size=200))
@settings(deadline=None)
def test_marks_do_not_pile_up(text: str) -> None:
    pile = highest = 0
    for char in shown(text):
        pile = pile + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        highest = max(highest, pile)
    assert highest <= 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text\n", "plain text\n"),
        ("a\x1b[2Jb", "a␛[2Jb"),
        ("\x1b]52;c;ZXZpbA==\x07", "␛]52;c;ZXZpbA==␇"),
        ("\x9b31m", "\\x9b31m"),
        ("sure\rnot ", "sure␍not "),
        ("one\r\ntwo", "one\ntwo"),
        ("abc\x08\x08", "abc␈␈"),
        ("\x7f", "␡"),
        ("file\u202etxt.exe", "file\\u202etxt.exe"),
        ("pass\u200bword", "pass\\u200bword"),
        ("hi\U000e0041\U000e0042", "hi\\U000e0041\\U000e0042"),
        ("\ud83d", "\\ud83d"),
        ("a\tb", "a   b"),
        ("中\tb", "中   b"),
        ("e" + "\u0301" * 9 + "x", "e" + "\u0301" * 4 + "…x"),
        ("naïve, 日本語, नमस्ते", "naïve, 日本語, नमस्ते"),
        (
            "👩\u200d👩\u200d👧 ❤\ufe0f 1\ufe0f\u20e3 👍🏽",
            "👩\u200d👩\u200d👧 ❤\ufe0f 1\ufe0f\u20e3 👍🏽",
        ),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("a\u200db", "a\\u200db"),
    ],
)
def test_what_acts_or_hides_is_spelled(text: str, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("\x1b[m", "^[[m"), ("\x7f", "^?"), ("\x85", "\\x85"), ("é", "é"), ("\r", "^M")],
)
def test_marks_are_ascii_where_asked(text: str, expected: str) -> None:
    assert shown(text, is_ascii=True) == expected


def test_a_title_is_one_line() -> None:
    assert shown_line("one\ntwo\tthree\x1b") == "one two three␛"


def test_a_chain_of_joined_emoji_is_bounded() -> None:
    assert "\\u200d" in shown("👩\u200d" * 50 + "👩")
