"""The bar over many prompts: shown when it should be, on standard error only."""

from __future__ import annotations

import io
import sys

import pytest

from edgeserve.progress_bar import PromptProgress
from edgeserve.types import CompletionOutput, RequestOutput, Timings, Usage


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def output(num_tokens: int) -> RequestOutput:
    choice = CompletionOutput(0, "", (), "stop")
    return RequestOutput("r", None, (), (choice,), Usage(1, num_tokens), Timings(0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("num_prompts", "wanted", "terminal", "shown"),
    [
        (2, None, True, True),
        (1, None, True, False),
        (2, None, False, False),
        (2, False, True, False),
        (1, True, False, True),
        (0, None, True, False),
    ],
)
def test_shown_for_many_prompts_on_a_terminal_or_when_asked(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    num_prompts: int,
    wanted: bool | None,
    terminal: bool,
    shown: bool,
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with PromptProgress(num_prompts, wanted) as bar:
        for _ in range(num_prompts):
            bar.advance(output(7))
    assert (stream.getvalue() != "") == shown
    assert capsys.readouterr().out == ""


def test_counts_prompts_and_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with PromptProgress(2, None) as bar:
        bar.advance(output(7))
        bar.advance(output(5))
    assert "12 tokens out" in stream.getvalue()
    assert "100%" in stream.getvalue()


def test_error_inside_takes_the_bar_away_and_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(KeyboardInterrupt), PromptProgress(2, True):
        raise KeyboardInterrupt
    assert stream.getvalue().endswith("\x1b[2K") or "\x1b[?25h" in stream.getvalue()
