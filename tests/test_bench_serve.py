"""`edgeserve bench serve`: figures by hand, streams under a fake clock, and whole runs of it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from starlette.responses import JSONResponse, Response

from edgeserve import cli
from edgeserve.bench.load.drive import Concurrent, Poisson, Timer, drive
from edgeserve.bench.load.exchange import Exchange, Failure, FailureKind, Usage
from edgeserve.bench.load.figures import Slo, figures_of, spread
from edgeserve.bench.load.prompts import Shape, chats
from edgeserve.bench.load.stream import Ask, Message, Place, exchange
from edgeserve.errors import InvalidRequestError
from edgeserve.event_stream import events

from .scripted_server import answer, chunk, event, serving, stream

FAILED = Failure(FailureKind.REFUSED, "429 slow down")


def exchanged(
    sent: float = 0.0, pieces: Sequence[float] = (), ended: float = 10.0, **more: Any
) -> Exchange:
    return Exchange(0, 0, more.pop("due", sent), sent, ended, tuple(pieces), **more)


# --- figures -------------------------------------------------------------------------------------


def test_times_are_from_sending_and_tokens_are_the_servers() -> None:
    """Two events of five tokens: four of them came after the first event, in two seconds."""
    found = exchanged(1.0, (1.5, 3.5), usage=Usage(10, 5))
    assert (found.ttft_s, found.tpot_s, found.gaps_s) == (0.5, 0.5, (2.0,))


def test_an_uncounted_answer_has_a_token_an_event() -> None:
    found = exchanged(0.0, (1.0, 2.0, 4.0))
    assert (found.num_tokens, found.tpot_s, found.gaps_s) == (3, 1.5, (1.0, 2.0))


@pytest.mark.parametrize("pieces", [(), (1.0,)])
def test_an_answer_of_one_piece_has_no_tpot(pieces: tuple[float, ...]) -> None:
    assert exchanged(0.0, pieces, usage=Usage(10, 7)).tpot_s is None


def test_percentiles_lie_between_values() -> None:
    found = spread([*range(100, -1, -1), None])
    assert found is not None
    assert (found.count, found.mean, found.max) == (101, 50.0, 100)
    assert (found.p50, found.p90, found.p99) == pytest.approx((50, 90, 99))


def test_one_value_is_all_percentiles_and_none_is_no_spread() -> None:
    one = spread([7.0])
    assert one is not None
    assert {one.mean, one.p50, one.p90, one.p99, one.max} == {7.0}
    assert spread([None]) is None


def test_rates_are_over_the_wall_and_failures_give_no_tokens() -> None:
    found = figures_of(
        [
            exchanged(2.0, (3.0, 4.0), ended=4.0, usage=Usage(10, 6, 8)),
            exchanged(3.0, (6.0, 7.0), ended=12.0, usage=Usage(20, 4, 0), due=2.5),
            exchanged(3.0, (4.0,), ended=5.0, failure=FAILED),
        ],
        Slo(),
    )
    assert (found.num_requests, found.num_answered, found.wall_s) == (3, 2, 10.0)
    assert (found.prompt_tokens, found.cached_tokens, found.output_tokens) == (30, 8, 10)
    assert (found.output_tokens_per_s, found.requests_per_s) == (1.0, 0.2)
    assert (found.goodput, found.late_s) == (None, 0.5)
    assert found.failures == {"refused 429": 1}


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        (Slo(ttft_s=1.0), 2),
        (Slo(tpot_s=0.5), 2),
        (Slo(ttft_s=1.0, tpot_s=0.5), 1),
        (Slo(ttft_s=0.1), 0),
        (Slo(ttft_s=100, tpot_s=100), 3),
    ],
)
def test_goodput_counts_requests_that_keep_all_limits(slo: Slo, good: int) -> None:
    found = figures_of(
        [
            exchanged(0.0, (0.5, 1.0), ended=4.0),  # kept both: 0.5, 0.5
            exchanged(0.0, (1.0, 3.0), ended=4.0),  # TTFT kept, TPOT 2
            exchanged(0.0, (2.0,), ended=4.0),  # TTFT 2, nothing after it
            exchanged(0.0, (0.1,), ended=4.0, failure=FAILED),
        ],
        slo,
    )
    assert (found.good_requests, found.goodput) == (good, good / 4)


def test_failures_are_sorted_by_count_and_status() -> None:
    broken = Failure(FailureKind.BROKEN, "peer closed connection")
    down = Failure(FailureKind.REFUSED, "503 loading")
    found = figures_of([exchanged(failure=each) for each in (down, broken, down, FAILED)], Slo())
    assert list(found.failures.items()) == [("refused 503", 2), ("broken", 1), ("refused 429", 1)]
    assert (found.num_answered, found.ttft) == (0, None)


# --- what is sent --------------------------------------------------------------------------------


def test_a_seed_gives_the_same_chats_and_another_shares_the_prefix_only() -> None:
    shape = Shape(3, turns=2, shared_prefix=40, unique=5)
    ours, again, others = (tuple(chats(shape, seed)) for seed in (1, 1, 2))
    assert ours == again
    assert {chat.system for chat in ours} == {chat.system for chat in others}
    texts = [text for chat in (*ours, *others) for text in chat.turns]
    assert len(set(texts)) == 2 * 3 * 2
    assert len(ours[0].system.split()) - len(next(chats(Shape(1), 0)).system.split()) == 40


def test_chats_after_others_are_those_of_one_longer_load() -> None:
    assert tuple(chats(Shape(2), 0, first=3)) == tuple(chats(Shape(5), 0))[3:]


def test_arrivals_are_poisson_at_the_rate() -> None:
    """Mean and standard deviation of the gaps are both 1/rate, within 4 of their own deviations."""
    arrivals = list(itertools.islice(Poisson(5.0, seed=3).arrivals(), 4001))
    assert arrivals[0] == 0
    gaps = [b - a for a, b in itertools.pairwise(arrivals)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(0.2, rel=0.07)
    assert deviation == pytest.approx(0.2, rel=0.1)
    assert arrivals == list(itertools.islice(Poisson(5.0, seed=3).arrivals(), 4001))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("--requests", lambda: Shape(0)),
        ("--turns", lambda: Shape(1, turns=0)),
        ("--shared-prefix", lambda: Shape(1, shared_prefix=-1)),
        ("--unique", lambda: Shape(1, unique=0)),
        ("--rate", lambda: Poisson(0.0)),
        ("--rate", lambda: Poisson(float("nan"))),
        ("--concurrency", lambda: Concurrent(0)),
        ("--max-tokens", lambda: Ask("m", 0)),
        ("--slo-ttft", lambda: Slo(ttft_s=0.0)),
        ("--slo-tpot", lambda: Slo(tpot_s=float("nan"))),
    ],
)
def test_a_load_that_means_nothing_is_refused(name: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        make()
    assert caught.value.parameter == name


# --- when it is sent -----------------------------------------------------------------------------


class FakeTime:
    """A clock that only sleeping moves: to the earliest of those that sleep, when nothing runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    async def sleep(self, seconds: float) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), wake))
        await wake

    @property
    def timer(self) -> Timer:
        return Timer(lambda: self.now, self.sleep)

    async def run(self, work: Awaitable[tuple[Exchange, ...]]) -> tuple[Exchange, ...]:
        task = asyncio.ensure_future(work)
        while not task.done():
            for _ in range(20):  # whatever is ready goes as far as it can
                await asyncio.sleep(0)
            if self._sleepers:
                self.now, _, wake = heapq.heappop(self._sleepers)
                wake.set_result(None)
        return task.result()


