"""Reads tool calls that are elements, with an element per argument; gives the arguments as JSON."""

from __future__ import annotations

from edgeserve.text.call_writer import CallWriter
from edgeserve.text.text_scanner import Reading, TextScanner, json_text, parsed_json
from edgeserve.text.tool_formats import TaggedFormat

_PYTHON_NAMES = {"True": "true", "False": "false", "None": "null"}


def read_tagged(form: TaggedFormat, text: TextScanner, calls: CallWriter) -> Reading[bool]:
    """A call's elements, behind the tag that opens it. False if they are none, nothing begun."""
    yield from text.space()
    if form.before_name and not (yield from text.accept(form.before_name)):
        return False
    name = yield from _name(form, text)
    if not name:
        return False
    text.forget()
    calls.begin(name)
    separator, closing = "{", form.after_arguments or form.frame.call_close
    while True:
        yield from text.space()
        if (yield from text.looking_at(closing)):
            if separator != "{":
                calls.arguments("}")
            calls.end()
            yield from text.accept(form.after_arguments)
            return True
        if not (yield from text.accept(form.before_key)):
            return True  # something else: what follows is the answer's text
        found = yield from text.name_until([ending for ending, _ in form.after_key])
        if found is None:
            return True
        key, ending = found
        key = key.strip()
        calls.arguments(f'{separator}"{json_text(key)}": ')
        separator = ", "
        if not (yield from _value(form, text, calls, key, dict(form.after_key)[ending])):
            return True


def _name(form: TaggedFormat, text: TextScanner) -> Reading[str]:
    """A call's name. Where it stands free, whatever tag comes next ends it."""
    ending = form.after_name.strip()
    if ending:
        found = yield from text.name_until((ending,))
        return found[0].strip() if found else ""
    tags = (form.before_key, form.frame.call_close)
    found = yield from text.name_until(tags)
    if found is None:
        return ""
    name, tag = found
    text.rewind(text.mark(back=len(tag)))
    return name.strip() if "<" not in name else ""


def _value(
    form: TaggedFormat, text: TextScanner, calls: CallWriter, key: str, kind: str | None
) -> Reading[bool]:
    """An argument's value as JSON; false if it was cut."""
    if form.value_open:
        yield from text.space()
        if not (yield from text.accept(form.value_open)):
            return False
    if form.padded:
        yield from text.accept("\n")
    wants_text = calls.wants_text(key) if kind is None else kind == "text"
    endings = ("\n" + form.after_value, form.after_value) if form.padded else (form.after_value,)
    if wants_text:
        calls.arguments('"')
        ended = yield from text.value_until(
            endings, lambda piece: calls.arguments(json_text(piece))
        )
        if ended is not None:
            calls.arguments('"')
        return ended is not None
    pieces: list[str] = []
    ended = yield from text.value_until(endings, pieces.append)
    if ended is not None:
        calls.arguments(_json_of("".join(pieces)))
    return ended is not None


def _json_of(text: str) -> str:
    """A value as JSON: itself, if it is JSON, and otherwise a text."""
    stripped = text.strip()
    stripped = _PYTHON_NAMES.get(stripped, stripped)
    try:
        parsed_json(stripped)
    except ValueError:
        return f'"{json_text(text)}"'
    return stripped
