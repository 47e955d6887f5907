"""Pastes as the terminal sends them: whole texts, of which nothing is a key."""

from __future__ import annotations

import pytest
from textual import events

from edgeserve.tui.terminal_input import PasteParser

START, END = "\x1b[200~", "\x1b[201~"


def heard(*reads: str) -> list[str]:
    """Each event of what is read: a paste's text, or a key's name."""
    parser = PasteParser()
    found: list[str] = []
    for read in reads:
        for event in parser.feed(read):
            assert isinstance(event, events.Paste | events.Key)
            found.append(event.text if isinstance(event, events.Paste) else event.key)
    return found


def test_nothing_in_a_paste_is_a_key():
    hostile = "a\x1b[31mb\x1b]0;title\x07\x1bOP\x11\r\nrm -rf\r\x1b[<0;1;1M\x03"
    assert heard(f"x{START}{hostile}{END}y") == ["x", hostile, "y"]


def test_a_paste_may_be_cut_anywhere():
    sent = f"ab{START}one\x1b[2two\x1b{END}c"
    for cut in range(1, len(sent)):
        first, second = sent[:cut], sent[cut:]
        if first.endswith(("\x1b", "\x1b[")) and "one" not in first:
            first = "x" * 2000 + first  # a read that is full; a short one ends with a key
        assert [each for each in heard(first, second) if each != "x"] == [
            *("a", "b", "one\x1b[2two\x1b", "c")
        ]


def test_one_character_at_a_time_inside():
    assert heard(START, *f"a\x1b[b{END}", "q") == ["a\x1b[b", "q"]


def test_an_end_that_was_pasted_ends_nothing():
    assert heard(f"{START}a{END}\rrm -rf /\r{END}") == [f"a{END}\rrm -rf /\r"]


def test_two_pastes_are_two():
    assert heard(f"{START}a{END}{START}b{END}") == ["a", "b"]


@pytest.mark.parametrize(
    ("sent", "key"), [("\x1b[A", "up"), ("\x1b[20~", "f9"), ("\x1b[1;5C", "ctrl+right")]
)
def test_keys_are_textuals(sent: str, key: str):
    assert heard(sent) == [key]
    assert heard(sent[:4], sent[4:] or "x")[0] == key


def test_an_escape_alone_is_not_held():
    parser = PasteParser()
    assert list(parser.feed("\x1b")) == []
    assert [event.key for event in parser.feed("\x1b") if isinstance(event, events.Key)] == [
        "escape"
    ]


def test_a_megabyte_comes_in_one_piece():
    text = "0123456789abcde\n" * 2**16
    sent = START + text + END
    assert heard(*(sent[at : at + 4096] for at in range(0, len(sent), 4096))) == [text]
