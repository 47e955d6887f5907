"""Which models are in memory, and which go for which: a state machine without threads or clocks.

Told what happened and when, it decides whom to let in, what to load and what to unload. Whoever
drives it does so, and tells it how that ended. Knows no models, only names and bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from edgeserve.errors import QueueFullError
from edgeserve.frozen import frozen
from edgeserve.server.errors import ModelTooLargeError

ResidentState = Literal["loading", "loaded", "unloading"]


@frozen
class ResidencyLimits:
    """`max_bytes` of memory for all models. One that nobody uses is unloaded after `keep_alive_s`.

    A request may wait `patience_s` for models that others use; from then on nobody who came later
    gets them. After `longest_wait_s` it is refused. At most `most_waiting` wait.
    """

    max_bytes: int
    keep_alive_s: float = 600.0
    patience_s: float = 20.0
    longest_wait_s: float = 600.0
    most_waiting: int = 256


@frozen
class Decisions:
    """What to do now. A ticket is a request's; names are models'."""

    grants: tuple[tuple[int, str], ...]
    refusals: tuple[int, ...]
    loads: tuple[str, ...]
    unloads: tuple[str, ...]


@dataclass(slots=True)
class _Resident:
    """A model that has memory."""

    name: str
    num_bytes: int
    state: ResidentState = "loading"
    num_users: int = 0
    last_use: int = 0  # uses are numbered: times may be the same
    idle_since: float = 0.0

    @property
    def is_idle(self) -> bool:
        return self.state == "loaded" and self.num_users == 0


@frozen
class _Waiting:
    ticket: int
    name: str
    num_bytes: int
    since: float


class Residency:
    """After anything was told, `decide` says what follows of it."""

    def __init__(self, limits: ResidencyLimits) -> None:
        self._limits = limits
        self._residents: dict[str, _Resident] = {}
        self._waiting: list[_Waiting] = []
        self._uses = itertools.count(1)

    # --- what is -----------------------------------------------------------------------------

    def state(self, name: str) -> ResidentState | None:
        resident = self._residents.get(name)
        return None if resident is None else resident.state

    def num_bytes_of(self, name: str) -> int | None:
        """What a model has that is loaded or loading."""
        resident = self._residents.get(name)
        if resident is None or resident.state == "unloading":
            return None
        return resident.num_bytes

    def by_use(self) -> Sequence[str]:
        """The models that are loaded or loading, the one that was used last first."""
        kept = [each for each in self._residents.values() if each.state != "unloading"]
        return [each.name for each in sorted(kept, key=lambda each: -each.last_use)]

    @property
    def is_used(self) -> bool:
        """Whether somebody was let in who has not ended."""
        return any(each.num_users > 0 for each in self._residents.values())

    @property
    def num_bytes(self) -> int:
        """Taken, or still taken, or about to be."""
        return sum(each.num_bytes for each in self._residents.values())

    def next_change(self, now: float) -> float | None:
        """When to decide again although nothing happens."""
        times = [each.since + self._limits.longest_wait_s for each in self._waiting]
        times += [t for each in self._waiting if (t := self._out_of_patience_at(each)) > now]
        idle = (each for each in self._residents.values() if each.is_idle)
        times += [each.idle_since + self._limits.keep_alive_s for each in idle]
        return min((time for time in times if time < math.inf), default=None)

    # --- what happens ------------------------------------------------------------------------

    def ask(self, ticket: int, name: str, num_bytes: int, now: float) -> None:
        """A request wants the model, which takes so much. Raises ModelTooLargeError,
        QueueFullError."""
        if num_bytes > self._limits.max_bytes and self.state(name) in (None, "unloading"):
            raise ModelTooLargeError(name, num_bytes, self._limits.max_bytes)
        if len(self._waiting) >= self._limits.most_waiting:
            raise QueueFullError(self._limits.most_waiting)
        self._waiting.append(_Waiting(ticket, name, num_bytes, now))

    def withdraw(self, ticket: int) -> None:
        """A request that waits gives up."""
        self._waiting = [each for each in self._waiting if each.ticket != ticket]

    def release(self, name: str, now: float) -> None:
        """A request that was let in has ended."""
        resident = self._residents[name]
        resident.num_users -= 1
        resident.idle_since = now

    def loaded(self, name: str, now: float) -> None:
        resident = self._residents[name]
        resident.state = "loaded"
        resident.idle_since = now

    def failed(self, name: str) -> Sequence[int]:
        """The model could not be loaded; whose tickets that ends. Who asks later tries again."""
        del self._residents[name]
        tickets = [each.ticket for each in self._waiting if each.name == name]
        self._waiting = [each for each in self._waiting if each.name != name]
        return tickets

    def unloaded(self, name: str) -> None:
        del self._residents[name]

    # --- what follows ------------------------------------------------------------------------

    def decide(self, now: float) -> Decisions:
        """In the order in which they came, each gets what those before it leave."""
        longest = self._limits.longest_wait_s
        refused = [each.ticket for each in self._waiting if now - each.since >= longest]
        self._waiting = [each for each in self._waiting if now - each.since < longest]
        deciding = _Deciding(self._limits.max_bytes, self._residents, self._uses, now)
        deciding.expire(self._limits.keep_alive_s, {each.name for each in self._waiting})
        left: list[_Waiting] = []
        for each in self._waiting:
            if not deciding.serve(each, now >= self._out_of_patience_at(each)):
                left.append(each)
        self._waiting = left
        return Decisions(
            tuple(deciding.grants), tuple(refused), tuple(deciding.loads), tuple(deciding.unloads)
        )

    def _out_of_patience_at(self, waiting: _Waiting) -> float:
        return waiting.since + self._limits.patience_s


class _Deciding:
    """One pass over those who wait. `spare` bytes are free and promised to nobody; `coming` ones
    will be when what is being unloaded is gone."""

    def __init__(
        self, max_bytes: int, residents: dict[str, _Resident], uses: Iterator[int], now: float
    ) -> None:
        self._residents = residents
        self._uses = uses
        self._now = now
        leaving = [each for each in residents.values() if each.state == "unloading"]
        self._spare = max_bytes - sum(each.num_bytes for each in residents.values())
        self._coming = sum(each.num_bytes for each in leaving)
        self._asked: set[str] = set()
        self._held: set[str] | None = None
        self.grants: list[tuple[int, str]] = []
        self.loads: list[str] = []
        self.unloads: list[str] = []

    def expire(self, keep_alive_s: float, wanted: Collection[str]) -> None:
        """Unloads what nobody has used for long, and nobody waits for."""
        for each in self._residents.values():
            idle_s = self._now - each.idle_since
            if each.is_idle and idle_s >= keep_alive_s and each.name not in wanted:
                self._unload(each)

    def serve(self, waiting: _Waiting, is_impatient: bool) -> bool:
        """Whether the request has its model now."""
        resident = self._residents.get(waiting.name)
        if resident is None:
            self._want(waiting, is_impatient)
        elif resident.state == "loaded" and waiting.name not in (self._held or ()):
            resident.num_users += 1
            resident.last_use = next(self._uses)
            self.grants.append((waiting.ticket, waiting.name))
            return True
        return False

    def _want(self, waiting: _Waiting, is_impatient: bool) -> None:
        """Loads the model, or makes room for it, or promises it the room that comes."""
        name, needed = waiting.name, waiting.num_bytes
        if name in self._asked or self._held is not None:
            return  # an earlier request decides, for its model or for all
        self._asked.add(name)
        if needed <= self._spare:
            self._residents[name] = _Resident(name, needed)
            self._spare -= needed
            self.loads.append(name)
            return
        short = needed - self._spare - self._coming
        victims = self._victims(short)
        is_enough = sum(each.num_bytes for each in victims) >= short
        if is_enough and all(each.is_idle for each in victims):
            for each in victims:
                self._unload(each)
            taken = min(needed, self._coming)
            self._coming -= taken
            self._spare -= needed - taken
        elif is_impatient:
            self._held = {each.name for each in victims}

    def _victims(self, short: int) -> Sequence[_Resident]:
        """Those that go to free so many bytes, idle ones first, then who was used longest ago.

        Models that load are not among them; where those are in the way too, it is all there are.
        """
        return list(_until_enough(sorted(self._loaded(), key=_least_wanted), short))

    def _loaded(self) -> Iterator[_Resident]:
        return (each for each in self._residents.values() if each.state == "loaded")

    def _unload(self, resident: _Resident) -> None:
        resident.state = "unloading"
        self._coming += resident.num_bytes
        self.unloads.append(resident.name)


def _least_wanted(resident: _Resident) -> tuple[bool, int]:
    return (resident.num_users > 0, resident.last_use)


def _until_enough(residents: Sequence[_Resident], short: int) -> Iterator[_Resident]:
    for each in residents:
        if short <= 0:
            return
        short -= each.num_bytes
        yield each
