"""Coding agents and an evaluation harness, each with one task against a real `edgeserve serve`.

    python tools/clients.py MODEL [--chat-template FILE] [--end TOKEN] [--only NAME ...]
                            [--folder DIR]

Claude Code, Codex, aider and lm-evaluation-harness are installed under DIR, each alone (kept; the
user's cache folder by default). An agent does what `edgeserve connect` prints, with one task that
asks nobody, twice; lm-evaluation-harness's score is compared with the Python API's. What is asked
of each: exit status 0; nothing but 2xx of the server, and no answer cut short; streams, where the
client streams; and of its second prompt nine tenths cached. What it says is the model's business.

MODEL needs a context of 32k. One that was not trained to end its turns rambles on for thousands of
tokens: --end TOKEN, such as '\\n', makes a copy whose end token is that one. A table has what was
found; exits with 1 if a client failed, or none could be installed. Light clients are in
tests/test_clients.py.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from client_programs import (
    ClientError,
    NotInstalledError,
    Place,
    Server,
    aider,
    claude_code,
    codex,
    install_from_npm,
    install_from_pypi,
    output_of,
)
from client_scores import NUM_QUESTIONS, lm_eval

from edgeserve.config import Config
from edgeserve.loader.gguf import read_gguf

CACHED_SHARE = 0.9
LAST_LINES_SECONDS = 1.0  # a request's line is written when its client has read all of it
COLUMNS = ("client", "version", "task", "requests", "cached", "first text s", "all s", "found")


@dataclass(frozen=True)
class Client:
    """`version` is the command that prints it; `run` does the task and says what came of it."""

    install: Callable[[Path], None]
    version: Sequence[str]
    task: str
    run: Callable[[Server, Place], str]
    is_agent: bool = True


@dataclass(frozen=True)
class Run:
    """What one run of a task took, and the server's facts about each request of it."""

    seconds: float
    facts: Sequence[Mapping[str, Any]]
    note: str

    @property
    def answers(self) -> Sequence[Mapping[str, Any]]:
        """Those that a model was to make."""
        return [fact for fact in self.facts if "model" in fact]

    @property
    def longest(self) -> Mapping[str, Any]:
        """The answer to the longest prompt."""
        return max(self.answers, key=lambda fact: fact["prompt"])


def main() -> int:
    args = _arguments()
    ran, failed = 0, False
    print(" | ".join(COLUMNS))
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        model = args.model if args.end is None else _ending_at(args.end, args.model, scratch)
        clients = _clients(model)
        with _serving(model, args.chat_template, scratch) as server:
            for chosen in args.only or clients:
                place = Place(args.folder / chosen, scratch / chosen, scratch / f"{chosen}-work")
                place.home.mkdir()
                place.work.mkdir()
                try:
                    row = _row(clients[chosen], server, place)
                    ran += 1
                except NotInstalledError as error:
                    row = [f"NOT INSTALLED: {error}"]
                except ClientError as error:
                    row, failed = [f"FAILED: {error}"], True
                print(" | ".join([chosen, *row]), flush=True)
    return int(failed or not ran)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--chat-template", type=Path)
    parser.add_argument("--end", metavar="TOKEN")
    parser.add_argument("--only", nargs="+", choices=_clients(Path()), metavar="NAME")
    folder = Config.from_environment().cache_dir / "clients"
    parser.add_argument("--folder", type=Path, default=folder)
    return parser.parse_args()


def _clients(model: Path) -> Mapping[str, Client]:
    return {
        "claude-code": Client(
            partial(install_from_npm, "@anthropic-ai/claude-code"),
            ("node_modules/.bin/claude", "--version"),
            "claude -p",
            claude_code,
        ),
        "codex": Client(
            partial(install_from_npm, "@openai/codex"),
            ("node_modules/.bin/codex", "--version"),
            "codex exec",
            codex,
        ),
        "aider": Client(
            partial(install_from_pypi, "aider-chat"),
            ("bin/aider", "--version"),
            "aider --message, a file",
            aider,
        ),
        "lm-eval": Client(
            partial(install_from_pypi, "lm-eval[api]"),
            (
                "bin/python",
                "-c",
                "from importlib import metadata as m; print(m.version('lm-eval'))",
            ),
            f"local-completions, {NUM_QUESTIONS} questions of a local file",
            partial(lm_eval, model=model),
            is_agent=False,
        ),
    }


