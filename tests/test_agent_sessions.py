"""Sessions of coding agents on `edgeserve serve`, killed in the middle: nothing is refused,
nearly all is found again, answers are those of a server without a cache; and misses in words.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from edgeserve import AsyncLLM

from .server_harness import real_server, with_server
from .tiny_models import write_tiny_model

ROOT = Path(__file__).resolve().parents[1]
NUM_TURNS = 21
COLD_TURNS = (10, 20)  # after the restart, the last

STRICT = """{{ bos_token }}{% if messages[0].role == 'system' %}{% set begin = messages[0].content +
'\n\n' %}{% set rest = messages[1:] %}{% else %}{% set begin = '' %}{% set rest = messages %}
{%- endif %}{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate') }}{% endif %}<start_of_turn>
{{- 'model' if m.role == 'assistant' else m.role }}
{{ begin if loop.first }}{{ m.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
"""As Gemma's own: no tools, and roles that alternate, which agents' do not."""


@contextmanager
def benches() -> Iterator[tuple[ModuleType, ModuleType, ModuleType]]:
    sys.path.insert(0, str(ROOT / "benches"))
    try:
        names = ("agent_sessions", "agent_servers", "agent_transcripts")
        sessions, servers, transcripts = map(importlib.import_module, names)
        yield sessions, servers, transcripts
    finally:
        sys.path.remove(str(ROOT / "benches"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "strict.jinja").write_text(STRICT, encoding="utf-8")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=20_000)


def test_sessions_are_cached_across_a_kill_and_answered_as_cold(path: Path, tmp_path: Path) -> None:
    template = path.with_name("strict.jinja")
    with benches() as (sessions, servers, transcripts):
        size = transcripts.Size(prompt_chars=2500, result_chars=20, max_tokens=4, num_tools=3)
        both = [transcripts.ClaudeCode(size), transcripts.Codex(size)]
        server = servers.Contestant("edgeserve", path, template, threads=1)
        replays = sessions.replay(server, both, tmp_path, NUM_TURNS)
        options: dict[str, Any] = {"prefix_caching": False, "disk_cache": 0}
        options["chat_template"] = template.read_text(encoding="utf-8")
        with real_server(path, **options) as (url, _):
            for each in replays:
                for turn in COLD_TURNS:
                    each.outcome.cold[turn] = servers.ask(url, each.requests[turn])
    for each in replays:
        outcome = each.outcome
        assert outcome.failed == []
        assert len(outcome.replies) == NUM_TURNS
        assert outcome.cached_share >= 0.95
        assert outcome.unlike_cold == []
        assert all(cold.cached_tokens == 0 for cold in outcome.cold.values())
    assert "read again" not in (tmp_path / "log").read_text(encoding="utf-8")


PARAGRAPH = "the inn is there and she is in it, he has a tin of tea on his hat. "


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        (0, "message 1 of 3 (a system message), line 2"),
        (1, "message 2 of 3 (a user's), line 1"),
        (None, None),
    ],
)
def test_a_miss_is_said_in_words_that_name_the_message(
    path: Path, caplog: pytest.LogCaptureFixture, changed: int | None, place: str | None
) -> None:
    def conversation(minute: int) -> dict[str, Any]:
        clock = [f"it is ten {minute if at == changed else 0} now" for at in range(2)]
        messages = [
            {"role": "system", "content": f"be kind to all\n{clock[0]}\n{PARAGRAPH * 8}"},
            {"role": "user", "content": f"{clock[1]}. {PARAGRAPH * 8}"},
            {"role": "user", "content": f"and what of {minute}"},
        ]
        return {"messages": messages, "max_tokens": 1}

    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        for minute in range(1, 3):
            answer = await client.post("/v1/chat/completions", json=conversation(minute))
            assert answer.status_code == 200

    with caplog.at_level(logging.INFO, "edgeserve.server"):
        with_server(path, test, disk_cache=0)
    said = [line for line in caplog.messages if "found in the cache" in line]
    assert [f"it changed in {place}." in line for line in said] == ([True] if place else [])
    assert PARAGRAPH[:12] not in caplog.text
