"""Who may ask: hosts, origins, preflights, keys."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve.server.keys import is_loopback, kept_key
from edgeserve.server.security import SecurityPolicy

from .server_harness import client_of


def get(url: str = "/version", method: str = "GET", **given: Any) -> httpx.Response:
    """Asks a server whose model is still loading."""
    headers = {k.replace("_", "-"): v for k, v in given.items() if k != "policy"}
    policy = given.get("policy", SecurityPolicy())

    async def one() -> httpx.Response:
        async with client_of(None, security=policy) as client:
            return await client.request(method, url, headers=headers)

    return asyncio.run(one())


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8080",
        "LOCALHOST",
        "app.localhost:1",
        "127.0.0.1:8080",
        "127.1.2.3",
        "[::1]:8080",
        "::1",
        "192.168.1.7:8080",
        "10.0.0.1",
        "172.17.0.1",
        "host.docker.internal:8080",
        "nas.local",
        "box:8080",
        "box.lan",
    ],
)
def test_own_hosts(host: str) -> None:
    policy = SecurityPolicy(machine_name="box", hosts=("box.lan",))
    assert get(host=host, policy=policy).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.com", "evil.com:8080", "localhost.evil.com", "8.8.8.8", "1.1.1.1:80", "internal"]
)
def test_foreign_hosts_are_refused_by_name_and_flag(host: str) -> None:
    found = get(host=host)
    assert found.status_code == 403
    message = found.json()["error"]["message"]
    assert "Host" in message
    assert host in message
    assert "--allow-host" in message


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:3000",
        "https://localhost",
        "http://127.0.0.1:1234",
        "http://[::1]:80",
        "http://x.localhost",
        "app://obsidian.md",
        "tauri://localhost",
        "vscode-webview://abc",
    ],
)
def test_own_origins_may_read_answers(origin: str) -> None:
    found = get(origin=origin)
    assert found.status_code == 200
    assert found.headers["access-control-allow-origin"] == origin
    assert "x-request-id" in found.headers["access-control-expose-headers"]
    for name in ("ignored", "relaxed", "adjusted"):
        assert f"x-edgeserve-{name}" in found.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin", ["null", "http://evil.com", "https://localhost.evil.com", "http://192.168.1.7", "x"]
)
def test_foreign_origins_need_cors(origin: str) -> None:
    found = get(origin=origin)
    assert found.status_code == 403
    assert "access-control-allow-origin" not in found.headers
    message = found.json()["error"]["message"]
    assert "Origin" in message
    assert origin in message
    assert "--cors" in message
    allowed = get(origin=origin, policy=SecurityPolicy(any_origin=True))
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == origin


def test_a_preflight_is_answered_before_keys_are_asked_for() -> None:
    found = get(
        "/v1/chat/completions",
        "OPTIONS",
        origin="http://localhost:3000",
        access_control_request_method="POST",
        access_control_request_headers="authorization, x-stainless-os",
        policy=SecurityPolicy(keys=("secret",)),
    )
    assert found.status_code == 204
    assert found.headers["access-control-allow-headers"] == "authorization, x-stainless-os"
    assert "POST" in found.headers["access-control-allow-methods"]
    assert found.headers["access-control-allow-origin"] == "http://localhost:3000"


def test_a_foreign_preflight_is_refused() -> None:
    assert get("/v1/models", "OPTIONS", origin="http://evil.com").status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer secret"},
        {"authorization": "bearer secret"},
        {"x_api_key": "secret"},
        {"x_api_key": "other"},
    ],
)
def test_any_of_the_keys_opens(headers: dict[str, str]) -> None:
    assert get(**headers, policy=SecurityPolicy(keys=("secret", "other"))).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer "},
        {"authorization": "Basic secret"},
        {"x_api_key": "secre"},
        {"x_api_key": "ſecret"},
    ],
)
def test_no_key_or_a_wrong_one_is_401(headers: dict[str, str]) -> None:
    encoded: dict[str, Any] = {name: value.encode() for name, value in headers.items()}
    found = get(**encoded, policy=SecurityPolicy(keys=("secret",)))
    assert found.status_code == 401
    assert found.json()["error"]["code"] == "invalid_api_key"


def test_without_keys_any_is_accepted() -> None:
    assert get(authorization="Bearer whatever").status_code == 200


@pytest.mark.parametrize(("loopback", "status"), [(True, 503), (False, 401)])
def test_health_needs_no_key_on_loopback_only(loopback: bool, status: int) -> None:
    policy = SecurityPolicy(keys=("secret",), is_loopback=loopback)
    assert get("/health", policy=policy).status_code == status  # 503: it is loading


@pytest.mark.parametrize(("loopback", "status"), [(True, 200), (False, 401)])
def test_metrics_need_no_key_on_loopback_only(loopback: bool, status: int) -> None:
    policy = SecurityPolicy(keys=("secret",), is_loopback=loopback)
    assert get("/metrics", policy=policy).status_code == status


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("x", False)],
)
def test_loopback_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "key"
    key = kept_key(path)
    assert len(key) > 30
    assert kept_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    assert kept_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