class FakeServer:
    """Answers after a time, and counts how many requests are with it."""

    def __init__(self, time: FakeTime, seconds: Callable[[Place], float]) -> None:
        self.most_at_once = 0
        self.messages: dict[tuple[int, int], list[Message]] = {}
        self.failing: tuple[int, int] | None = None
        self._time, self._seconds, self._now_here = time, seconds, 0

    async def __call__(self, messages: Sequence[Message], place: Place) -> tuple[Exchange, str]:
        sent = self._time.now
        self.messages[place.chat, place.turn] = list(messages)
        self._now_here += 1
        self.most_at_once = max(self.most_at_once, self._now_here)
        await self._time.sleep(self._seconds(place))
        self._now_here -= 1
        failure = FAILED if (place.chat, place.turn) == self.failing else None
        found = Exchange(
            place.chat, place.turn, place.due, sent, self._time.now, (sent,), failure=failure
        )
        return found, f"answer {place.chat}.{place.turn}"


def driven(
    pacing: Poisson | Concurrent, shape: Shape, seconds: Callable[[Place], float], **more: Any
) -> tuple[FakeServer, tuple[Exchange, ...]]:
    time = FakeTime()
    server = FakeServer(time, seconds)
    server.failing = more.get("failing")
    return server, asyncio.run(time.run(drive(chats(shape, 0), pacing, server, time.timer)))


