"""What the server costs beside the Python API, and how soon it is ready, by alternated rounds.

    python benches/server.py MODEL.gguf [--streams 1,16] [--tokens 64] [--rounds 5] [--starts 5]
                             [--client sockets|httpx] [--json FILE]

So many greedy streams at once, through AsyncLLM in a process of its own and through `edgeserve
serve` in another, with the same options (no drafts, no store on disk). This process asks both:
AsyncLLM's by a line that says what to answer, the server by HTTP over connections that are open
already. One side rests while the other computes; medians of the time to the first text and to the
end of all streams. A server is ready when /health says so, counted from the start of its program.

Who reads the streams computes on the same cores. So this reader takes frames as they lie in the
sockets, 0.1 ms a token; httpx takes 0.5 to 1.4 ms, and it was httpx that was measured (--client
httpx does so still).
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from load import WORDS

import edgeserve
from edgeserve import AsyncLLM

WANTED = {1: 1.05, 16: 1.15}
WANTED_FIRST_MS = 10.0
WANTED_READY_S = 1.5
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Round:
    """Seconds since all streams were asked: until each one's first text (their median), and until
    the last one's end."""

    first_s: float
    whole_s: float


def prompts(count: int, number: int) -> list[str]:
    """Unlike each other, and unlike those of other rounds."""
    words = [WORDS[(number * 7 + i) % len(WORDS)] for i in range(24)]
    return [f"{number} {i} " + " ".join(words[i % 5 :]) for i in range(count)]


async def gathered(streams: list[AsyncIterator[str]]) -> Round:
    """Reads all streams to their ends."""
    started = time.perf_counter()
    firsts: list[float] = []

    async def read(stream: AsyncIterator[str]) -> None:
        seen = False
        async for text in stream:
            if text and not seen:
                seen = True
                firsts.append(time.perf_counter() - started)

    await asyncio.gather(*map(read, streams))
    return Round(statistics.median(firsts), time.perf_counter() - started)


async def api_stream(llm: AsyncLLM, prompt: str, tokens: int) -> AsyncIterator[str]:
    stream = llm.stream({"prompt": prompt}, temperature=0, max_tokens=tokens, ignore_eos=True)
    async for chunk in stream:
        yield chunk.text


