"""What a chat template may spend, and the count of what one render has spent so far.

Knows values and sizes only, nothing of Jinja. A render has one Meter; it belongs to one thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    KeysView,
    Mapping,
    MappingView,
    Sized,
    ValuesView,
)
from itertools import chain
from typing import TypeVar, cast

from edgeserve.errors import TemplateLimitError
from edgeserve.frozen import frozen

T = TypeVar("T")

_NODE_CHARS = 16
"""What a number or a container counts for, in characters: about what it takes in memory."""
_MAX_NESTING = 200
"""Containers in containers; below what Python's own C recursion (repr, ==, json) can take."""
_MAX_INT_BITS = 1 << 13
_LARGE_BYTES = 1 << 14


@frozen
class Clocks:
    """Where a template's time comes from, in seconds: what passes, and what this thread works.

    A busy machine makes a render take longer, not fail: the limit is on work. But the work clock
    is slow to read, and never runs faster than the other, so it is read rarely.
    """

    passing: Callable[[], float] = time.monotonic
    working: Callable[[], float] = time.thread_time


@frozen
class TemplateLimits:
    """Bounds of one render: seconds of work, characters out, and in one value, bytes alive.

    `seconds` are for a conversation of up to `chars_per_seconds` characters, and grow with it.
    `source_chars` and `parse_seconds` bound the template itself. `value_chars` counts a
    container by its contents, each time they are referred to.
    """

    seconds: float = 1.0
    chars_per_seconds: int = 1 << 18
    parse_seconds: float = 2.0
    output_chars: int = 4 << 20
    value_chars: int = 4 << 20
    live_bytes: int = 256 << 20
    source_chars: int = 128 << 10


class Meter:
    """Counts one render. Every method may raise TemplateLimitError.

    The law that makes time bounded: no value ever grows past `value_chars`, so any single
    operation of Python's on values is short, and the clock is read between operations.
    """

    def __init__(
        self, limits: TemplateLimits, clocks: Clocks, seconds: float | None = None
    ) -> None:
        self.limits = limits
        self._clocks = clocks
        self._seconds = limits.seconds if seconds is None else seconds
        self._worked_before = clocks.working()
        self._passing = clocks.passing
        self._look_at = self._passing() + self._seconds
        self._written = 0
        self._small_bytes = 0
        self._large_bytes = 0
        self._large: dict[int, str] = {}
        # Containers are immutable in the sandbox: a weight once found holds, while the entry
        # keeps its container (and with it the id) alive.
        self._weights: dict[int, tuple[object, int, int]] = {}

    def tick(self) -> None:
        """To be called between any two operations."""
        now = self._passing()
        if now >= self._look_at:
            left = self._seconds - (self._clocks.working() - self._worked_before)
            if left <= 0:
                raise TemplateLimitError("its time in seconds", self._seconds)
            self._look_at = now + left

    def allow_for(self, given: object) -> None:
        """Extends the time in proportion to what the caller gave: long conversations take long."""
        share = self.weigh(given)[0] / self.limits.chars_per_seconds
        self._seconds = max(self._seconds, self.limits.seconds * share)

    def bound(self, num_chars: int) -> None:
        """Before a value of `num_chars` characters, or work of that order, comes into being."""
        if num_chars > self.limits.value_chars:
            raise TemplateLimitError("a value's size in characters", self.limits.value_chars)

    def wrote(self, num_chars: int) -> None:
        """Text went to the output or to a buffer of a macro or block (which nest: hence 8)."""
        self._written += num_chars
        if self._written > 8 * self.limits.output_chars:
            raise TemplateLimitError("its output in characters", self.limits.output_chars)

    def admit(self, value: T) -> T:
        """A value that an operation has made, once it is known to be small enough."""
        self.tick()
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            self.bound(len(value))
            self._hold(value)
        elif isinstance(value, int):
            if value.bit_length() > _MAX_INT_BITS:
                raise TemplateLimitError("an integer's size in bits", _MAX_INT_BITS)
        elif isinstance(value, (list, tuple, dict, MappingView)):
            self.bound(self.weigh(cast(object, value))[0])
            self.charge(_NODE_CHARS * len(cast(Sized, value)))
        return cast(T, value)

    def check_power(self, base: object, exponent: object) -> None:
        if not isinstance(base, int) or not isinstance(exponent, int):
            return
        if base.bit_length() * max(exponent, 0) > _MAX_INT_BITS:
            raise TemplateLimitError("an integer's size in bits", _MAX_INT_BITS)

    def charge(self, num_bytes: int) -> None:
        """Memory made by the template and not followed any further: counted until the end."""
        self._small_bytes += num_bytes
        if self._small_bytes + self._large_bytes > self.limits.live_bytes:
            self._drop_dead()
            if self._small_bytes + self._large_bytes > self.limits.live_bytes:
                raise TemplateLimitError("its memory in bytes", self.limits.live_bytes)

    def weigh(self, value: object) -> tuple[int, int]:
        """(characters, nesting) of a value with all that it contains. A lazy value weighs little:
        its items are weighed when something collects them."""
        if isinstance(value, str):
            return len(value) + _NODE_CHARS, 0
        if isinstance(value, (list, tuple, dict)):
            container = cast("Iterable[object]", value)
            known = self._weights.get(id(container))
            if known is None:
                known = self._weights[id(container)] = (container, *self._weigh_items(container))
            return known[1:]
        if isinstance(value, ItemsView):
            return self._weigh_items(chain.from_iterable(cast("ItemsView[object, object]", value)))
        if isinstance(value, (KeysView, ValuesView)):
            return self._weigh_items(cast("Iterable[object]", value))
        if isinstance(value, range):
            return _NODE_CHARS * len(value), 1
        return _NODE_CHARS, 0

    def _weigh_items(self, value: Iterable[object]) -> tuple[int, int]:
        if isinstance(value, Mapping):
            mapping = cast("Mapping[object, object]", value)
            value = chain(mapping.keys(), mapping.values())
        weight, nesting = _NODE_CHARS, 0
        for item in value:
            item_weight, item_nesting = self.weigh(item)
            weight += item_weight
            nesting = max(nesting, item_nesting)
            if weight > 2 * self.limits.value_chars:
                self.bound(weight)
        if nesting >= _MAX_NESTING:
            raise TemplateLimitError("a value's nesting", _MAX_NESTING)
        return weight, nesting + 1

    def _hold(self, text: str) -> None:
        num_bytes = sys.getsizeof(text)
        if num_bytes < _LARGE_BYTES:
            self.charge(num_bytes)
        elif id(text) not in self._large:
            self._large[id(text)] = text
            self._large_bytes += num_bytes
            self.charge(0)

    def _drop_dead(self) -> None:
        """Forgets the large texts that nobody but this meter refers to any more.

        A template that grows one text message by message makes gigabytes in passing and keeps
        almost nothing; only what is alive counts. The first entry shows what "nobody" reads like
        in this interpreter's reference counts.
        """
        held = ["".join(("a", "b")), *self._large.values()]
        self._large = {}
        self._large_bytes = 0
        dead: int | None = None
        for text in held:
            count = sys.getrefcount(text)
            if dead is None:
                dead = count
            elif count > dead:
                self._large[id(text)] = text
                self._large_bytes += sys.getsizeof(text)
