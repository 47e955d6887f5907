"""Stop strings: where they are found, what is held back, and that pieces do not matter."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.engine.stop_strings import StopStrings

PIECE_SECONDS = 5 * 0.002


def whole(stops: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """The definition, character by character, with nothing clever."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            stop = max(ended, key=len)
            return text[: end - len(stop)], stop
    return text, None


def streamed(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    matcher, out = StopStrings(stops), ""
    for piece in pieces:
        text, stop = matcher.feed(piece)
        out += text
        if stop is not None:
            return out, stop
    return out + matcher.finish(), None


@pytest.mark.parametrize(
    ("stops", "text", "expected"),
    [
        (("ta gam",), "alpha beta gamma delta", ("alpha be", "ta gam")),
        ((">>>>>>> UPDATED",), "code >>>>>>> UPD", ("code >>>>>>> UPD", None)),
        (("STOP", "STOPPED"), "I STOPPED", ("I ", "STOP")),
        (("b", "abc"), "zabc", ("za", "b")),
        (("bc", "abc"), "zabc", ("z", "abc")),
        (("aab",), "aaab", ("a", "aab")),
        ((), "anything", ("anything", None)),
        (("x",), "", ("", None)),
        (("😀!",), "so 😀😀!", ("so 😀", "😀!")),
    ],
)
def test_text_ends_before_the_stop_however_it_is_cut(
    stops: tuple[str, ...], text: str, expected: tuple[str, str | None]
) -> None:
    assert streamed(stops, [text]) == expected
    assert streamed(stops, list(text)) == expected
    for at in range(len(text) + 1):
        assert streamed(stops, [text[:at], text[at:]]) == expected


@given(
    st.lists(st.text("ab", min_size=1, max_size=5), max_size=4).map(tuple),
    st.lists(st.text("abc", max_size=6), max_size=8),
)
def test_pieces_do_not_matter(stops: tuple[str, ...], pieces: list[str]) -> None:
    assert streamed(stops, pieces) == whole(stops, "".join(pieces))


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3).map(tuple),
    st.text("ab", max_size=12),
)
def test_only_what_may_begin_a_stop_is_held_back(stops: tuple[str, ...], text: str) -> None:
    matcher = StopStrings(stops)
    out, stop = matcher.feed(text)
    if stop is None:
        held = text[len(out) :]
        assert held == "" or any(s.startswith(held) for s in stops)
        assert not any(s.startswith(text[at:]) for s in stops for at in range(len(out)))


def test_finish_gives_what_was_held_once() -> None:
    matcher = StopStrings(["abc"])
    assert matcher.feed("xab") == ("x", None)
    assert matcher.finish() == "ab"
    assert matcher.finish() == ""


@pytest.mark.parametrize("last", ["a", "b"])
def test_long_stops_and_long_runs_of_their_beginning_are_quick(last: str) -> None:
    stops = ["a" * (2000 + i) + "!" for i in range(64)]
    matcher = StopStrings(stops)
    pieces = ["a"] * 2000 + [last] * 100
    start = time.process_time()
    for piece in pieces:
        assert matcher.feed(piece)[1] is None
    assert (time.process_time() - start) / len(pieces) < PIECE_SECONDS