def asked(prompt: str, tokens: int) -> dict[str, object]:
    """A request's body."""
    fields = {"temperature": 0, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    return {"prompt": prompt, **fields}


async def http_stream(client: httpx.AsyncClient, prompt: str, tokens: int) -> AsyncIterator[str]:
    body = asked(prompt, tokens)
    async with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    yield choice["text"]


def httpx_round(url: str, count: int, number: int, tokens: int) -> Round:
    async def ask() -> Round:
        limits = httpx.Limits(max_connections=count)
        async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
            await client.get("/health")
            streams = [http_stream(client, p, tokens) for p in prompts(count, number)]
            return await gathered(streams)

    return asyncio.run(ask())


def sockets_round(url: str, count: int, number: int, tokens: int) -> Round:
    """The same by a reader that costs next to nothing: it looks for the first frame and the end."""
    port = int(url.rpartition(":")[2])
    streams = {socket.create_connection((_HOST, port)): b"" for _ in range(count)}
    firsts: dict[socket.socket, float] = {}
    with selectors.DefaultSelector() as selector:
        started = time.perf_counter()
        for stream, prompt in zip(streams, prompts(count, number), strict=True):
            stream.sendall(_post(json.dumps(asked(prompt, tokens)).encode()))
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                stream = key.fileobj
                assert isinstance(stream, socket.socket)
                piece = stream.recv(65536)
                streams[stream] = (streams[stream] + piece)[-40:]
                if b"data: {" in piece:
                    firsts.setdefault(stream, time.perf_counter() - started)
                if not piece:
                    selector.unregister(stream)
        whole = time.perf_counter() - started
    for stream, end in streams.items():
        stream.close()
        if b"data: [DONE]" not in end:
            raise SystemExit(f"a stream ended with {end!r}")
    return Round(statistics.median(firsts.values()), whole)


def _post(body: bytes) -> bytes:
    lines = [
        "POST /v1/completions HTTP/1.1",
        "host: localhost",
        "connection: close",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


CLIENTS = {"sockets": sockets_round, "httpx": httpx_round}


async def answer_lines(model: str) -> None:
    """The other process: for each line "streams number tokens" a round, printed as JSON."""
    options = {"speculation": "off", "disk_cache": 0}
    async with await AsyncLLM.create(model, **options) as llm:  # type: ignore[arg-type]
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            count, number, tokens = map(int, line.split())
            found = await gathered([api_stream(llm, p, tokens) for p in prompts(count, number)])
            print(json.dumps(asdict(found)), flush=True)


class ApiProcess:
    """AsyncLLM in a process of its own."""

    def __init__(self, model: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, model, "--answer-lines"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def round(self, count: int, number: int, tokens: int) -> Round:
        assert self._process.stdin is not None
        print(count, number, tokens, file=self._process.stdin, flush=True)
        return Round(**json.loads(self._line()))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the Python API's process ended")
        return line


class ServerProcess:
    """`edgeserve serve`, from the moment it is started."""

    def __init__(self, model: str) -> None:
        with socket.socket() as probe:
            probe.bind((_HOST, 0))
            port = probe.getsockname()[1]
        self.url = f"http://{_HOST}:{port}"
        program = "from edgeserve.cli import program; program()"
        quiet = ["--speculation", "off", "--no-disk-cache", "--log-level", "error"]
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", model, "--port", str(port), *quiet],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait_until_ready()
        self.ready_s = time.perf_counter() - started

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _wait_until_ready(self) -> None:
        while self._process.poll() is None:
            try:
                if httpx.get(f"{self.url}/health", timeout=1).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.005)
        raise SystemExit("the server ended before it was ready")


@contextmanager
def closing_both(model: str) -> Iterator[tuple[ApiProcess, ServerProcess]]:
    api, server = ApiProcess(model), ServerProcess(model)
    try:
        yield api, server
    finally:
        api.close()
        server.close()


def measure(args: argparse.Namespace) -> dict[str, object]:
    readies: list[float] = []
    for _ in range(args.starts):
        server = ServerProcess(args.model)
        readies.append(server.ready_s)
        server.close()
    found: dict[str, object] = {"ready_s": readies}
    if readies:
        ready = statistics.median(readies)
        print(f"ready: {ready:.2f} s, median of {len(readies)} ({WANTED_READY_S} wanted)")
    ask = CLIENTS[args.client]
    with closing_both(args.model) as (api, server):
        number = 0
        for count in map(int, args.streams.split(",")):
            rounds: list[tuple[Round, Round]] = []
            for _ in range(args.rounds + 1):  # the first warms both
                number += 1
                rounds.append(
                    (
                        api.round(count, number, args.tokens),
                        ask(server.url, count, number, args.tokens),
                    )
                )
            pairs = rounds[1:]
            report(count, pairs)
            found[f"{count} streams"] = [[asdict(a), asdict(b)] for a, b in pairs]
    return found


def report(count: int, pairs: list[tuple[Round, Round]]) -> None:
    whole = [statistics.median(r.whole_s for r in side) for side in zip(*pairs, strict=True)]
    first = [statistics.median(r.first_s for r in side) for side in zip(*pairs, strict=True)]
    ratio = statistics.median(theirs.whole_s / ours.whole_s for ours, theirs in pairs)
    later = 1e3 * statistics.median(theirs.first_s - ours.first_s for ours, theirs in pairs)
    wanted = f" ({WANTED[count]} wanted)" if count in WANTED else ""
    print(
        f"{count} streams: API {whole[0]:.2f} s, server {whole[1]:.2f} s, ratio {ratio:.2f}{wanted}"
    )
    print(f"  first text: {1e3 * first[0]:.0f} and {1e3 * first[1]:.0f} ms, {later:+.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--streams", default="1,16")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--client", choices=tuple(CLIENTS), default="sockets")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--answer-lines", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.answer_lines:
        asyncio.run(answer_lines(args.model))
        return
    # As an installer leaves them; see start.py.
    compileall.compile_dir(Path(edgeserve.__file__).parent, quiet=1)
    found = measure(args)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
