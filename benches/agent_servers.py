"""Servers as programs that are started, killed and asked, and their streams read as agents do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from agent_transcripts import Item, Request

_HOST = "127.0.0.1"
_START_SECONDS = 300
_CONTEXT = 32768
_TOGETHER_S = 1e-3


@dataclass(frozen=True)
class Contestant:
    """How a server is started. `keeps` says whether its cache outlives it, in a folder."""

    name: str
    model: Path
    template: Path | None
    threads: int
    program: Path | None = None  # llama.cpp's server; None is edgeserve

    @property
    def keeps(self) -> bool:
        return self.program is None

    def command(self, port: int, *, keeps: bool) -> list[str]:
        if self.program is None:
            start = "from edgeserve.cli import program; program()"
            words: list[object] = [sys.executable, "-c", start, "serve", self.model]
            words += ["--port", port]
            words += [] if keeps else ["--no-disk-cache"]
            words += ["--chat-template", self.template] if self.template else []
        else:
            words = [self.program, "--model", self.model, "--host", _HOST, "--port", port]
            words += ["--threads", self.threads, "--threads-batch", self.threads, "--no-ui"]
            # Two chats at once, which share one context.
            words += ["--parallel", 2, "--kv-unified", "--ctx-size", _CONTEXT]
            words += ["--chat-template-file", self.template] if self.template else []
        return [str(word) for word in words]


class RunningServer:
    """A process, ready when this returns; use it as a context manager. `ready_s` is since its
    start. What it said is in `log`."""

    def __init__(self, contestant: Contestant, folder: Path, *, keeps: bool = True) -> None:
        with socket.socket() as probe:
            probe.bind((_HOST, 0))
            port = int(probe.getsockname()[1])
        self.url = f"http://{_HOST}:{port}"
        self.name = contestant.name
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "log"
        environment = {**os.environ, "EDGESERVE_CACHE": str(folder), "LLAMA_CACHE": str(folder)}
        for name in ("EDGESERVE_LOG_LEVEL", "EDGESERVE_DISK_CACHE"):
            environment.pop(name, None)
        started = time.perf_counter()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                contestant.command(port, keeps=keeps),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        self._wait_until_ready()
        self.ready_s = time.perf_counter() - started

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        with _client(5.0) as client:
            while time.monotonic() < deadline and self._process.poll() is None:
                try:
                    if client.get(f"{self.url}/health").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                time.sleep(0.02)
        self.kill()
        said = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise SystemExit(f"{self.name} did not start:\n{said}")


def _client(timeout: float | None) -> httpx.Client:
    """A cold prompt may take minutes. Certificates, of which there are none here, take long to
    read."""
    return httpx.Client(timeout=timeout, verify=False, trust_env=False)


@dataclass
class Reply:
    """What came. `content` is the answer as the next turn gives it back: whole blocks or items,
    in the wire's shape. `raw` is all of it that does not differ from time to time."""

    status: int
    error: str = ""
    first_s: float = 0.0
    whole_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finish: str = ""
    content: list[Item] = field(default_factory=list[Item])
    raw: str = ""

    @property
    def same_as(self) -> tuple[str, int, int, str]:
        """What a cold answer has to equal."""
        return self.raw, self.prompt_tokens, self.output_tokens, self.finish


def ask(url: str, request: Request) -> Reply:
    """Posts it and reads the stream to its end."""
    started = time.perf_counter()
    reading = _Messages() if "/messages" in request.path else _Responses()
    with (
        _client(None) as client,
        client.stream(
            "POST", url + request.path, json=request.body, headers=dict(request.headers)
        ) as response,
    ):
        reply = Reply(response.status_code)
        if response.status_code != 200:
            reply.error = response.read().decode(errors="replace")[:500]
            return reply
        for event in _events(response.iter_lines()):
            if reading.read(event, reply) and not reply.first_s:
                reply.first_s = time.perf_counter() - started
    reply.whole_s = time.perf_counter() - started
    reply.first_s = reply.first_s or reply.whole_s
    if not reply.finish:
        reply.error = reply.error or "the stream ended before its answer"
    reading.finish(reply)
    return reply


def _events(lines: Iterator[str]) -> Iterator[Item]:
    for line in lines:
        if line.startswith("data: {"):
            yield json.loads(line[6:])


