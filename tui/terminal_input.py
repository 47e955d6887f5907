"""What the terminal sends: keys as Textual reads them, and pastes as whole texts.

Textual reads a paste character by character, and takes an escape sequence inside it for keys: a
text from elsewhere could press Enter, or leave. Here nothing in a paste is a key, and 1 MB of it
is taken in one piece.
"""

from __future__ import annotations

import os
import selectors
import signal
from codecs import getincrementaldecoder
from collections.abc import Iterable

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

_START, _END = "\x1b[200~", "\x1b[201~"
_READ_BYTES = 2**16
_MORE_FOLLOWS = 1_000
"""A read this long is cut off somewhere; nobody types so much at once."""

_SELECT_S = 0.1


class PasteParser(XTermParser):
    def __init__(self) -> None:
        super().__init__()
        self._held = ""
        self._pasted: list[str] | None = None

    def feed(self, data: str) -> Iterable[Message]:
        """The events of `data`; "" is the end."""
        if not data:
            yield from super().feed(data)
            return
        data, self._held = self._held + data, ""
        while data:
            if self._pasted is None:
                typed, start, data = data.partition(_START)
                if not start:
                    typed = self._without_beginning(typed, _START)
                if typed:
                    yield from super().feed(typed)
                if start:
                    self._pasted = []
            else:
                text, is_over, data = _up_to_end(data)
                if not is_over:
                    text = self._without_beginning(text, _END)
                self._pasted.append(text)
                if is_over:
                    yield events.Paste("".join(self._pasted).replace("\x00", ""))
                    self._pasted = None

    def _without_beginning(self, text: str, sequence: str) -> str:
        """Holds back what may be the beginning of a sequence that the next read ends. An escape
        that is typed is alone, and not to wait."""
        for length in range(min(len(sequence) - 1, len(text)), 0, -1):
            if text.endswith(sequence[:length]):
                if length > 2 or self._pasted is not None or len(text) > _MORE_FOLLOWS:
                    self._held = text[-length:]
                    return text[:-length]
                break
        return text


def _up_to_end(data: str) -> tuple[str, bool, str]:
    """What is pasted, whether it ends here, and what follows. Of several ends before another
    beginning the last one is the terminal's, the others were pasted."""
    following = data.find(_START)
    end = data.rfind(_END, 0, following if following >= 0 else len(data))
    if end < 0:
        end = data.find(_END)
    return (data, False, "") if end < 0 else (data[:end], True, data[end + len(_END) :])


class PasteDriver(LinuxDriver):
    """Reads with a PasteParser; bytes that are no UTF-8 do not end the program."""

    def run_input_thread(self) -> None:
        parser = PasteParser()
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_SELECT_S):
                    raw = self._read()
                    if not raw:
                        os.kill(os.getpid(), signal.SIGHUP)
                        return
                    if text := decode(raw):
                        self._hear(parser.feed(text))
                self._hear(parser.tick())

    def _read(self) -> bytes:
        """Nothing where the terminal is gone."""
        try:
            return os.read(self.fileno, _READ_BYTES)
        except OSError:
            return b""

    def _hear(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.process_message(message)