def test_so_many_at_a_time_and_the_next_begins_when_one_ends() -> None:
    server, found = driven(Concurrent(2), Shape(4), lambda place: [1.0, 3.0, 1.0, 1.0][place.chat])
    assert server.most_at_once == 2
    assert [(each.sent, each.ended) for each in found] == [(0, 1), (0, 3), (1, 2), (2, 3)]


def test_poisson_chats_begin_on_time_whatever_is_still_running() -> None:
    pacing = Poisson(2.0, seed=9)
    server, found = driven(pacing, Shape(6), lambda _: 100.0)
    assert [each.sent for each in found] == list(itertools.islice(pacing.arrivals(), 6))
    assert server.most_at_once == 6


def test_turns_follow_one_another_with_the_answers_between() -> None:
    server, found = driven(Concurrent(1), Shape(1, turns=3), lambda _: 2.0)
    assert [(each.due, each.sent, each.ended) for each in found] == [
        (0, 0, 2),
        (2, 2, 4),
        (4, 4, 6),
    ]
    roles = [message["role"] for message in server.messages[0, 2]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [server.messages[0, 2][i]["content"] for i in (2, 4)] == ["answer 0.0", "answer 0.1"]
    assert server.messages[0, 2][:2] == server.messages[0, 0]


def test_a_chat_ends_with_its_first_failure_and_others_go_on() -> None:
    _, found = driven(Concurrent(2), Shape(2, turns=2), lambda _: 1.0, failing=(0, 0))
    assert [(each.chat, each.turn) for each in found] == [(0, 0), (1, 0), (1, 1)]


# --- streams -------------------------------------------------------------------------------------


class Timed(httpx.AsyncByteStream):
    """Bytes that come at given times, or an error instead."""

    def __init__(self, time: FakeTime, parts: Sequence[tuple[float, bytes | Exception]]) -> None:
        self._time, self._parts = time, parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at, data in self._parts:
            self._time.now = at
            if isinstance(data, Exception):
                raise data
            yield data


def streamed(parts: Sequence[tuple[float, bytes | str | Exception]]) -> tuple[Exchange, str]:
    time = FakeTime()
    coded = [(at, data.encode() if isinstance(data, str) else data) for at, data in parts]

    async def run() -> tuple[Exchange, str]:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Timed(time, coded)))
        async with httpx.AsyncClient(transport=transport, base_url="http://test/v1/") as client:
            place = Place(3, 1, 0.0)
            return await exchange(client, Ask("m", 8), [], place, lambda: time.now)

    return asyncio.run(run())


def test_only_events_with_text_are_pieces() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": None}
    found, text = streamed(
        [
            (1.0, ": ping\n\n"),
            (2.0, chunk("")),
            (3.0, event({"choices": [{"delta": {"reasoning_content": "hm"}}]})),
            (4.0, chunk("a") + chunk("b")),
            (6.0, chunk(finish_reason="stop")),
            (7.0, event({"choices": [], "usage": usage})),
            (8.0, "data: [DONE]\n\n"),
        ]
    )
    assert found == Exchange(3, 1, 0.0, 0.0, 8.0, (3.0, 4.0, 4.0), Usage(9, 5), "stop")
    assert text == "ab"


@pytest.mark.parametrize(
    ("last", "kind", "detail"),
    [
        (httpx.ReadTimeout("no bytes"), FailureKind.TIMEOUT, "no bytes"),
        (httpx.RemoteProtocolError("cut"), FailureKind.BROKEN, "cut"),
        ("data: {oops\n\n", FailureKind.MALFORMED, "JSON is malformed"),
        (event({"choices": 3}), FailureKind.MALFORMED, "got `int` - at `$.choices`"),
        (event({"error": {"message": "out of luck"}}), FailureKind.ERROR_EVENT, "out of luck"),
        ("", FailureKind.UNFINISHED, "no finish_reason and no [DONE]"),
    ],
)
def test_each_way_to_fail_is_told(last: str | Exception, kind: FailureKind, detail: str) -> None:
    found, text = streamed([(1.0, chunk("a")), (2.0, last)])
    assert found.failure is not None
    assert found.failure.kind is kind
    assert detail in found.failure.detail
    assert (found.pieces, found.ended, text) == ((1.0,), 2.0, "a")


