"""Finds the tool calls in an answer as it is generated, and what of it is text.

Owns where calls begin and end; how each family writes them is in *_calls.py. Reads generated text
only: a prompt's tags are nobody's calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgeserve.answer_parts import AnswerPart, ContentDelta
from edgeserve.text.call_writer import CallWriter
from edgeserve.text.json_calls import read_named, read_objects
from edgeserve.text.literal_calls import read_literals
from edgeserve.text.part_reader import PartReader
from edgeserve.text.tagged_calls import read_tagged
from edgeserve.text.text_scanner import Reading
from edgeserve.text.tool_descriptions import Tool
from edgeserve.text.tool_formats import (
    GENERIC,
    LiteralFormat,
    NamedFormat,
    ObjectFormat,
    TaggedFormat,
    marks_of,
)

TextFormat = ObjectFormat | NamedFormat | TaggedFormat | LiteralFormat


class ToolCallParser:
    """The parts of one answer, however it is cut into pieces.

    What looks like a call and is none stays text. A call that is cut is told as far as it got.
    White space around calls belongs to nobody. Never raises on any text.
    """

    def __init__(self, form: TextFormat, tools: Sequence[Tool]) -> None:
        self._form = form
        self._marks = tuple(mark.strip() for mark in marks_of(form))
        self._reader = PartReader()
        self._text, self._parts = self._reader.text, self._reader.parts
        self._space = ""  # white space that is text only if text follows it
        self._after_call = False
        self._calls = CallWriter({tool.name: tool for tool in tools}, self._parts.append)
        self._reader.begin(self._read())

    def feed(self, text: str) -> list[AnswerPart]:
        """What the answer's next piece adds."""
        return self._reader.feed(text)

    def finish(self) -> list[AnswerPart]:
        """What was held back, once no more can come."""
        parts = self._reader.finish()
        if self._space and not self._after_call:
            parts.append(ContentDelta(self._space))
        self._space = ""
        return parts

    # --- where calls are -----------------------------------------------------------------------

    def _read(self) -> Reading[None]:
        form, text = self._form, self._text
        if isinstance(form, ObjectFormat) and form.bare:
            yield from self._read_bare(form)
        triggers = _triggers(form)
        while True:
            trigger = yield from text.value_until(triggers, self._say)
            if trigger is None:
                if self._after_call:  # nothing but white space since: the next call's tag was cut
                    text.drop_cut(triggers)
                yield from text.stream_until((), self._say)
                return
            start = text.mark(back=len(trigger))
            if (yield from self._read_calls(trigger)):
                self._after_call, self._space = True, ""
                yield from self._read_endings()
            else:
                text.rewind(start)
                self._say(text.take(1))
            text.forget()

    def _read_bare(self, form: ObjectFormat) -> Reading[None]:
        """Calls that nothing announces, at the answer's beginning."""
        text = self._text
        start = text.mark()
        yield from text.space()
        yield from text.accept(form.optional_trigger)
        if (yield from read_objects(form, text, self._calls)):
            self._after_call = True
        else:
            text.rewind(start)
        text.forget()

    def _read_calls(self, trigger: str) -> Reading[bool]:
        form, text, calls = self._form, self._text, self._calls
        if isinstance(form, ObjectFormat):
            return (yield from read_objects(form, text, calls))
        if isinstance(form, TaggedFormat) and trigger == form.before_name:
            text.rewind(text.mark(back=len(trigger)))
            return (yield from read_tagged(form, text, calls))
        yield from text.space()
        if trigger not in form.frame.call_open:  # a section's tag: the call's own follows
            opener = form.frame.call_open.strip()
            if opener and not (yield from text.accept(opener)):
                return False
        match form:
            case NamedFormat():
                if (yield from text.looking_at("[")):  # Mistral's older models
                    return (yield from read_objects(GENERIC, text, calls))
                return (yield from read_named(form, text, calls))
            case LiteralFormat():
                return (yield from read_literals(form, text, calls))
            case TaggedFormat():
                return (yield from read_tagged(form, text, calls))

    def _read_endings(self) -> Reading[None]:
        text = self._text
        text.forget()
        for ending in self._form.frame.endings:
            mark = text.mark()
            yield from text.space()
            if not (yield from text.accept(ending)):
                text.rewind(mark)
            text.forget()
        text.drop_cut(self._marks)

    def _say(self, piece: str) -> None:
        """The answer's text. White space waits until something follows it that is text, too."""
        text = self._space + piece
        visible = text.rstrip()
        self._space = text[len(visible) :]
        if visible:
            self._parts.append(ContentDelta(visible.lstrip() if self._after_call else visible))
            self._after_call = False


def _triggers(form: TextFormat) -> tuple[str, ...]:
    found = form.frame.triggers
    if isinstance(form, TaggedFormat) and form.before_name:
        found += (form.before_name,)  # models forget the outer tag
    if isinstance(form, ObjectFormat) and form.optional_trigger:
        found += (form.optional_trigger,)
    return tuple(dict.fromkeys(found))
