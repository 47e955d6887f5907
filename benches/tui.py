"""How the chat keeps up, as a user would feel it: the real program on a pseudo terminal.

    python benches/tui.py                          # 200 tokens a second into 10,000 lines
    python benches/tui.py --beside model.gguf      # while a model computes on all cores
    python benches/tui.py --model model.gguf       # `edgeserve chat`, its own engine answering

A key's echo is from its arrival at the terminal to the bytes that show it. A frame is the time in
which the event loop runs nothing else: from new text to bytes for the terminal. Where a model
computes, its pace is measured with keys and, `--no-keys`, without.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import string
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pseudo_terminal import PseudoTerminal

from edgeserve.config import paint_promptly

CHAT = Path(__file__).with_name("tui_chat.py")
READY = "for commands"
QUESTION = "Tell me a long story, please, with many people and places in it."
_BUSY = re.compile(r"answering.* \d+ tokens")
_LONGEST_LINE = 40
_TELLING = 4
"""So many letters at a line's end are in no answer: sooner would be luck."""


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def report(name: str, seconds: Sequence[float]) -> None:
    p50, p99, most = (1000 * percentile(seconds, share) for share in (0.5, 0.99, 1))
    count = len(seconds)
    print(f"{name:14} p50 {p50:6.1f} ms   p99 {p99:6.1f} ms   max {most:6.1f} ms   ({count})")


def echoes(terminal: PseudoTerminal, until: float, pause_s: float) -> list[float]:
    """Letters, one after the other, each until the composer shows it."""
    chance = random.Random(1)
    typed = ""
    found: list[float] = []
    while time.perf_counter() < until:
        letter = chance.choice(string.ascii_uppercase)
        typed += letter
        terminal.forget()
        begun = terminal.write(letter)
        wanted = typed[-_TELLING:]
        shown_at = terminal.wait_for(lambda seen, wanted=wanted: wanted in seen, 10)
        if len(wanted) == _TELLING:
            found.append(shown_at - begun)
        terminal.read_until(time.perf_counter() + pause_s + chance.random() / 30)
        if len(typed) == _LONGEST_LINE:
            terminal.write("\x7f" * _LONGEST_LINE)
            terminal.read_until(time.perf_counter() + 0.5)
            typed = ""
    return found


def ask(terminal: PseudoTerminal) -> None:
    """Returns once the answer has begun."""
    terminal.wait_for(lambda seen: READY in seen)
    terminal.read_until(time.perf_counter() + 1)
    terminal.write(QUESTION)
    terminal.read_until(time.perf_counter() + 1)
    terminal.forget()
    terminal.write("\r")
    terminal.wait_for(lambda seen: _BUSY.search(seen) is not None)


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    seconds = arguments.seconds
    paint_promptly()  # as the command does
    if arguments.model:
        edgeserve = str(Path(sys.executable).with_name("edgeserve"))
        command = [edgeserve, "chat", str(arguments.model.resolve())]
    else:
        command = [sys.executable, str(CHAT), str(folder), f"--lines={arguments.lines}"]
        command += [f"--rate={arguments.rate}", f"--seconds={seconds + 4}"]
        if arguments.beside:
            command.append(f"--beside={arguments.beside.resolve()}")
    environment = {**os.environ, "XDG_DATA_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    with PseudoTerminal(command, tuple(arguments.size), environment) as terminal:
        ask(terminal)
        until = time.perf_counter() + seconds
        if arguments.keys:
            report("key to screen", echoes(terminal, until, arguments.pause))
        else:
            terminal.read_until(until)
        terminal.write("\x11")
    told = folder / "report.json"
    if told.exists():
        found = json.loads(told.read_text())
        report("frame", found["frames"])
        if found["beside_tokens_per_s"]:
            print(f"beside it      {found['beside_tokens_per_s']:.1f} tokens a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=200, help="tokens a second")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--size", type=int, nargs=2, default=(160, 48))
    parser.add_argument("--pause", type=float, default=0.08, help="between two keys, in seconds")
    parser.add_argument("--keys", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--beside", type=Path, help="GGUF that computes beside")
    parser.add_argument("--model", type=Path, help="GGUF that answers in `edgeserve chat`")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(arguments, Path(folder))


if __name__ == "__main__":
    main()