def test_an_end_without_done_is_well_if_it_was_said_why() -> None:
    found, _ = streamed([(1.0, chunk("a")), (2.0, chunk(finish_reason="stop"))])
    assert (found.failure, found.finish_reason) == (None, "stop")


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_are_the_same_however_bytes_are_cut(size: int) -> None:
    """CRLF, a comment, a field without a space, two data lines, and U+2028 inside a string."""
    text = "data: a\u2028b\r\n\r\n: no\n\nevent: x\ndata:1\ndata: 2\n\ndata: lost".encode()

    async def cut() -> AsyncIterator[bytes]:
        for i in range(0, len(text), size):
            yield text[i : i + size]

    async def run() -> list[bytes]:
        return [data async for data in events(cut())]

    assert asyncio.run(run()) == ["a\u2028b".encode(), b"1\n2"]


# --- the command ---------------------------------------------------------------------------------


def bench(*arguments: str) -> int:
    return cli.main(["bench", "serve", *arguments])


def test_a_run_prints_a_table_and_writes_json_and_a_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, plot = tmp_path / "out.json", tmp_path / "out.svg"
    options = ["--requests", "5", "--turns", "2", "--warmup", "2", "--concurrency", "2"]
    slo = ["--slo-ttft", "60000", "--slo-tpot", "60000"]
    with serving(lambda _: answer(["one ", "two ", "three"])) as server:
        files = ["--json", str(out), "--plot", str(plot)]
        assert bench(server.url, *options, *slo, *files, "--api-key", "secret") == 0
    printed = capsys.readouterr().out
    for expected in ("model tiny", "10 of 10 in", "100 tokens, 40 of them cached", "TTFT", "ITL"):
        assert expected in printed
    report = json.loads(out.read_text())
    figures = report["figures"]
    assert (figures["num_answered"], figures["output_tokens"], figures["is_counted"]) == (
        10,
        30,
        True,
    )
    assert (figures["good_requests"], figures["failures"]) == (10, {})
    assert figures["itl"]["count"] == 20
    assert [(each["chat"], each["turn"]) for each in report["requests"]] == [
        (chat, turn) for chat in range(5) for turn in range(2)
    ]
    assert "secret" not in out.read_text() + printed
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")
    assert len(server.asked) == 12
    assert set(server.keys) == {"Bearer secret"}
    assert server.asked[0]["model"] == "tiny"
    assert server.asked[0]["stream_options"] == {"include_usage": True}
    assert "ignore_eos" not in server.asked[0]


def test_refusals_are_counted_and_shown_and_the_rest_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    turns = itertools.count()

    def every_third(_: dict[str, Any]) -> Response:
        if next(turns) % 3 == 2:
            return JSONResponse({"error": {"message": "queue is full"}}, status_code=429)
        return answer(["word"])

    with serving(every_third) as server:
        options = ["--requests", "6", "--warmup", "0", "--rate", "1000", "--ignore-eos"]
        assert bench(server.url, *options, "--model", "mine") == 0
    printed = capsys.readouterr().out
    assert "2 of 6 requests failed: refused 429: 429 queue is full" in printed
    assert {body["model"] for body in server.asked} == {"mine"}
    assert all(body["ignore_eos"] for body in server.asked)


def test_a_server_that_does_not_count_is_said_to(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda _: stream([chunk("a"), chunk("b", "stop")])) as server:
        assert bench(f"{server.url}/v1/", "--requests", "1") == 0
    printed = capsys.readouterr().out
    assert "did not count tokens" in printed
    assert "2 tokens" in printed


def test_nothing_answered_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    body = {"error": {"message": "no such model"}}
    with serving(lambda _: JSONResponse(body, status_code=404)) as server:
        assert bench(server.url, "--requests", "2") == 1
    assert "none of 1 requests" in (error := capsys.readouterr().err)
    assert "refused: 404 no such model" in error


def test_no_server_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    assert bench(f"127.0.0.1:{port}") == 1
    assert f"no server answers at http://127.0.0.1:{port}/v1" in capsys.readouterr().err


def test_a_server_without_a_model_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(models=()) as server:
        assert bench(server.url) == 1
    assert "name one with --model" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["ftp://host/", "http://", "http://host:port"])
def test_what_is_no_url_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(url) == 2
    assert "a server's address" in capsys.readouterr().err


def test_bench_of_a_model_keeps_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    """A model file that is called `serve` is `./serve`, as it is for a shell."""
    assert cli.main(["bench", "./serve", "--quick"]) == 5
    assert "serve" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["bench", "--quick", "serve", "--help"])
    assert "pp" in capsys.readouterr().out
