"""Reads gpt-oss's answers: messages on channels, of which one is reasoning and calls go to tools.

The format is OpenAI's "harmony": [<|start|>assistant][ to=NAME]<|channel|>CHANNEL[ to=NAME][ TYPE]
<|message|>TEXT<|end|>.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgeserve.answer_parts import AnswerPart, ContentDelta, ReasoningDelta
from edgeserve.text.call_writer import CallWriter
from edgeserve.text.part_reader import PartReader
from edgeserve.text.text_scanner import Reading
from edgeserve.text.tool_descriptions import Tool

_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_BEGINNINGS = ("<|channel|>", "to=", "assistant")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


class HarmonyParser:
    """The parts of one answer, however it is cut into pieces. Never raises on any text."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._reader = PartReader()
        self._text, self._parts = self._reader.text, self._reader.parts
        self.in_reasoning = False
        """Whether what came so far ends within reasoning."""
        self._calls = CallWriter({tool.name: tool for tool in tools}, self._parts.append)
        self._reader.begin(self._read())

    def feed(self, text: str) -> list[AnswerPart]:
        """What the answer's next piece adds."""
        return self._reader.feed(text)

    def finish(self) -> list[AnswerPart]:
        """What was held back, once no more can come."""
        return self._reader.finish()

    def _read(self) -> Reading[None]:
        text = self._text
        while True:
            header = yield from self._header()
            recipient = _RECIPIENT.search(header) if header is not None else None
            if recipient is not None:
                ending = yield from self._call(recipient.group(1))
            else:
                channel = _CHANNEL.search(header or "")
                self.in_reasoning = channel is not None and channel.group(1) == "analysis"
                out = self._think if self.in_reasoning else self._answer
                ending = yield from text.stream_until(_ENDS, out)
                self.in_reasoning = False
            if ending is None:
                return
            yield from text.space()
            yield from text.accept("<|start|>")

    def _header(self) -> Reading[str | None]:
        """What stands before a message's text; None where none does."""
        text = self._text
        mark = text.mark()
        yield from text.space()
        for beginning in _BEGINNINGS:
            if (yield from text.looking_at(beginning)):
                found = yield from text.name_until((_MESSAGE,))
                if found is not None:
                    text.forget()
                    return found[0]
        text.rewind(mark)
        text.forget()
        return None

    def _call(self, name: str) -> Reading[str | None]:
        text, calls = self._text, self._calls
        calls.begin(name)
        yield from text.space()
        if (yield from text.raw_value(calls.arguments)):
            calls.end()
        return (yield from text.stream_until(_ENDS, _drop))

    def _think(self, piece: str) -> None:
        self._parts.append(ReasoningDelta(piece))

    def _answer(self, piece: str) -> None:
        self._parts.append(ContentDelta(piece))


def _drop(_: str) -> None:
    """For what stands behind a call's arguments."""
