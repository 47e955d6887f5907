"""Many streams over real sockets, and clients that leave, stall and break: nothing leaks or stalls.

    python tools/soak_server.py MODEL.gguf [--minutes 10] [--streams 64] [--pool-tokens N]
                                [--tokens 300] [--seed 0] [--json FILE]

`edgeserve serve` runs as a process of its own. A few dozen requests to all four surfaces that
stream (prompts that begin alike, temperature 1, seeds) are answered one at a time by a server
without drafts and without a store first. Then so many clients at once ask another, whose pool holds
a quarter of what they want: most read to the end; some stop reading for seconds and go on; some
leave, by a reset, a close or half a close, before their request is whole, while it waits, right
after the headers, or in the middle of the text. Every text that came must be the recorded one or
its beginning, and nothing may be answered with a 5xx. No healthy stream may be silent for longer
than twice the median of whole answers and a second, less what the machine stood still. In the end
no request and no block is held, no file descriptor is left, memory neither grew (by its last third)
nor went past what was declared (the model's file and a fifth, the pool, and 160 MiB), and the
server ends by itself, in time. Exits with 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from soak_clients import Client, Heard, Question, questions
from soak_facts import Memory, Tally

from edgeserve.loader.gguf import read_gguf
from edgeserve.models import build_plan
from edgeserve.runner.native_runner import num_cores

MIB = 1 << 20
NUM_ASKED = 32
SHUTDOWN_SECONDS = 5
_SERVER_MIB = 160  # the engine's 100, and what HTTP, clients and constraints may take
_READY_SECONDS = 120
_MOST_STALL = 5.0  # seconds for which a slow reader does not read
_FREE_SECONDS = 10.0  # in which all must be given back when the last client has gone
_LATE = 1.5  # seconds that a second takes when the machine stands still
_SHOWN = 20


class ServerProcess:
    """`edgeserve serve` on a free port. Its log is a file: a full pipe would hold it."""

    def __init__(self, model: Path, folder: Path, *options: str) -> None:
        self._log = folder / "server.log"
        program = "from edgeserve.cli import program; program()"
        command = [sys.executable, "-c", program, "serve", str(model), "--port", "0"]
        quiet = ["--log-level", "warning", "--shutdown-seconds", str(SHUTDOWN_SECONDS)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *quiet, *options],
                stderr=log,
                env={**os.environ, "EDGESERVE_CACHE": str(folder)},
            )
        self.port = self._ready()

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _ready(self) -> int:
        end = time.monotonic() + _READY_SECONDS
        while (found := re.search(r"is ready at http://127\.0\.0\.1:(\d+)/", self.said)) is None:
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the server is not ready: {self.said[-2000:]}")
            time.sleep(0.05)
        return int(found[1])

    def metrics(self) -> dict[str, float]:
        """By name; labels are dropped, and what differs by them is added up."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        found: dict[str, float] = {}
        for line in lines:
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{")[0]
                found[name] = found.get(name, 0.0) + float(value)
        return found

    @property
    def num_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def num_threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def end(self) -> tuple[int, float]:
        """Its exit status, and the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        return status, time.monotonic() - began


@contextmanager
def serving(model: Path, folder: Path, *options: str) -> Iterator[ServerProcess]:
    server = ServerProcess(model, folder, *options)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


async def alone(port: int, asked: Sequence[Question]) -> list[str]:
    """Each question's text when nobody else asks."""
    texts: list[str] = []
    for question in asked:
        async with Client(port, question) as client:
            client.send()
            status = await client.head()
            heard = await client.hear()
        if status != 200 or not heard.is_whole or not heard.text:
            raise SystemExit(f"{question} alone is answered with {status}: {heard}")
        texts.append(heard.text)
    return texts


class Crowd:
    """Everybody who asks; each does one thing after another until the time is up."""

    def __init__(
        self, port: int, asked: Sequence[tuple[Question, str]], rng: random.Random
    ) -> None:
        self.tally = Tally()
        self.gaps: list[tuple[float, float]] = []
        self.wholes: list[float] = []
        self._port = port
        self._asked = asked
        self._rng = rng

    async def run(self, streams: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(*(self._one(end) for _ in range(streams)))

    async def _one(self, end: float) -> None:
        manners = (
            (0.55, self._read),
            (0.10, self._stall),
            (0.15, self._leave_in_the_text),
            (0.12, self._leave_early),
            (0.08, self._half_close),
        )
        weights = [share for share, _ in manners]
        while time.monotonic() < end:
            question, text = self._rng.choice(self._asked)
            (_, manner) = self._rng.choices(manners, weights)[0]
            try:
                await manner(question, text)
            except Exception as error:
                self.tally.failures.append(f"{manner.__name__[1:]}: {type(error).__name__} {error}")

    async def _read(self, question: Question, text: str) -> None:
        async with Client(self._port, question) as client:
            client.send()
            if await self._is_right(client):
                began = time.monotonic()
                heard = await client.hear()
                self._compare("read", heard, text)
                self.gaps += heard.gaps
                self.wholes.append(time.monotonic() - began)

    async def _stall(self, question: Question, text: str) -> None:
        async with Client(self._port, question, small_buffer=True) as client:
            client.send()
            if await self._is_right(client):
                stalls = (self._rng.randint(1, 8), self._rng.uniform(1.0, _MOST_STALL))
                self._compare("stalled", await client.hear(stalls=stalls), text)

    async def _leave_in_the_text(self, question: Question, text: str) -> None:
        async with Client(self._port, question) as client:
            client.send()
            if await self._is_right(client):
                heard = await client.hear(most=self._rng.randint(1, 24))
                begins = text.startswith(heard.text)
                self.tally.expect(begins, f"a stream began {heard.text!r}, alone {text!r}")
                self._go(client)

    async def _leave_early(self, question: Question, _: str) -> None:
        """Before the request is whole, while it waits or its prompt is read, at the headers."""
        async with Client(self._port, question) as client:
            when = self._rng.random()
            client.send(self._rng.uniform(0.0, 1.0) if when < 0.3 else 1.0)
            await asyncio.sleep(self._rng.expovariate(1 / 0.05))
            if when >= 0.7 and not await self._is_right(client):
                return
            self._go(client)

    async def _half_close(self, question: Question, text: str) -> None:
        """It is taken for gone: the stream ends, wherever it is."""
        async with Client(self._port, question) as client:
            client.send()
            if await self._is_right(client):
                client.half_close()
                heard = await client.hear()
                self.tally.counts["half-closed"] += 1
                begins = text.startswith(heard.text)
                self.tally.expect(begins, f"a stream began {heard.text!r}, alone {text!r}")

    def _go(self, client: Client) -> None:
        if self._rng.random() < 0.5:
            client.reset()
            self.tally.counts["reset"] += 1
        else:
            self.tally.counts["left"] += 1

    async def _is_right(self, client: Client) -> bool:
        status = await client.head()
        self.tally.expect(status == 200, f"answered with {status}")
        return status == 200

    def _compare(self, how: str, heard: Heard, text: str) -> None:
        self.tally.counts[how] += 1
        right = heard.is_whole and heard.text == text
        self.tally.expect(right, f"{how} {heard.text!r} (whole: {heard.is_whole}), alone {text!r}")


@dataclass(frozen=True)
class Report:
    minutes: float
    streams: int
    counts: dict[str, int]
    largest_gap_s: float
    gap_p99_s: float
    median_answer_s: float
    stood_still_s: float
    peak_mib: float | None
    bound_mib: float
    growth_mib_per_minute: float
    memory: list[tuple[float, float]]
    ended_in_s: float
    failures: list[str]

    def lines(self) -> list[str]:
        peak = "unknown" if self.peak_mib is None else f"{self.peak_mib:.0f} MiB"
        return [
            f"{self.minutes:g} minutes of {self.streams} streams: "
            + ", ".join(f"{number} {name}" for name, number in self.counts.items()),
            f"silence of healthy streams: {self.largest_gap_s:.2f} s at most, p99 "
            f"{self.gap_p99_s:.3f} s; a whole answer {self.median_answer_s:.2f} s; "
            f"the machine stood still for {self.stood_still_s:.2f} s",
            f"memory: {peak} at most (declared {self.bound_mib:.0f}), "
            f"growing by {self.growth_mib_per_minute:+.2f} MiB a minute; "
            f"ended in {self.ended_in_s:.1f} s",
            *[f"FAILED: {failure}"[:1000] for failure in self.failures[:_SHOWN]],
            f"{len(self.failures)} failures",
        ]


class Watch:
    """The server's memory every second, and for how long the machine itself stood still: silence
    that everybody shares, this program too, is none of the server's."""

    def __init__(self, server: ServerProcess) -> None:
        self.memory = Memory(server.process.pid, judged=1 / 3)  # its threads warm up for minutes
        self.pauses: list[tuple[float, float]] = []

    async def run(self) -> None:
        began = last = time.monotonic()
        while True:
            self.memory.look((last - began) / 60)
            await asyncio.sleep(1.0)
            now = time.monotonic()
            if now - last > _LATE:
                self.pauses.append((last + 1.0, now))
            last = now

    def without_pauses(self, gap: tuple[float, float]) -> float:
        still = sum(max(0.0, min(gap[1], to) - max(gap[0], since)) for since, to in self.pauses)
        return gap[1] - gap[0] - still


async def soak(given: argparse.Namespace, server: ServerProcess, crowd: Crowd) -> Watch:
    watch = Watch(server)
    watching = asyncio.ensure_future(watch.run())
    await crowd.run(given.streams, given.minutes * 60)
    watching.cancel()
    return watch


def settle(server: ServerProcess, tally: Tally, before: tuple[int, int]) -> None:
    """What must be given back when nobody is there any more."""
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    end = time.monotonic() + _FREE_SECONDS
    while True:
        found = server.metrics()
        held = {name: found[name] for name in names if found[name]}
        descriptors, threads = server.num_descriptors, server.num_threads
        is_free = not held and descriptors <= before[0] and threads <= before[1]
        if is_free or time.monotonic() > end:
            break
        time.sleep(0.1)
    tally.expect(not held, f"is held when all have gone: {held}")
    tally.expect(descriptors <= before[0], f"{descriptors} descriptors, {before[0]} before")
    tally.expect(threads <= before[1], f"{threads} threads, {before[1]} before")
    tally.counts["preempted"] = int(found["vllm:num_preemptions_total"])
    tally.counts["cached tokens"] = int(found["vllm:prefix_cache_hits_total"])
    tally.counts["tokens"] = int(found["vllm:generation_tokens_total"])


def judge(
    crowd: Crowd, watch: Watch, ended: tuple[int, float], said: str
) -> tuple[float, float, float]:
    """The largest gap, its p99, and the median of whole answers."""
    tally = crowd.tally
    tally.expect(ended[0] == 0, f"the server ended with {ended[0]}")
    tally.expect(ended[1] < SHUTDOWN_SECONDS, f"it took {ended[1]:.1f} s to end, with nobody there")
    tally.expect("Traceback" not in said, said[said.find("Traceback") :][:2000])
    for name in ("read", "stalled", "reset", "left", "half-closed"):
        tally.expect(tally.counts[name] > 0, f"nobody has {name}: the soak proves little")
    gaps = sorted(map(watch.without_pauses, crowd.gaps)) or [0.0]
    whole = statistics.median(crowd.wholes or [0.0])
    bound = 2 * whole + 1
    tally.expect(gaps[-1] <= bound, f"a stream was silent for {gaps[-1]:.2f} s, past {bound:.2f}")
    return gaps[-1], gaps[int(0.99 * (len(gaps) - 1))], whole


def run(given: argparse.Namespace, folder: Path) -> Report:
    file = read_gguf(given.model)
    kv_bytes = int(
        given.pool_tokens * build_plan(file.metadata, file.tensors).kv_bytes_per_token(2)
    )
    pool = ("--kv-cache-memory", str(kv_bytes), "--no-disk-cache")
    asked = questions(random.Random(given.seed), NUM_ASKED, given.tokens)
    with serving(given.model, folder, *pool, "--speculation", "off") as server:
        texts = asyncio.run(alone(server.port, asked))
    with serving(given.model, folder, *pool) as server:
        asyncio.run(alone(server.port, asked[:4]))
        server.metrics()  # so that what it loads for them is there
        before = (
            server.num_descriptors + 1,  # of who asks for metrics
            server.num_threads + num_cores() + 4,  # of asyncio's pool, which grows to so many
        )
        known = list(zip(asked, texts, strict=True))
        crowd = Crowd(server.port, known, random.Random(given.seed + 1))
        watch = asyncio.run(soak(given, server, crowd))
        settle(server, crowd.tally, before)
        peak = watch.memory.peak
        ended = server.end()
        gap, p99, whole = judge(crowd, watch, ended, server.said)
    bound = (1.2 * given.model.stat().st_size + kv_bytes) / MIB + _SERVER_MIB
    watch.memory.judge(crowd.tally, peak, bound, given.minutes)
    counts, failures = dict(crowd.tally.counts), crowd.tally.failures
    still = sum(to - since for since, to in watch.pauses)
    silence = (gap, p99, whole, still)
    memory = (peak, bound, watch.memory.growth, watch.memory.samples)
    return Report(given.minutes, given.streams, counts, *silence, *memory, ended[1], failures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=300, help="of a prompt and its answer")
    parser.add_argument("--pool-tokens", type=int, help="that the KV pool holds; a quarter")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where all figures go")
    given = parser.parse_args()
    given.pool_tokens = given.pool_tokens or given.streams * given.tokens // 4
    with tempfile.TemporaryDirectory() as folder:
        report = run(given, Path(folder))
    print("\n".join(report.lines()))
    if given.json is not None:
        given.json.write_text(json.dumps(asdict(report), indent=1) + "\n")
    return int(bool(report.failures))


if __name__ == "__main__":
    sys.exit(main())
