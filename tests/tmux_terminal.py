"""A real terminal for tests: tmux holds the screen, keys are typed, and what stood there is read.

Every session has a tmux server of its own and a shell with job control, whose prompt is `PROMPT`.
Nothing waits for a fixed time: what is awaited is looked for until it is there, or the test fails
with the screen in its message.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

PROMPT = "shell>"

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

_BOUND_S = 30.0
_PAUSE_S = 0.03
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "EDGESERVE_KERNELS")


def unbroken(text: str) -> str:
    return "".join(text.split())


class TmuxTerminal:
    """`folder` is the shell's. `received` is every byte that the terminal got."""

    def __init__(self, folder: Path, size: tuple[int, int], environ: Mapping[str, str]) -> None:
        self._socket = folder / "tmux"
        self._log = folder / "received"
        given = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        given |= {"HOME": str(folder), "LANG": "C.UTF-8", **environ}
        self._environ = {**given, "TMUX_TMPDIR": str(folder)}
        width, height = size
        (folder / "shellrc").write_text(f"PS1='{PROMPT} '\n")
        (folder / "tmux.conf").write_text(
            "set -g default-terminal tmux-256color\nset -g escape-time 10\nset -g status off\n"
            "set -g update-environment ''\nset -g history-limit 5000\n"
        )
        exported = [part for name, value in given.items() for part in ("-e", f"{name}={value}")]
        self._tmux(
            *("-f", str(folder / "tmux.conf"), "new-session", "-d", "-c", str(folder), *exported),
            *("-x", str(width), "-y", str(height), "bash --noprofile --rcfile shellrc"),
        )
        self._tmux("pipe-pane", f"cat >> {shlex.quote(str(self._log))}")
        self.until(lambda: PROMPT in self.screen())

    # --- typing ---------------------------------------------------------------------------------

    def keys(self, *names: str) -> None:
        """As tmux calls them: Enter, Escape, C-c, M-e, F2."""
        self._tmux("send-keys", *names)

    def type(self, text: str, *names: str) -> None:
        """Letters as they are, then keys."""
        self._tmux("send-keys", "-l", "--", text)
        if names:
            self.keys(*names)

    def paste(self, text: str) -> None:
        """As a terminal pastes it, in brackets where the program asked for them."""
        subprocess.run(
            [*self._command(), "load-buffer", "-"],
            input=text.encode(),
            check=True,
            timeout=_BOUND_S,
        )
        self._tmux("paste-buffer", "-p", "-r")

    def raw(self, *values: int) -> None:
        """Bytes as they are."""
        self._tmux("send-keys", "-H", *(f"{value:02x}" for value in values))

    def buffer(self) -> str:
        """What tmux would paste."""
        return self._tmux("show-buffer")

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    # --- reading --------------------------------------------------------------------------------

    def screen(self) -> str:
        """What stands there now, without colours."""
        return self._tmux("capture-pane", "-p")

    def coloured_screen(self) -> str:
        """What stands there now, with the sequences that draw it."""
        return self._tmux("capture-pane", "-p", "-e")

    def received(self, start: int = 0) -> bytes:
        raw = self._log.read_bytes() if self._log.exists() else b""
        return raw[start:]

    def is_so(self, flag: str) -> bool:
        """What tmux knows of the pane: alternate_on, cursor_flag, mouse_any_flag."""
        return self._tmux("display-message", "-p", f"#{{{flag}}}").strip() == "1"

    def program(self) -> int:
        """The id of what the shell runs."""
        shell = self._tmux("display-message", "-p", "#{pane_pid}").strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text()
        return int(children.split()[0])

    def is_sane(self) -> bool:
        """As a shell needs it: its own screen, a cursor, no mouse."""
        is_alternate, is_mouse = self.is_so("alternate_on"), self.is_so("mouse_any_flag")
        return self.is_so("cursor_flag") and not is_alternate and not is_mouse

    def shows(self, *texts: str, bound_s: float = _BOUND_S) -> str:
        """Waits until all of them stand there; the screen."""
        return self.until(
            lambda: all(text in self.screen() for text in texts), f"{texts}", bound_s=bound_s
        )

    def says(self, text: str) -> str:
        """As `shows`, wherever a notice's lines are broken."""
        return self.until(
            lambda: unbroken(text) in unbroken(self.screen().replace("▌", "")), repr(text)
        )

    def lacks(self, text: str, *, bound_s: float = _BOUND_S) -> str:
        return self.until(lambda: text not in self.screen(), f"no {text!r}", bound_s=bound_s)

    def until(
        self, is_so: Callable[[], object], what: str = "it", *, bound_s: float = _BOUND_S
    ) -> str:
        end = time.monotonic() + bound_s
        while not is_so():
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not come; the screen says:\n{self.screen()}")
            time.sleep(_PAUSE_S)
        return self.screen()

    def close(self) -> None:
        subprocess.run(
            [*self._command(), "kill-server"], capture_output=True, check=False, timeout=_BOUND_S
        )

    # --- inside ---------------------------------------------------------------------------------

    def _command(self) -> list[str]:
        return ["tmux", "-S", str(self._socket)]

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._command(), *arguments],
            capture_output=True,
            check=False,
            timeout=_BOUND_S,
            env=self._environ,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()


@contextmanager
def a_terminal(
    folder: Path, *, size: tuple[int, int] = (80, 24), environ: Mapping[str, str] = {}
) -> Iterator[TmuxTerminal]:
    """Ends everything that runs in it."""
    terminal = TmuxTerminal(folder, size, environ)
    try:
        yield terminal
    finally:
        terminal.close()
