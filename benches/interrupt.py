"""How long Ctrl-C takes to end `edgeserve run` while it reads a long prompt.

    python benches/interrupt.py MODEL.gguf [--rounds 7] [--words 6000]

The signal comes at different moments of the prefill: after loading, before the first token.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("edgeserve"))
INTERRUPTED = 130
WANTED_S = 0.3
_STEP_S = 0.37  # no multiple of a step's time


def start(path: Path, prompt: str) -> subprocess.Popen[bytes]:
    """The command, and its whole prompt through a pipe."""
    process = subprocess.Popen(
        [COMMAND, "run", str(path), "--raw", "--max-tokens", "1", "--no-disk-cache"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(prompt.encode())
    process.stdin.close()
    return process


def seconds_of(path: Path, prompt: str) -> float:
    started = time.perf_counter()
    process = start(path, prompt)
    assert process.stdout is not None
    process.stdout.read()
    if process.wait() != 0:
        raise SystemExit(f"edgeserve run {path} ended with {process.returncode}")
    return time.perf_counter() - started


def interrupted_s(path: Path, prompt: str, after_s: float) -> float:
    """From the signal to the end of the process."""
    process = start(path, prompt)
    time.sleep(after_s)
    if process.poll() is not None:
        raise SystemExit(f"the prompt was read within {after_s:.1f} s; give more --words")
    sent = time.perf_counter()
    process.send_signal(signal.SIGINT)
    code = process.wait()
    elapsed = time.perf_counter() - sent
    assert process.stdout is not None
    printed = process.stdout.read()
    if code != INTERRUPTED or printed.strip():
        raise SystemExit(f"ended with {code}, {len(printed)} bytes printed: it was no prefill")
    return elapsed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--words", type=int, default=6000)
    given = parser.parse_args()
    words = [f"word{i % 89}" for i in range(given.words)]
    loaded_s = max(seconds_of(given.model, "word") for _ in range(2))
    found = [
        interrupted_s(given.model, " ".join(words), loaded_s + 0.5 + i * _STEP_S)
        for i in range(given.rounds)
    ]
    print(
        f"{given.model.name}: gone {statistics.median(found) * 1e3:.0f} ms after Ctrl-C "
        f"(median of {given.rounds}; worst {max(found) * 1e3:.0f} ms)"
    )
    return int(max(found) > WANTED_S)


if __name__ == "__main__":
    sys.exit(main())