def _row(client: Client, server: Server, place: Place) -> Sequence[str]:
    """Raises ClientError for what was not as it should be."""
    client.install(place.prefix)
    program, *words = client.version
    said = output_of([place.prefix / program, *words], place)
    version = re.search(r"\d+(\.\d+)+", said)
    runs = [_run(client, server, place) for _ in range(2 if client.is_agent else 1)]
    for run in runs:
        _check_answers(run, streamed=client.is_agent)
    last = runs[-1].longest
    if client.is_agent and last["cached"] < CACHED_SHARE * last["prompt"]:
        raise ClientError(
            f"of its second prompt's {last['prompt']:,} tokens {last['cached']:,} hit"
        )
    return [
        version[0] if version else said.strip(),
        client.task,
        ", ".join(f"{len(run.facts)}" for run in runs) + ", all 2xx",
        ", ".join(_cached(run.longest) for run in runs) if client.is_agent else "-",
        ", ".join(f"{run.longest['ttft_ms'] / 1e3:.1f}" for run in runs),
        ", ".join(f"{run.seconds:.0f}" for run in runs),
        runs[-1].note,
    ]


def _cached(fact: Mapping[str, Any]) -> str:
    return f"{fact['cached']:,} of {fact['prompt']:,}"


def _run(client: Client, server: Server, place: Place) -> Run:
    before, began = len(_facts(server)), time.monotonic()
    note = client.run(server, place)
    seconds = time.monotonic() - began
    time.sleep(LAST_LINES_SECONDS)
    return Run(seconds, _facts(server)[before:], note)


def _check_answers(run: Run, *, streamed: bool) -> None:
    statuses = Counter(str(fact["status"]) for fact in run.facts)
    if any(not status.startswith("2") for status in statuses):
        raise ClientError(f"the server answered {dict(statuses)}")
    if not run.answers:
        raise ClientError("it asked the model nothing")
    ends = Counter(fact.get("finish") for fact in run.answers)
    if not ends.keys() <= {"stop", "length", "tool_calls"}:
        raise ClientError(f"its answers ended with {dict(ends)}")
    if streamed and not all(fact["stream"] for fact in run.answers):
        raise ClientError("it did not stream")


# --- the server ----------------------------------------------------------------------------------


@contextmanager
def _serving(model: Path, template: Path | None, scratch: Path) -> Iterator[Server]:
    log = scratch / "server.log"
    command = [sys.executable, "-m", "edgeserve.cli", "serve", str(model), "--port=0"]
    command += ["--no-disk-cache", "--model-alias=local", "--log-format=json"]
    if template is not None:
        command.append(f"--chat-template={template}")
    with log.open("w") as written:
        process = subprocess.Popen(command, stderr=written)
    try:
        yield Server(_ready_url(process, log), "local", log)
    finally:
        process.terminate()
        process.wait(30)


def _ready_url(process: subprocess.Popen[bytes], log: Path) -> str:
    while process.poll() is None:
        found = re.search(r"is ready at (\S+/v1)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.2)
    raise SystemExit(log.read_text())


def _facts(server: Server) -> list[Mapping[str, Any]]:
    """Of all requests that were answered so far."""
    lines = [line for line in server.log.read_text().splitlines() if line.startswith("{")]
    return [fact for fact in map(json.loads, lines) if "status" in fact]


def _ending_at(token: str, model: Path, folder: Path) -> Path:
    """A copy of the model whose answers end with this token."""
    text = token.encode().decode("unicode_escape")
    tokens = read_gguf(model).metadata.values["tokenizer.ggml.tokens"]
    changed = bytearray(model.read_bytes())
    key = b"tokenizer.ggml.eos_token_id"
    at = changed.index(key) + len(key) + 4  # behind the value's type
    changed[at : at + 4] = list(tokens).index(text).to_bytes(4, "little")
    copy = folder / model.name
    copy.write_bytes(changed)
    return copy


if __name__ == "__main__":
    sys.exit(main())