class _Messages:
    """Anthropic's stream."""

    def __init__(self) -> None:
        self._blocks: list[Item] = []
        self._arguments: dict[int, str] = {}
        self._usage: dict[str, Any] = {}

    def read(self, event: Item, reply: Reply) -> bool:
        """Whether something of the answer came."""
        kind = event["type"]
        if kind == "error":
            reply.error = str(event["error"])
        elif kind == "message_start":
            self._usage.update(event["message"].get("usage") or {})
        elif kind == "message_delta":
            self._usage.update(event.get("usage") or {})
            reply.finish = event["delta"].get("stop_reason") or ""
        elif kind == "content_block_start":
            self._blocks.append(dict(event["content_block"]))
            return event["content_block"]["type"] == "tool_use"
        elif kind == "content_block_delta":
            self._add(event["delta"])
            return True
        return False

    def _add(self, delta: Item) -> None:
        block = self._blocks[-1]
        if delta["type"] == "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
        elif delta["type"] == "input_json_delta":
            at = len(self._blocks) - 1
            self._arguments[at] = self._arguments.get(at, "") + delta["partial_json"]
        elif delta["type"] == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]

    def finish(self, reply: Reply) -> None:
        usage = self._usage
        reply.cached_tokens = usage.get("cache_read_input_tokens") or 0
        reply.prompt_tokens = (usage.get("input_tokens") or 0) + reply.cached_tokens
        reply.output_tokens = usage.get("output_tokens") or 0
        told = [{k: v for k, v in block.items() if k != "id"} for block in self._blocks]
        reply.raw = json.dumps([told, sorted(self._arguments.items())])
        for at, block in enumerate(self._blocks):
            if block["type"] == "tool_use":
                arguments = _object(self._arguments.get(at) or "{}")
                if arguments is None:  # cut in the middle: a client gives no such call back
                    continue
                block["input"] = arguments
            elif block["type"] == "text" and not block.get("text"):
                continue
            reply.content.append(block)


class _Responses:
    """OpenAI's Responses."""

    def __init__(self) -> None:
        self._items: list[Item] = []

    def read(self, event: Item, reply: Reply) -> bool:
        kind = event["type"]
        if kind in ("error", "response.failed"):
            reply.error = json.dumps(event)[:500]
        elif kind == "response.output_item.done":
            self._items.append(event["item"])
        elif kind in ("response.completed", "response.incomplete"):
            response = event["response"]
            usage = response["usage"]
            reply.finish = response["status"]
            reply.prompt_tokens = usage["input_tokens"]
            reply.cached_tokens = (usage.get("input_tokens_details") or {}).get("cached_tokens", 0)
            reply.output_tokens = usage["output_tokens"]
        return kind.endswith(".delta")

    def finish(self, reply: Reply) -> None:
        names = ("id", "call_id")
        told = [{k: v for k, v in item.items() if k not in names} for item in self._items]
        reply.raw = json.dumps(told)
        for item in self._items:
            if item["type"] == "function_call" and _object(item["arguments"]) is None:
                continue
            if item["type"] == "message" and not any(part.get("text") for part in item["content"]):
                continue
            reply.content.append(item)


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class SecondChat:
    """A short chat that goes on while others compute: when its pieces came."""

    def __init__(self, url: str, max_tokens: int) -> None:
        self._url = url
        self._max_tokens = max_tokens
        self._times: list[float] = []
        self.is_wanted = True

    def run(self) -> None:
        """Chats, one after the other, until it is not wanted any more."""
        with _client(None) as client:
            number = 0
            while self.is_wanted:
                number += 1
                self._stream(client, number)

    def _stream(self, client: httpx.Client, number: int) -> None:
        body = {
            "messages": [{"role": "user", "content": f"{number}: tell me about the sea."}],
            "max_tokens": self._max_tokens,
            "ignore_eos": True,
            "seed": number,
            "stream": True,
        }
        with client.stream("POST", f"{self._url}/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            for event in _events(response.iter_lines()):
                delta = event["choices"][0]["delta"] if event.get("choices") else {}
                if delta.get("content"):
                    self._times.append(time.perf_counter())
                if not self.is_wanted:
                    return

    def gaps(self, since: float, until: float) -> Sequence[float]:
        """Seconds between pieces, in order of size, between two moments. Pieces that come together,
        as accepted drafts do, count as one."""
        times = [at for at in self._times if since <= at <= until]
        gaps = (after - before for before, after in pairwise(times))
        return sorted(gap for gap in gaps if gap >= _TOGETHER_S)
