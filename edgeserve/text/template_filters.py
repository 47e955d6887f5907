"""The filters and tests that templates may use: Jinja's own, each metered, those that can grow
a value out of proportion rewritten with a bound before the growth.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from jinja2 import Environment, pass_environment
from jinja2.exceptions import FilterArgumentError
from jinja2.filters import FILTERS, ignore_case, make_attrgetter, make_multi_attrgetter
from jinja2.tests import TESTS
from markupsafe import Markup

from edgeserve.text.control_guard import Disguise
from edgeserve.text.template_meter import Meter
from edgeserve.text.template_strings import TemplateStrings

Function = Callable[..., object]

_FILTERS = cast("dict[str, Function]", FILTERS)
_TESTS = cast("dict[str, Function]", TESTS)

_ABSENT = frozenset(("random", "striptags", "urlize", "xmlattr"))
"""A prompt is no web page, and the same conversation always gives the same prompt."""
_REWRITTEN = (
    *("batch", "center", "format", "indent", "join"),
    *("replace", "slice", "sum", "tojson", "trim"),
)
_IN_PYTHON = frozenset(("pprint", "title", "urlencode", "wordwrap"))
_IN_PYTHON_CHARS = 1 << 16
_COMPARING = frozenset(("eq", "equalto", "==", "ne", "!=", "in"))
_MAX_COUNT = 100_000
_MAX_INDENT = 64
_NON_ASCII = re.compile("[^\\x00-\\x7e]")


class TemplateFilters:
    """Filters and tests for one render."""

    def __init__(self, meter: Meter, strings: TemplateStrings, disguise: Disguise | None) -> None:
        self._meter = meter
        self._strings = strings
        self._disguise = disguise

    def filters(self) -> dict[str, Function]:
        own: dict[str, Function] = {name: getattr(self, name) for name in _REWRITTEN}
        own["round"] = self.round_to
        if self._disguise is not None:
            for name in ("capitalize", "lower", "title", "upper"):
                own[name] = self._with_plain_letters(_FILTERS[name])
            for name in ("dictsort", "sort", "unique"):
                own[name] = getattr(self, name)
            for name in ("e", "escape", "forceescape"):
                own[name] = self._with_plain_markup(_FILTERS[name])
            own["urlencode"] = self._with_plain_text(_FILTERS["urlencode"])
        for name in _IN_PYTHON:
            own[name] = self._bounded_input(own.get(name, _FILTERS[name]))
        all_filters = {name: f for name, f in _FILTERS.items() if name not in _ABSENT} | own
        return {name: self._metered(function) for name, function in all_filters.items()}

    def tests(self) -> dict[str, Function]:
        return {name: self._test(name, function) for name, function in _TESTS.items()}

    def _metered(self, function: Function) -> Function:
        # wraps() also carries over the mark by which Jinja knows what to pass first.
        @functools.wraps(function)
        def run(*args: object, **kwargs: object) -> object:
            self._meter.tick()
            return self._meter.admit(function(*args, **kwargs))

        return run

    def _test(self, name: str, function: Function) -> Function:
        @functools.wraps(function)
        def run(*args: object, **kwargs: object) -> object:
            self._meter.tick()
            if self._disguise is not None:
                reveal = self._disguise.reveal_in if name in _COMPARING else self._reveal_text
                args = tuple(reveal(arg) for arg in args)
            return function(*args, **kwargs)

        return run

    def _reveal_text(self, value: object) -> object:
        return self._strings.reveal(value) if isinstance(value, str) else value

    def _bounded_input(self, function: Function) -> Function:
        @functools.wraps(function)
        def run(*args: object, **kwargs: object) -> object:
            for arg in (*args, *kwargs.values()):
                self._meter.bound(
                    self._meter.weigh(arg)[0] * self._meter.limits.value_chars // _IN_PYTHON_CHARS
                )
            return function(*args, **kwargs)

        return run

    def _with_plain_letters(self, function: Function) -> Function:
        disguise = cast(Disguise, self._disguise)

        def run(value: object) -> object:
            return function(disguise.reveal_letters(self.text(value)))

        return run

    def _with_plain_markup(self, function: Function) -> Function:
        def run(value: object) -> object:
            return function(self.escapable(self.text(value)))

        return run

    def escapable(self, value: object) -> object:
        """A value that is about to be escaped for HTML: markup is no longer hidden in it."""
        if self._disguise is None or not isinstance(value, str) or isinstance(value, Markup):
            return value
        return self._disguise.reveal_markup(value)

    def _with_plain_text(self, function: Function) -> Function:
        disguise = cast(Disguise, self._disguise)

        def run(value: object) -> object:
            return function(disguise.reveal_in(value))

        return run

    def text(self, value: object) -> str:
        """What `value` looks like in the output."""
        if isinstance(value, str):
            return value
        self._meter.bound(self._meter.weigh(value)[0])
        return str(value)

    def join_texts(self, values: Iterable[object], separator: str = "") -> str:
        return self._strings.join(separator, map(self.text, values))

    # --- rewritten filters; parameters are those of Jinja's ------------------------------------

    @pass_environment
    def join(
        self,
        environment: Environment,
        value: Iterable[object],
        d: object = "",
        attribute: str | int | None = None,
    ) -> str:
        if attribute is not None:
            value = map(make_attrgetter(environment, attribute), value)
        return self.join_texts(value, self.text(d))

    @pass_environment
    def sum(
        self,
        environment: Environment,
        iterable: Iterable[object],
        attribute: str | int | None = None,
        start: object = 0,
    ) -> object:
        if attribute is not None:
            iterable = map(make_attrgetter(environment, attribute), iterable)
        if isinstance(start, str):
            raise TypeError("sum() can't sum strings [use the join filter instead]")
        total = start
        for item in iterable:
            total = self._meter.admit(cast(int, total) + cast(int, item))
        return total

    def center(self, value: object, width: int = 80) -> str:
        return self._strings.center(self.text(value), width)

    def trim(self, value: object, chars: str | None = None) -> str:
        return self._strings.strip(self.text(value), chars)

    def replace(self, s: object, old: object, new: object, count: int | None = None) -> str:
        limit = -1 if count is None else count
        return self._strings.replace(str(self.text(s)), self.text(old), self.text(new), limit)

    def format(self, value: object, *args: object, **kwargs: object) -> str:
        if args and kwargs:
            raise FilterArgumentError("can't handle positional and keyword arguments at once")
        return self._strings.percent(self.text(value), kwargs or args)

    def indent(
        self, s: str, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> object:
        size = len(width) if isinstance(width, str) else width
        self._meter.bound(len(s) + size * (2 + len(s.splitlines())))
        return _FILTERS["indent"](s, width, first, blank)

    def batch(self, value: Iterable[object], linecount: int, fill_with: object = None) -> object:
        self._check_count("a batch's length", linecount)
        return _FILTERS["batch"](value, linecount, fill_with)

    def slice(self, value: Iterable[object], slices: int, fill_with: object = None) -> object:
        self._check_count("a number of slices", slices)
        return _FILTERS["slice"](value, slices, fill_with)

    def round_to(self, value: float, precision: int = 0, method: str = "common") -> object:
        self._meter.check_power(10, abs(precision))
        return _FILTERS["round"](value, precision, method)

    def _check_count(self, what: str, count: int) -> None:
        if count > _MAX_COUNT:
            raise FilterArgumentError(f"{what} is at most {_MAX_COUNT}")

    # --- rewritten to compare what stand-ins stand for -----------------------------------------

    def _order(self, case_sensitive: bool) -> Function:
        disguise = cast(Disguise, self._disguise)

        def order(value: object) -> object:
            value = disguise.reveal_in(value)
            return value if case_sensitive else ignore_case(value)

        return order

    def dictsort(
        self,
        value: Mapping[object, object],
        case_sensitive: bool = False,
        by: str = "key",
        reverse: bool = False,
    ) -> list[tuple[object, object]]:
        position = {"key": 0, "value": 1}.get(by)
        if position is None:
            raise FilterArgumentError('You can only sort by either "key" or "value"')
        order = cast("Callable[[object], Any]", self._order(case_sensitive))
        return sorted(value.items(), key=lambda item: order(item[position]), reverse=reverse)

    @pass_environment
    def sort(
        self,
        environment: Environment,
        value: Iterable[object],
        reverse: bool = False,
        case_sensitive: bool = False,
        attribute: str | int | None = None,
    ) -> list[object]:
        order = self._order(case_sensitive)
        key = make_multi_attrgetter(environment, attribute, postprocess=order)
        return sorted(value, key=cast("Callable[[object], Any]", key), reverse=reverse)

    @pass_environment
    def unique(
        self,
        environment: Environment,
        value: Iterable[object],
        case_sensitive: bool = False,
        attribute: str | int | None = None,
    ) -> Iterator[object]:
        key = make_attrgetter(environment, attribute, postprocess=self._order(case_sensitive))
        seen: set[object] = set()
        for item in value:
            if (known := key(item)) not in seen:
                seen.add(known)
                yield item

    # --- JSON ----------------------------------------------------------------------------------

    def tojson(
        self,
        x: object,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """As transformers defines it: no HTML escapes, and json.dumps' own parameters."""
        size = len(indent) if isinstance(indent, str) else indent or 0
        if max(size, *map(len, separators or ("",))) > _MAX_INDENT:
            raise FilterArgumentError(f"indent and separators are at most {_MAX_INDENT} long")
        weight, nesting = self._meter.weigh(x)
        self._meter.bound(weight * (1 + nesting * size // 16))
        text = json.dumps(
            x,
            ensure_ascii=ensure_ascii and self._disguise is None,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )
        return _NON_ASCII.sub(self._escape, text) if ensure_ascii and self._disguise else text

    def _escape(self, match: re.Match[str]) -> str:
        char = match.group()
        disguise = cast(Disguise, self._disguise)
        if disguise.is_stand_in(char) and disguise.reveal(char).isascii():
            return char
        return json.dumps(disguise.reveal(char))[1:-1]


def find_key(mapping: Mapping[object, object], key: object, disguise: Disguise) -> object:
    """The key of `mapping` that reads as `key`; `key` itself when there is none."""
    if key in mapping or not isinstance(key, str):
        return key
    names = (name for name in mapping if isinstance(name, str) and disguise.reveal(name) == key)
    return next(names, key)
