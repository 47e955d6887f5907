"""llama.cpp's own server: started on a free port, warmed, asked over HTTP, and stopped.

HTTP is spoken here, over asyncio's streams: a client that is busy would slow what it measures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load import Answer, Chat, Load

HOST = "127.0.0.1"
START_SECONDS = 120
_SAVED = "shared.bin"


@dataclass(frozen=True)
class ServerOptions:
    """`num_slots` chats at once (-np), each of up to `slot_tokens`; `repack` as it comes or not."""

    model: Path
    num_slots: int
    slot_tokens: int
    num_threads: int
    repack: bool

    def arguments(self, port: int, slots_folder: str) -> list[str]:
        values = {
            "--model": self.model,
            "--host": HOST,
            "--port": port,
            "--parallel": self.num_slots,
            # Of all slots together; each gets its share.
            "--ctx-size": self.num_slots * self.slot_tokens,
            "--threads": self.num_threads,
            "--threads-batch": self.num_threads,
            "--flash-attn": "on",
            "--slot-save-path": slots_folder,
            "--cache-ram": 0,  # slots are pinned and warm: copies of them would only cost time
        }
        given = [str(word) for pair in values.items() for word in pair]
        return [*given, "--no-kv-unified", "--no-ui", *([] if self.repack else ["--no-repack"])]


class LlamaServer:
    """A process; use it as a context manager. `name` says in which mode it runs."""

    def __init__(self, program: Path, options: ServerOptions) -> None:
        self.name = f"llama-server ({'repacked' if options.repack else 'as in the file'})"
        self._options = options
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self._port = int(probe.getsockname()[1])
        self._folder = tempfile.TemporaryDirectory(prefix="llama-server-")
        self._log = Path(self._folder.name) / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(program), *options.arguments(self._port, self._folder.name)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    async def __aenter__(self) -> LlamaServer:
        try:
            await self._wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    async def warm(self, load: Load) -> None:
        """Every slot holds what the load's prompts share, computed once."""
        if not load.shared:
            return
        saved = Path(self._folder.name) / _SAVED
        if not saved.exists():
            prompt = {"prompt": load.shared, "n_predict": 0, "cache_prompt": True, "id_slot": 0}
            await self._json("/completion", prompt)
            await self._json("/slots/0?action=save", {"filename": _SAVED})
        for slot in range(self._options.num_slots):
            await self._json(f"/slots/{slot}?action=restore", {"filename": _SAVED})

    async def answer(self, load: Load) -> list[Answer]:
        started = time.perf_counter()
        return await asyncio.gather(
            *(self._answer(chat, slot, load, started) for slot, chat in enumerate(load.chats))
        )

    async def _answer(self, chat: Chat, slot: int, load: Load, started: float) -> Answer:
        body = {
            "prompt": chat.prompt_token_ids,
            "n_predict": load.max_tokens,
            "temperature": load.temperature,
            "top_k": 40,
            "top_p": 0.95,
            "min_p": 0.05,
            "seed": chat.seed,
            "ignore_eos": True,
            "cache_prompt": True,
            "id_slot": slot,
            "stream": True,
        }
        answer = Answer()
        async for line in self._lines("/completion", body):
            kind, _, data = line.partition(b": ")
            if kind != b"data" or data == b"[DONE]":
                continue
            event: dict[str, Any] = json.loads(data)
            if "error" in event:
                raise RuntimeError(f"{self.name}: {event['error']}")
            answer.add(time.perf_counter() - started, event.get("tokens", ()))
            if event.get("stop"):
                counts = event["timings"]
                answer.num_tokens, answer.num_cached = counts["predicted_n"], counts["cache_n"]
        return answer

    async def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError, RuntimeError):
                await self._json("/health", None)
                return
            await asyncio.sleep(0.05)
        tail = self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise RuntimeError(f"{self.name} did not start:\n{tail}")

    async def _json(self, path: str, body: Mapping[str, object] | None) -> Any:
        return json.loads(b"\n".join([line async for line in self._lines(path, body)]))

    async def _lines(self, path: str, body: Mapping[str, object] | None) -> AsyncIterator[bytes]:
        """A response's lines but empty ones. Raises RuntimeError where its status is not 200."""
        reader, writer = await asyncio.open_connection(HOST, self._port)
        try:
            data = b"" if body is None else json.dumps(body).encode()
            method = "GET" if body is None else "POST"
            head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            await writer.drain()
            status = int((await reader.readline()).split()[1])
            pieces = _body(reader, await _headers(reader))
            if status != 200:
                said = b"".join([piece async for piece in pieces])[:500]
                raise RuntimeError(f"{self.name}: {path}: {status}: {said.decode()}")
            async for line in _split(pieces):
                yield line
        finally:
            writer.close()


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    found: dict[str, str] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        found[name.lower()] = value.strip()
    return found


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding") != "chunked":
        yield await reader.readexactly(int(headers["content-length"]))
        return
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readline()


async def _split(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield line.strip()
    if rest.strip():
        yield rest.strip()
