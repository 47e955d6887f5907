"""Reads tool calls whose arguments are JSON: objects that hold a name, or a name before them."""

from __future__ import annotations

from edgeserve.text.call_writer import CallWriter
from edgeserve.text.text_scanner import MAX_NAME_CHARS, Out, Reading, TextScanner, text_of_json
from edgeserve.text.tool_formats import NamedFormat, ObjectFormat


def read_objects(form: ObjectFormat, text: TextScanner, calls: CallWriter) -> Reading[bool]:
    """One object, several, or a list of them. False, with nothing begun, if the first is none."""
    yield from text.space()
    listed = yield from text.accept("[")
    begun = False
    while True:
        yield from text.space()
        if not (yield from text.looking_at("{")):
            break
        mark = text.mark()
        if not (yield from _read_object(form, text, calls)):
            text.rewind(mark)
            break
        begun = True
        yield from _separator(text, listed)
    if begun and listed:
        yield from text.accept("]")
    return begun


def _separator(text: TextScanner, listed: bool) -> Reading[None]:
    """What stands between two objects, if a further object follows it."""
    mark = text.mark()
    yield from text.space()
    _ = (yield from text.accept(",")) or (not listed and (yield from text.accept(";")))
    yield from text.space()
    if not (yield from text.looking_at("{")) and not listed:
        text.rewind(mark)
    text.forget()


def _read_object(form: ObjectFormat, text: TextScanner, calls: CallWriter) -> Reading[bool]:
    """An object with name and arguments, in any order, among other keys."""
    yield from text.accept("{")
    waiting: list[str] = []  # arguments that came before the name
    name, whole = None, None
    while True:
        yield from text.space()
        key = yield from text.json_string()
        if key is None:
            break
        yield from text.space()
        if not (yield from text.accept(":")):
            break
        yield from text.space()
        if name is None and (key == form.name_key or not form.name_key):
            name = key if not form.name_key else (yield from text.json_string())
            if not name or len(name) > MAX_NAME_CHARS or (form.bare and not calls.knows(name)):
                return False
            text.forget()
            calls.begin(name)
            calls.arguments("".join(waiting))
            if not form.name_key:
                whole = yield from text.raw_value(calls.arguments)
        elif key in form.argument_keys and whole is None:
            out = waiting.append if name is None else calls.arguments
            whole = yield from _arguments(text, out)
        else:
            yield from text.raw_value(_drop)
        yield from text.space()
        if not (yield from text.accept(",")):
            break
    closed = yield from text.accept("}")
    if name is not None and (closed if whole is None else whole):
        calls.end()
    return name is not None


def _arguments(text: TextScanner, out: Out) -> Reading[bool]:
    """A value that is arguments: an object, the text of one, or null for none."""
    if not (yield from text.looking_at('"')):
        pieces: list[str] = []
        is_object = yield from text.looking_at("{")
        whole = yield from text.raw_value(out if is_object else pieces.append)
        other = "".join(pieces)
        out("{}" if other == "null" else other)
        return whole
    literal: list[str] = []
    whole = yield from text.raw_value(literal.append)
    inner = text_of_json("".join(literal)) if whole else None
    out("".join(literal) if inner is None else inner)
    return whole


def _drop(_: str) -> None:
    """For what says nothing: a call's id, its type."""


def read_named(form: NamedFormat, text: TextScanner, calls: CallWriter) -> Reading[bool]:
    """A name and the arguments, behind the tag that opens a call."""
    closer = form.before_arguments.strip()
    marks = (closer, form.id_mark) if form.id_mark else (closer or "\n",)
    found = yield from text.name_until(marks)
    if found is None:
        return False
    name, mark = found
    if mark == form.id_mark and (yield from text.name_until((closer,))) is None:
        return False
    if form.number_mark:
        name = name.rpartition(form.number_mark)[0] or name
    name = name.strip()
    yield from text.space()
    if not name or not (yield from text.looking_at("{")):
        return False
    text.forget()
    calls.begin(name)
    if (yield from text.raw_value(calls.arguments)):
        calls.end()
    return True
