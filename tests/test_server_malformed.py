"""What is no HTTP, or not quite, against a real server: it is refused, and nobody else notices."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from .raw_http import connected, get, post, reset, statuses, until, until_closed
from .serve_program import Program, serving
from .tiny_models import write_tiny_model

H = b"Host: localhost\r\n"
GET = b"GET /health HTTP/1.1\r\n" + H
POST = b"POST /v1/completions HTTP/1.1\r\n" + H
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200))
STREAM: dict[str, Any] = {
    "prompt": "the inn",
    "stream": True,
    "ignore_eos": True,
    "temperature": 1,
    "seed": 5,
    "max_tokens": 80,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, str]]:
    folder = tmp_path_factory.mktemp("model")
    path = write_tiny_model(folder / "tiny.gguf", "llama", context=512)
    quiet = ("--log-level", "error", "--max-body-size", "1000000")
    with serving(path, folder, *quiet) as (program, url):
        reading = threading.Thread(target=program.read_on)  # a full pipe would hold the server
        reading.start()
        yield program, url
        assert program.process.poll() is None, "the server died"
        program.process.terminate()
        assert program.process.wait(30) == 0
        reading.join()
        assert "Traceback" not in program.said, program.said


@pytest.fixture(scope="module")
def alone(server: tuple[Program, str]) -> bytes:
    """What STREAM is answered with when nothing else happens."""
    with connected(server[1]) as connection:
        connection.sendall(post("/v1/completions", STREAM))
        return texts(until(connection, b"[DONE]"))


def texts(received: bytes) -> bytes:
    found = [line[6:] for line in received.split(b"\n") if line.startswith(b"data: {")]
    assert len(found) > 5
    return "".join(json.loads(line)["choices"][0]["text"] for line in found).encode()


REFUSED = {
    "control characters": (b"\x00\x01\x02\r\n\r\n", 400),
    "a method alone": (b"GET\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /health\r\n\r\n", 400),
    "HTTP/2 by prior knowledge": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), 505),
    "a version of the future": (b"GET /health HTTP/3.7\r\n" + H + b"\r\n", 505),
    "a TLS hello": (TLS_HELLO, 400),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "two hosts": (GET + H + b"\r\n", 400),
    "a header without a colon": (GET + b"nothing\r\n\r\n", 400),
    "a header that goes on from nothing": (b"GET / HTTP/1.1\r\n x: y\r\n" + H + b"\r\n", 400),
    "NUL in a header": (GET + b"x: a\0b\r\n\r\n", 400),
    "a space in a header's name": (GET + b"x y: a\r\n\r\n", 400),
    "a space before a header's colon": (GET + b"x : a\r\n\r\n", 400),
    "a header of 100 kB": (GET + b"x: " + b"a" * 100_000 + b"\r\n\r\n", 431),
    "a header of 4 MB": (GET + b"x: " + b"a" * 4_000_000 + b"\r\n\r\n", 431),
    "ten thousand headers": (GET + b"x: abcdef\r\n" * 10_000 + b"\r\n", 431),
    "a path of 100 kB": (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + H + b"\r\n", 431),
    "a length that is no number": (POST + b"Content-Length: x\r\n\r\n{}", 400),
    "a negative length": (POST + b"Content-Length: -1\r\n\r\n{}", 400),
    "a length of 30 digits": (POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n{}", 400),
    "two lengths": (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400),
    "an unknown coding": (POST + b"Transfer-Encoding: gzip\r\n\r\n{}", 501),
    "a chunk whose size is no number": (CHUNKED + b"zz\r\n{}\r\n", 400),
    "a chunk of 2^88 bytes": (CHUNKED + b"f" * 22 + b"\r\n", 400),
    "a chunk longer than it says": (CHUNKED + b"2\r\n{}xx\r\n", 400),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_http_is_refused_and_others_do_not_notice(
    server: tuple[Program, str], alone: bytes, name: str
) -> None:
    said, status = REFUSED[name]
    url = server[1]
    with connected(url) as healthy, connected(url) as wrong:
        healthy.sendall(post("/v1/completions", STREAM))
        begun = until(healthy, b"data: ")
        wrong.sendall(said)
        answer = until_closed(wrong)  # it is closed by the server, with its answer delivered
        assert statuses(answer) == [status]
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert json.loads(body)["error"]["message"]
        assert texts(until(healthy, b"[DONE]", begun)) == alone
    assert httpx.get(f"{url}/health").status_code == 200


UNUSUAL = {
    "bare line feeds": (b"GET /health HTTP/1.1\nHost: localhost\n\n", [200]),
    "HTTP/1.0 without a host": (b"GET /health HTTP/1.0\r\n\r\n", [200]),
    "an offer of HTTP/2": (GET + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n", [200]),
    "an offer of a web socket": (GET + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", [200]),
    "two requests at once": (get("/health") + get("/version"), [200, 200]),
    "a stream and a request at once": (post("/v1/completions", STREAM) + get("/health"), [200] * 2),
    "a method nobody knows": (b"BREW /health HTTP/1.1\r\n" + H + b"\r\n", [405]),
    "a proxy's request": (b"GET http://evil.com/ HTTP/1.1\r\n" + H + b"\r\n", [404]),
    "a tunnel": (b"CONNECT evil.com:443 HTTP/1.1\r\n" + H + b"\r\n", [404]),
    "a path of no text": (b"GET /%ff%fe%00 HTTP/1.1\r\n" + H + b"\r\n", [404]),
    "a host of half an address": (b"GET / HTTP/1.1\r\nHost: [\r\n\r\n", [403]),
    "a host of no text": (b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n", [403]),
    "NUL in a body": (POST + b"Content-Length: 3\r\n\r\n\0\0\0", [400]),
    "a body longer than it says": (POST + b"Content-Length: 2\r\n\r\n{}{}\r\n\r\n", [400, 400]),
    "a body on a path that is not there": (
        b"POST /nowhere HTTP/1.1\r\n" + H + b"Content-Length: 900000\r\n\r\n" + b"x" * 900_000,
        [404],
    ),
    "a body larger than may be": (POST + b"Content-Length: 1000001\r\n\r\n", [413]),
    "a body larger than may be, of unknown length": (
        CHUNKED + (b"20000\r\n" + b" " * 0x20000 + b"\r\n") * 9 + b"0\r\n\r\n",
        [413],
    ),
    "a body that asks first": (
        POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
        [100, 400],
    ),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_answered(server: tuple[Program, str], name: str) -> None:
    said, wanted = UNUSUAL[name]
    with connected(server[1]) as connection:
        connection.sendall(said)
        received = b""
        while len(statuses(received)) < len(wanted):
            piece = connection.recv(65536)
            assert piece, received
            received += piece
        assert statuses(received) == wanted


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /health HT",
        GET,
        POST + b'Content-Length: 100\r\n\r\n{"prompt": ',
        CHUNKED + b"5\r\n{",
        post("/v1/completions", STREAM),
    ],
    ids=[
        "nothing",
        "half a line",
        "half of the headers",
        "half a body",
        "half a chunk",
        "half-close",
    ],
)
def test_who_stops_sending_is_taken_for_gone(server: tuple[Program, str], said: bytes) -> None:
    """A client that is gone sends the same: an answer to it would be computed for nobody."""
    with connected(server[1]) as connection:
        connection.sendall(said)
        connection.shutdown(1)  # SHUT_WR
        assert b"[DONE]" not in until_closed(connection)
    assert httpx.get(f"{server[1]}/health").status_code == 200


PIECES = [
    *(b"\r\n", b"\n", b"\0", b":", b" ", b"\xff", b"{", b"0\r\n\r\n", b"HTTP/1.1", H),
    *(b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Content-Length: 0\r\n", b"GET / HTTP/1.1\r\n", b"Upgrade: h2c\r\n"),
]


def damaged(chance: random.Random) -> bytes:
    """Up to three requests, one behind the other, with up to four damages."""
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    right = [
        get("/health"),
        post("/v1/completions", {"prompt": "a", "max_tokens": 3, "stream": True}),
        post("/v1/chat/completions", chat),
        post("/v1/messages", {**chat, "stream": True}),
        post("/v1/responses", {"input": "a", "max_output_tokens": 2}),
        CHUNKED + b'5\r\n{"pro\r\n0\r\n\r\n',
    ]
    said = bytearray(b"".join(chance.choices(right, k=chance.randint(1, 3))))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(said))
        kind = chance.random()
        if kind < 0.4:
            said[at:at] = chance.choice(PIECES)
        elif kind < 0.6:
            del said[at : at + chance.randint(1, 20)]
        elif kind < 0.8:
            said[at] = chance.randrange(256)
        else:
            said[at : at + 1] = said[at : at + 1] * chance.randint(1, 50)
    return bytes(said) or b"\n"


def test_requests_damaged_at_random_break_nothing(server: tuple[Program, str]) -> None:
    chance = random.Random(0)
    for number in range(150):
        said = damaged(chance)
        with connected(server[1]) as connection:
            connection.sendall(said)
            if number % 3 == 0:
                reset(connection)
                continue
            connection.shutdown(1)  # SHUT_WR
            answered = statuses(until_closed(connection))
        assert all(status < 500 or status in (501, 505) for status in answered), said
    assert httpx.get(f"{server[1]}/health").status_code == 200


def test_nothing_is_left_of_all_that(server: tuple[Program, str]) -> None:
    """No descriptor, no block, no request: after all tests above."""
    lines = httpx.get(f"{server[1]}/metrics").text.splitlines()
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        assert [float(line.split()[-1]) for line in lines if line.startswith(name)] == [0.0]
