"""The log as JSON: an object a line, with a request's facts as values."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve import AsyncLLM
from edgeserve.server.log_format import JsonFormatter

from .server_harness import USER, with_server
from .tiny_models import write_tiny_model


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the server logs, as JSON."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger("edgeserve.server")
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    yield out
    log.setLevel(level)
    log.removeHandler(handler)


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_request_is_an_object_with_its_counts(written: io.StringIO, tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", "llama", context=64)

    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        body = {"messages": USER, "max_tokens": 3, "ignore_eos": True, "user": "me"}
        headers = {"x-request-id": "mine", "user-agent": 'a "quoted"\tname'}
        answer = await client.post("/v1/chat/completions", json=body, headers=headers)
        usage = answer.json()["usage"]
        notes, request = lines(written)
        assert notes["user_agent"] == headers["user-agent"]
        assert notes["notes"] == ["ignored: user"]
        assert (request["id"], request["status"], request["model"]) == ("mine", 200, "tiny")
        assert (request["prompt"], request["output"]) == (usage["prompt_tokens"], 3)
        assert (request["level"], request["logger"]) == ("info", "edgeserve.server")
        assert request["ms"] >= request["ttft_ms"] > 0
        assert "the inn" not in written.getvalue()

    with_server(path, test, disk_cache=0)


def test_other_lines_have_their_message_and_traceback(written: io.StringIO) -> None:
    log = logging.getLogger("edgeserve.server")
    log.info("two\nlines of %s", "text")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")
    said, failed = lines(written)
    assert said["message"] == "two\nlines of text"
    assert said["time"].endswith("+00:00")
    assert (failed["level"], failed["message"]) == ("error", "it failed")
    assert "ValueError: broken" in failed["exception"]
