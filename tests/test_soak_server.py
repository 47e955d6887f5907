"""The server's soak, short and on a tiny model: nothing fails, and it sees a wrong text."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import pytest

from .tiny_models import write_tiny_model

TOOLS = Path(__file__).resolve().parents[1] / "tools"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=512)


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("soak_server")


def given(path: Path, seconds: float, streams: int) -> argparse.Namespace:
    return argparse.Namespace(
        model=path, minutes=seconds / 60, streams=streams, tokens=150, pool_tokens=1200, seed=0
    )


def test_many_streams_and_clients_that_leave_and_stall(
    path: Path, tmp_path: Path, soak: Any
) -> None:
    report = soak.run(given(path, seconds=5, streams=32), tmp_path)
    assert [each for each in report.failures if "proves little" not in each] == []
    assert report.counts["read"] > 10


def test_a_wrong_text_is_seen(
    path: Path, tmp_path: Path, soak: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wrong(_: int, asked: Any) -> list[str]:
        return ["?" for _ in asked]

    monkeypatch.setattr(soak, "alone", wrong)
    report = soak.run(given(path, seconds=0.5, streams=4), tmp_path)
    assert any("alone '?'" in failure for failure in report.failures)
