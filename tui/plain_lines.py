"""Where the plain chat's lines come from: any file, or a terminal at which they can be edited."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager

_KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.?)|[\x00-\x08\x0b-\x1f\x7f-\x9f]", re.DOTALL)
"""What a key sends that is no letter, or a control character."""


def without_keys(text: str) -> str:
    """What was typed, without the keys that the terminal had no use for, such as the arrows."""
    return _KEY.sub("", text)


class EditedLines:
    """Lines typed at a terminal, with the keys and the history of readline. `prompt` stands before
    the next one. Importing this raises nothing; making one raises ImportError without readline."""

    def __init__(self) -> None:
        importlib.import_module("readline")  # `input` uses it from then on

        self.prompt = ""

    def __iter__(self) -> Iterator[str]:
        while True:
            try:
                yield f"{input(self.prompt)}\n"
            except EOFError:
                return


@contextmanager
def terminal_as_it_was() -> Generator[None]:
    """readline changes the terminal while it waits, and a program that ends meanwhile has to change
    it back."""
    put_back = _way_back()
    try:
        yield
    finally:
        put_back()


def _way_back() -> Callable[[], None]:
    try:
        import termios
    except ImportError:  # Windows
        return _nothing
    try:
        before = termios.tcgetattr(sys.stdin)
    except (OSError, ValueError, termios.error):  # no terminal
        return _nothing
    return lambda: termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _nothing() -> None:
    """Where there is no terminal to put right."""


class LineReader:
    """Lines of a file that blocks, for an event loop. Read on a thread that ends with the process,
    for nothing can be done about a read that waits."""

    def __init__(self, source: Iterable[str]) -> None:
        self._source = source
        self._lines: asyncio.Queue[str | BaseException | None] = asyncio.Queue()
        self._wanted = threading.Semaphore(0)
        self._is_over = False
        self._thread: threading.Thread | None = None

    @property
    def is_edited(self) -> bool:
        """Whether somebody types, and the prompt before the line is written along with it."""
        return isinstance(self._source, EditedLines)

    async def next(self, prompt: str = "") -> str | None:
        """Without its end; None at the end of the file. Raises what reading raises."""
        if self._is_over:
            return None
        if isinstance(self._source, EditedLines):
            self._source.prompt = prompt
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._read, args=(loop,), daemon=True)
            self._thread.start()
        self._wanted.release()
        found = await self._lines.get()
        if isinstance(found, BaseException):
            raise found
        self._is_over = self._is_over or found is None
        return None if self._is_over or found is None else found.rstrip("\r\n")

    def end(self) -> None:
        """As if the file ended here."""
        self._is_over = True
        self._lines.put_nowait(None)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """A line at a time, as it is wanted: what follows may be for somebody else."""
        lines = iter(self._source)
        found: str | BaseException | None = ""
        while isinstance(found, str):
            self._wanted.acquire()
            try:
                found = next(lines, None)
            except Exception as error:
                found = error
            try:
                loop.call_soon_threadsafe(self._lines.put_nowait, found)
            except RuntimeError:  # the loop has ended
                return
