"""`edgeserve run` with the model on disk: time to the first token, and the most memory it took.

    python benches/start.py MODEL.gguf [MODEL.gguf ...] [--rounds 5]

The command is started as a shell would, and timed to the first byte it prints of an answer of one
token: of a longer one it may print later, where tokens are parts of characters. Its modules are
compiled first, as an installer leaves them: a source tree's are compiled at every start where
PYTHONDONTWRITEBYTECODE is set, which takes a quarter of a second. Memory is Linux's VmHWM (all that
was resident) and the highest RssAnon seen (what no file backs), beside the bound: the model's file,
20 %, the KV in use, and 100 MiB for interpreter and vocabulary.
"""

from __future__ import annotations

import argparse
import compileall
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import edgeserve
from edgeserve.loader.gguf import read_gguf
from edgeserve.models import build_plan

COMMAND = str(Path(sys.executable).with_name("edgeserve"))
PROMPT = "Name three things that one sees on a walk through a forest in autumn."
ALWAYS = ("--temperature", "0", "--no-disk-cache")
MIB = 1 << 20
_LOOK_S = 0.002
_KV_BYTES = 2  # f16


@dataclass(frozen=True)
class Memory:
    """Peaks of one process, in bytes, and the tokens whose keys and values it held."""

    resident: int
    anonymous: int
    num_tokens: int


def first_byte_s(path: Path) -> float:
    started = time.perf_counter()
    with subprocess.Popen(
        [COMMAND, "run", str(path), PROMPT, *ALWAYS, "--max-tokens", "1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        elapsed = time.perf_counter() - started
        process.stdout.read()
    if process.returncode != 0:
        raise SystemExit(f"edgeserve run {path} ended with {process.returncode}")
    return elapsed


def memory_of(path: Path) -> Memory:
    arguments = [*ALWAYS, "--json", "--max-tokens", "128"]
    with subprocess.Popen(
        [COMMAND, "run", str(path), PROMPT, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        resident = anonymous = 0
        while process.poll() is None:
            now = status(process.pid)
            resident = max(resident, now.get("VmHWM", 0))
            anonymous = max(anonymous, now.get("RssAnon", 0))
            time.sleep(_LOOK_S)
        assert process.stdout is not None
        usage = json.loads(process.stdout.read())["usage"]
    return Memory(resident, anonymous, usage["prompt_tokens"] + usage["completion_tokens"])


def status(pid: int) -> dict[str, int]:
    """Sizes in /proc/PID/status, in bytes; empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    lines = (line.split() for line in text.splitlines() if line.endswith(" kB"))
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in lines}


def measure(path: Path, rounds: int) -> None:
    first_byte_s(path)  # brings the file into memory
    seconds = [first_byte_s(path) for _ in range(rounds)]
    print(
        f"{path.name}: first token after {statistics.median(seconds):.2f} s "
        f"(median of {rounds}; {min(seconds):.2f} to {max(seconds):.2f})"
    )
    if sys.platform != "linux":
        return
    peak = memory_of(path)
    model = read_gguf(path)
    plan = build_plan(model.metadata, model.tensors)
    kv_bytes = plan.kv_bytes_per_token(_KV_BYTES) * peak.num_tokens
    bound = 1.2 * path.stat().st_size + kv_bytes + 100 * MIB
    print(
        f"  memory: {peak.resident / MIB:.0f} MiB resident, {peak.anonymous / MIB:.0f} anonymous, "
        f"at most; bound {bound / MIB:.0f} ({path.stat().st_size / MIB:.0f} of model, "
        f"{kv_bytes / MIB:.0f} of KV): {'kept' if peak.resident <= bound else 'NOT KEPT'}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    compileall.compile_dir(Path(edgeserve.__file__).parent, quiet=1)
    for path in given.models:
        measure(path, given.rounds)


if __name__ == "__main__":
    main()
