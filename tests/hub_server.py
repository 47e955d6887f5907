"""A hub on loopback that speaks as much of the Hugging Face hub's HTTP as fetching a file takes,
and misbehaves on request."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34

Fault = Literal[
    "none",
    "ignores-range",
    "answers-416",
    "truncates",
    "always-truncates",
    "truncates-ignoring-range",
    "flips-a-byte",
    "flips-once",
    "sends-more",
    "no-hash",
    "503-once",
    "503",
    "short-length",
    "wrong-content-range",
    "stalls",
]


@dataclass
class FakeHub:
    """What the hub serves, and what it was asked.

    `stop_after` bytes is where it truncates or stalls. `cdn` is where it sends for the bytes.
    """

    repo: str
    files: dict[str, bytes]
    fault: Fault = "none"
    stop_after: int = 0
    license: str = "apache-2.0"
    published: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    endpoint: str = ""
    cdn: str = ""
    stalled: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    num_downloads: int = 0

    def metadata(self) -> dict[str, object]:
        siblings = []
        for name, sent in self.files.items():
            content = self.published.get(name, sent)
            digest = hashlib.sha256(content).hexdigest()
            entry: dict[str, object] = {"rfilename": name, "size": len(content)}
            if self.fault != "no-hash":
                entry["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        return {
            "id": self.repo,
            "modelId": self.repo,
            "sha": COMMIT,
            "siblings": siblings,
            "cardData": {"license": self.license},
            "tags": [],
        }


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub, reachable at `hub.endpoint`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(("GET", path, self.headers.get("Range")))
            hub.authorizations.append(self.headers.get("Authorization"))
            if path == f"/api/models/{hub.repo}":
                self._json(200, hub.metadata())
                return
            prefix = f"/{hub.repo}/resolve/{COMMIT}/"
            content = hub.files.get(path.removeprefix(prefix)) if path.startswith(prefix) else None
            if content is None:
                self._json(404, {"error": "not found"}, {"X-Error-Code": "RepoNotFound"})
                return
            if hub.cdn:
                self._json(302, {}, {"Location": f"{hub.cdn}{path}"})
                return
            hub.num_downloads += 1
            self._content(content, self.headers.get("Range"))

        def _json(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def _content(self, content: bytes, wanted: str | None) -> None:
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            first = hub.num_downloads == 1
            if hub.fault == "503" or (hub.fault == "503-once" and first):
                self._json(503, {"error": "busy"})
                return
            if hub.fault == "answers-416" and start:
                self._json(416, {"error": "no such range"})
                return
            if hub.fault in ("ignores-range", "truncates-ignoring-range"):
                start = 0
            if hub.fault == "flips-a-byte" or (hub.fault == "flips-once" and first):
                content = bytes([content[0] ^ 1]) + content[1:]
            if hub.fault == "sends-more":
                content += b"more"
            body = content[start:]
            if hub.fault == "short-length" and first:
                body = body[: hub.stop_after]
            self.send_response(206 if start else 200)
            if start:
                claimed = start + 1 if hub.fault == "wrong-content-range" else start
                total = len(content)
                self.send_header("Content-Range", f"bytes {claimed}-{total - 1}/{total}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if hub.fault == "truncates" and first:
                body = body[: hub.stop_after]
            elif hub.fault in ("always-truncates", "truncates-ignoring-range"):
                body = body[: max(0, hub.stop_after - start)]
            if hub.fault == "stalls":
                self.wfile.write(body[: hub.stop_after])
                hub.stalled.set()
                hub.release.wait(timeout=60)
            else:
                self.wfile.write(body)
            self.close_connection = True

    return Handler
