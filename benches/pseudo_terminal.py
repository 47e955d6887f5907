"""A program on a terminal of our own: what it writes comes here, and when. For POSIX systems."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

_CONTROL = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)"
    rb"|P[^\x1b]*\x1b\\|[()][A-Z0-9]|[=>78])"
)
_KEPT_BYTES = 1 << 16


class PseudoTerminal:
    """Runs `command` in a window of (columns, lines). `seen` is what it has written lately, without
    control sequences; a line discipline that would echo by itself is told not to."""

    def __init__(
        self, command: Sequence[str], size: tuple[int, int], environment: Mapping[str, str]
    ) -> None:
        self._master, slave = os.openpty()
        mode = termios.tcgetattr(slave)
        mode[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(slave, termios.TCSANOW, mode)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self._written = b""
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """What has not ended by itself is ended."""
        deadline = time.perf_counter() + (0 if kind else 20)
        while self.process.poll() is None and time.perf_counter() < deadline:
            self.read(0.05)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._master)

    @property
    def seen(self) -> str:
        return _CONTROL.sub(b"", self._written).decode("utf-8", "replace")

    def forget(self) -> None:
        self._written = b""

    def write(self, text: str) -> float:
        """As if typed; when that was."""
        os.write(self._master, text.encode())
        return time.perf_counter()

    def read(self, seconds: float) -> int:
        """Takes in what comes, waiting at most so long for it; how many bytes came."""
        if not select.select([self._master], [], [], max(0.0, seconds))[0]:
            return 0
        try:
            came = os.read(self._master, 1 << 16)
        except OSError:  # the program has gone
            time.sleep(min(max(seconds, 0.0), 0.01))
            return 0
        self._written = (self._written + came)[-_KEPT_BYTES:]
        return len(came)

    def read_until(self, until: float) -> None:
        while (left := until - time.perf_counter()) > 0:
            self.read(left)

    def wait_for(self, is_there: Callable[[str], bool], seconds: float = 60.0) -> float:
        """When `seen` first was so. Raises TimeoutError with what is there instead."""
        until = time.perf_counter() + seconds
        while not is_there(self.seen):
            came = self.read(min(1.0, until - time.perf_counter()))
            if not came and (time.perf_counter() >= until or self.process.poll() is not None):
                raise TimeoutError(f"did not come; there is:\n{self.seen[-4000:]}")
        return time.perf_counter()
