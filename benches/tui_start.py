"""How soon `edgeserve chat` can be used: from its start as a shell would start it, on a pseudo
terminal, to the composer's echo of a key that is typed once it is seen; the model loads behind it.

    python benches/tui_start.py MODEL.gguf [--rounds 5]

Beside it, in turn, `python -c pass` and the smallest Textual program with a text area, to whose
time the chat's is set in ratio. Modules are compiled first, as an installer leaves them.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pseudo_terminal import PseudoTerminal

import edgeserve

SIZE = (100, 30)
KEY = "Q"
SMALLEST = """
from textual.app import App
from textual.widgets import TextArea
class Smallest(App):
    def compose(self):
        yield TextArea(placeholder="for commands")
Smallest().run()
"""


def python_s() -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - begun


def usable_s(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Until the screen is seen, and until it has echoed a key."""
    environment = {**os.environ, "XDG_DATA_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with PseudoTerminal(command, SIZE, environment) as terminal:
        seen = terminal.wait_for(lambda text: "for commands" in text) - terminal.started
        terminal.forget()
        terminal.write(KEY)
        echoed = terminal.wait_for(lambda text: KEY in text) - terminal.started
        terminal.read_until(time.perf_counter() + 0.3)
        terminal.write("\x11")
    return seen, echoed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for folder in Path(edgeserve.__file__).parent, Path(edgeserve.__file__).parent / "tui":
        compileall.compile_dir(folder, quiet=1)
    command = str(Path(sys.executable).with_name("edgeserve"))
    chat = [command, "chat", str(arguments.model.resolve())]
    found: dict[str, list[float]] = {name: [] for name in ("python", "textual", "seen", "usable")}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            found["python"].append(python_s())
            found["textual"].append(usable_s([sys.executable, "-c", SMALLEST], Path(folder))[1])
            seen, usable = usable_s(chat, Path(folder))
            found["seen"].append(seen)
            found["usable"].append(usable)
    for name, seconds in found.items():
        middle, least = statistics.median(seconds), min(seconds)
        print(f"{name:8} median {1000 * middle:6.0f} ms   least {1000 * least:6.0f} ms")
    ratio = min(found["usable"]) / min(found["textual"])
    print(f"the chat takes {ratio:.2f} times as long as the smallest Textual program")


if __name__ == "__main__":
    main()
