"""`edgeserve serve` as a program: what it says, what it logs, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve.errors import InvalidRequestError
from edgeserve.server.address import Listening, bind

from .raw_http import address_of, wait_for
from .serve_program import SECONDS, Program, serving
from .server_harness import USER
from .tiny_models import write_tiny_model

BODY = {"messages": USER, "max_tokens": 4}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=20_000)


def test_it_says_where_what_and_what_it_keeps(path: Path, tmp_path: Path) -> None:
    with serving(path, tmp_path, "--model-alias", "mine") as (program, url):
        answer = httpx.post(
            f"{url}/v1/chat/completions", json={**BODY, "user": "u"}, headers={"user-agent": "me"}
        )
        assert answer.status_code == 200
        assert answer.json()["model"] == "mine"
        names = [card["id"] for card in httpx.get(f"{url}/v1/models").json()["data"]]
        assert names == ["mine", str(path)]
        program.until("POST (path=)")
        assert program.end() == 0
    said = program.said
    assert url.startswith("http://127.0.0.1:")
    assert "context 20,000" in said
    assert f"prompts are kept in {tmp_path / 'prompts'}" in said
    line = next(line for line in said.splitlines() if "path=/chat/completions" in line)
    assert f"id={answer.headers['x-request-id']}" in line
    for fact in ("status=200", "model=mine", "prompt=", "cached=0", "output=4", "ttft_ms="):
        assert fact in line
    assert "user_agent='me' ignored: user" in said
    assert "the inn" not in said


STRICT = """{% for m in messages %}{% if m.role == 'system' and not loop.first %}
{{ raise_exception('system comes first') }}{% endif %}{{ m.role }}: {{ m.content }}
{% endfor %}assistant:"""


def test_what_is_asked_of_it_reaches_the_server(path: Path, tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text(STRICT, encoding="utf-8")
    options = ["--strict-templates", "--chat-template", str(template), "--api-key", "a key"]
    options += ["--log-format", "json", "--allow-host", "an.example", "--cors"]
    options += ["--max-body-size", "2000", "--speculation", "off", "--max-queued-requests", "7"]
    late = [*USER, {"role": "system", "content": "be brief"}, *USER]
    with serving(path, tmp_path, *options) as (program, url):
        with httpx.Client(base_url=url, headers={"Authorization": "Bearer a key"}) as client:
            chat = "/v1/chat/completions"
            assert client.post(chat, json=BODY).status_code == 200
            assert httpx.post(f"{url}{chat}", json=BODY).status_code == 401
            refused = client.post(chat, json={**BODY, "messages": late})
            assert (refused.status_code, "system comes first" in refused.text) == (400, True)
            assert client.post(chat, json={**BODY, "user": "u" * 2000}).status_code == 413
            foreign = {"Host": "an.example", "Origin": "https://a.page"}
            assert client.post(chat, json=BODY, headers=foreign).status_code == 200
            assert client.get("/v1/models", headers={"Host": "evil.com"}).status_code == 403
        assert program.end() == 0
    objects = [json.loads(line) for line in program.said.splitlines() if line.startswith("{")]
    assert [each["status"] for each in objects if "status" in each] == [
        200,
        401,
        400,
        413,
        200,
        403,
    ]


def test_a_quiet_one_logs_no_requests(path: Path, tmp_path: Path) -> None:
    with serving(path, tmp_path, "--log-level", "warning") as (program, url):
        assert httpx.post(f"{url}/v1/chat/completions", json=BODY).status_code == 200
        assert program.end() == 0
    assert "chat/completions" not in program.said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_soon_with_an_answer_under_way(path: Path, tmp_path: Path, number: int) -> None:
    with serving(path, tmp_path, "--shutdown-seconds", "1") as (program, url):
        body = {**BODY, "max_tokens": None, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert program.end(number) == 0


def test_answers_under_way_are_ended_in_time(path: Path, tmp_path: Path) -> None:
    with serving(path, tmp_path) as (program, url):
        body = {**BODY, "max_tokens": 300, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            begun = next(lines)
            program.process.send_signal(signal.SIGTERM)
            rest = "\n".join(lines)
        assert begun.startswith("data: ")
        assert rest.rstrip().endswith("data: [DONE]")
        assert program.process.wait(SECONDS) == 0


def test_it_serves_where_nobody_can_read_what_it_says(path: Path, tmp_path: Path) -> None:
    program = Program([str(path)], tmp_path)
    try:
        url = program.until(r"edgeserve: (\S+)/v1 listens")
        assert program.process.stderr is not None
        program.process.stderr.close()
        until_ready(url)
        assert httpx.post(f"{url}/v1/chat/completions", json=BODY).status_code == 200
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(SECONDS) == 0
    finally:
        program.process.kill()
        program.process.wait()


def until_ready(url: str) -> None:
    end = time.monotonic() + SECONDS
    while httpx.get(f"{url}/health", timeout=SECONDS).status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_model_that_does_not_load_ends_it_with_the_reason(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(40))
    program = Program([str(damaged)], tmp_path)
    assert program.process.stderr is not None
    said = program.process.stderr.read()
    program.process.stderr.close()
    assert program.process.wait(SECONDS) == 3
    assert "edgeserve: error:" in said


@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_a_port_that_no_machine_has_is_refused_and_not_taken_modulo_65536(port: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"--port = {port}: must be from 0 to 65535"):
        bind(Listening(port=port))


def test_an_address_that_is_taken_is_said(path: Path, tmp_path: Path) -> None:
    with serving(path, tmp_path) as (_, url):
        port = url.rsplit(":", 1)[1]
        found = subprocess.run(
            [sys.executable, "-m", "edgeserve.cli", "serve", str(path), "--port", port],
            capture_output=True,
            text=True,
            check=False,
        )
    assert found.returncode == 2
    assert f"--port = {port}: must be free on 127.0.0.1" in found.stderr
    assert "--port 0 takes a free one" in found.stderr


def test_others_need_the_key_that_is_made_and_kept(path: Path, tmp_path: Path) -> None:
    with serving(path, tmp_path, "--host", "0.0.0.0") as (program, url):
        key = re.search(r"API key (\S+)", program.said)
        assert key is not None
        kept = tmp_path / "server-key"
        assert kept.read_text().strip() == key[1]
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        local = f"http://127.0.0.1:{url.rsplit(':', 1)[1]}"
        assert httpx.get(f"{local}/v1/models").status_code == 401
        assert httpx.get(f"{local}/health").status_code == 401
        headers = {"authorization": f"Bearer {key[1]}"}
        assert httpx.get(f"{local}/v1/models", headers=headers).status_code == 200


def test_https_by_files(path: Path, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 1 "
        "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1".split(),
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("no openssl to make a certificate with")
    files = ("--ssl-certfile", str(certificate), "--ssl-keyfile", str(key))
    with serving(path, tmp_path, *files) as (_, url):
        assert url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        answer = httpx.post(f"{url}/v1/chat/completions", json=BODY, verify=context)
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--ssl-certfile", "x"], "--ssl-keyfile"),
        (["--no-auth", "--api-key", "k"], "--no-auth"),
        (["--chat-template", "/nowhere"], "--chat-template"),
        (["--host", "256.0.0.1"], "--host"),
    ],
)
def test_wrong_arguments_are_named(path: Path, arguments: list[str], named: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "edgeserve.cli", "serve", str(path), "--port", "0", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert found.returncode == 2
    assert named in found.stderr


LONG = {"ignore_eos": True, "max_tokens": 20_000, "stream": True}
ENDING = "the server is shutting down"
STREAMS: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/chat/completions": ({**LONG, "messages": USER}, 'data: {"error"'),
    "/v1/completions": ({**LONG, "prompt": "the inn"}, 'data: {"error"'),
    "/v1/responses": (
        {"input": "the inn", "stream": True, "ignore_eos": True, "max_output_tokens": 20_000},
        "event: response.failed",
    ),
    "/v1/messages": ({**LONG, "messages": USER, "model": "default"}, "event: error"),
}


def _listens(url: str) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(address_of(url)) == 0


def _num_live(client: httpx.Client) -> float:
    live = re.findall(
        r"^vllm:num_requests_(?:running|waiting)(?:\{.*\})? (\S+)",
        client.get("/metrics").text,
        re.M,
    )
    return sum(map(float, live))


@pytest.mark.parametrize(
    ("patience", "second"), [("1", None), ("50", signal.SIGTERM), ("50", signal.SIGINT)]
)
def test_answers_that_are_cut_say_so_and_are_whole(
    path: Path, tmp_path: Path, patience: str, second: int | None
) -> None:
    """httpx raises where a response's last chunk is missing."""
    options = ("--shutdown-seconds", patience)
    with serving(path, tmp_path, *options) as (program, url), ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=url, timeout=SECONDS))
        answers = {}
        for route, (body, _) in STREAMS.items():
            answer = stack.enter_context(client.stream("POST", route, json=body))
            lines = answer.iter_lines()
            assert next(lines)
            answers[route] = lines
        pool = stack.enter_context(ThreadPoolExecutor(1))
        unstreamed = {**STREAMS["/v1/messages"][0], "stream": False}
        whole = pool.submit(client.post, "/v1/messages", json=unstreamed)
        wait_for(lambda: _num_live(client) == len(STREAMS) + 1)
        program.process.send_signal(signal.SIGTERM)
        if second is not None:
            wait_for(lambda: not _listens(url))  # two at once would be one
            program.process.send_signal(second)
        for route, lines in answers.items():
            said = "\n".join(lines)
            assert ENDING in said[-1000:], (route, said[-1000:])
            assert STREAMS[route][1] in said[-3000:], (route, said[-3000:])
        assert whole.result(SECONDS).json()["error"]["message"] == ENDING
        program.read_on()
        assert program.process.wait(SECONDS) == 0
    assert "Traceback" not in program.said, program.said
