"""What is waited for: how long a download will take, and for how long a server has been silent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgeserve.errors import ServerUnreachableError
from edgeserve.tui import signs
from edgeserve.tui.client import AnswerEnd, AnswerPiece, LoadProgress, OfferedModel, PromptReading
from edgeserve.tui.fetch_pace import FetchPace
from edgeserve.tui.pace import Pace
from edgeserve.tui.wording import loading

from .chat_app import NOW, StandingClock, Table, drive
from .fake_chat_client import IN_USE, FakeClient

MB = 1_000_000


def _saw(
    pace: FetchPace, clock: StandingClock, done: int, at: float, total: int | None = 100 * MB
) -> None:
    clock.now = NOW + at
    pace.saw(LoadProgress("download", done, total, "x"))


def test_the_time_that_is_left_is_of_the_bytes_of_the_last_seconds():
    clock = StandingClock()
    pace = FetchPace(clock)
    _saw(pace, clock, 0, 0)
    for second in range(1, 11):
        _saw(pace, clock, second * MB, second)
    assert pace.seconds_left == pytest.approx(90)
    for tenth in range(1, 121):  # now at five times the speed, long enough that nothing else counts
        _saw(pace, clock, 10 * MB + tenth * MB // 2, 10 + tenth / 10)
    assert pace.seconds_left == pytest.approx(30 / 5)


def test_a_part_that_was_there_already_is_no_speed():
    clock = StandingClock()
    pace = FetchPace(clock)
    _saw(pace, clock, 0, 0)
    _saw(pace, clock, 50 * MB, 1)
    clock.now += 1
    assert pace.seconds_left is None
    for second in range(3, 8):
        _saw(pace, clock, 50 * MB + (second - 1) * MB, second)
    assert pace.seconds_left == pytest.approx(44)


def test_another_file_is_another_pace():
    clock = StandingClock()
    pace = FetchPace(clock)
    for second in range(8):
        _saw(pace, clock, second * 10 * MB, second)
    _saw(pace, clock, 0, 9)
    _saw(pace, clock, MB, 10)
    assert pace.seconds_left is None


def test_where_nothing_comes_no_time_is_promised():
    clock = StandingClock()
    pace = FetchPace(clock)
    for second in range(5):
        _saw(pace, clock, second * MB, second)
    clock.now += 12
    assert pace.seconds_left is None
    assert pace.silent_s == pytest.approx(12)
    _saw(pace, clock, 5 * MB, 16.1)
    assert pace.silent_s == 0


def test_of_an_unknown_size_nothing_is_told_but_what_came():
    clock = StandingClock()
    pace = FetchPace(clock)
    for second in range(6):
        _saw(pace, clock, second * MB, second, None)
    assert pace.seconds_left is None


@pytest.mark.parametrize(
    ("progress", "left_s", "silent_s", "said"),
    [
        (None, None, 0.0, "loading tiny…"),
        (LoadProgress("load", 0, 9), None, 41.0, "loading tiny… · 41 s"),
        (LoadProgress("load", 3, 9), None, 0.0, "loading tiny · 33 %"),
        (
            LoadProgress("download", 10 * MB, 40 * MB, "tiny"),
            200.0,
            0.0,
            "fetching tiny · 10.0 MB of 40.0 MB · 25 % · 3 min left",
        ),
        (
            LoadProgress("download", 10 * MB, 40 * MB, "tiny"),
            None,
            75.0,
            "fetching tiny · 10.0 MB of 40.0 MB · 25 % · stalled for 75 s",
        ),
        (
            LoadProgress("download", 10 * MB, 40 * MB, "checking tiny"),
            None,
            0.0,
            "checking tiny · 10.0 MB of 40.0 MB · 25 %",
        ),
        (LoadProgress("download", 0, None, "waiting for it"), None, 0.0, "waiting for it"),
    ],
)
def test_how_far_a_model_is_in_words(
    progress: LoadProgress | None, left_s: float | None, silent_s: float, said: str
):
    found = loading("tiny", progress, signs.UNICODE, left_s=left_s, silent_s=silent_s)
    assert found == said


def test_a_pace_is_silent_only_while_nothing_comes():
    pace = Pace()
    pace.saw(0, ("asked", 0), 0.0)
    pace.saw(0, ("asked", 0), 2.0)
    assert pace.silent_s == 0
    pace.saw(0, ("asked", 0), 12.0)
    assert pace.silent_s == 12
    pace.saw(0, ("asked", 1), 13.0)
    assert pace.silent_s == 0


def _three_pieces() -> Sequence[AnswerPiece | PromptReading | AnswerEnd]:
    reading = PromptReading(28_100, 0, 12_400, 41.0)
    return (reading, AnswerPiece("Half"), AnswerPiece(" an answer"), AnswerEnd("stop"))


@pytest.mark.parametrize(("place", "who"), [("this machine", "engine"), ("http://x:1", "server")])
def test_who_is_silent_is_said_and_for_how_long(tmp_path: Path, place: str, who: str):
    client = FakeClient(model=IN_USE, place=place)
    client.will_answer(_three_pieces())  # type: ignore[arg-type]
    client.hold()

    async def body(table: Table) -> None:
        await table.type("Hi", "enter")
        await table.until(lambda: client.answers)
        await table.shows("answering…")
        await table.later(12)
        await table.shows(f"waiting for the {who} · 12 s")
        await table.shows("esc stop")
        await client.let(1)
        await table.shows("reading prompt 12,400 / 28,100 · 41 s left")
        await table.later(30)
        await table.shows("reading prompt 12,400 / 28,100 · nothing for 30 s")
        await client.let(1)
        await table.until(lambda: "nothing for" not in table.screen())
        await table.later(200)
        await table.shows("answering · nothing for 3 min")
        await client.release()

    drive(tmp_path, body, client=client)


class _SilentServer(FakeClient):
    """Does not answer what it is asked for its models, until it is let."""

    def __init__(self, fails: bool) -> None:
        super().__init__(model=IN_USE, place="http://x:1")
        self.may = asyncio.Event()
        self._fails = fails

    async def models(self) -> Sequence[OfferedModel]:
        await self.may.wait()
        if self._fails:
            raise ServerUnreachableError("http://x:1", "it is gone")
        return await super().models()


def test_a_list_of_models_that_does_not_come_can_be_left(tmp_path: Path):
    client = _SilentServer(fails=False)

    async def body(table: Table) -> None:
        await table.pilot.press("f4")
        await table.shows("Looking…")
        await table.pilot.press("escape")
        await table.until(lambda: len(table.app.screen_stack) == 1)
        await table.pilot.press("f4")
        client.may.set()
        await table.shows("kept by Ollama")

    drive(tmp_path, body, client=client)


def test_a_list_of_models_that_fails_says_why(tmp_path: Path):
    client = _SilentServer(fails=True)
    client.may.set()

    async def body(table: Table) -> None:
        await table.pilot.press("f4")
        await table.says("it is gone")
        await table.pilot.press("escape")
        await table.until(lambda: len(table.app.screen_stack) == 1)
        await table.ask("Still here")

    drive(tmp_path, body, client=client)


def test_models_are_found_by_what_is_typed(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.pilot.press("f4")
        await table.shows("kept by Ollama")
        await table.pilot.press(*"BIG")
        await table.until(lambda: "kept by Ollama" not in table.screen())
        await table.shows("Apache 2.0")
        await table.pilot.press(*["backspace"] * 3, *"tiny mit")
        await table.shows("kept by Ollama")
        assert "Apache 2.0" not in table.screen()
        await table.pilot.press("x")
        await table.shows("None is called so")
        await table.pilot.press("enter")
        await table.shows("None is called so")
        await table.pilot.press(*["backspace"] * 9, "down", "enter")
        await table.until(lambda: table.client.used == ["big"])

    drive(tmp_path, body)
