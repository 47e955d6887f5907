"""An engine that several threads use: whoever waits for an event computes the step that makes it.

Events of one thread's step that belong to another's request wait in that request's inbox.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread
from types import TracebackType

from edgeserve.engine.engine import Engine
from edgeserve.engine.fair_lock import FairLock, new_turn
from edgeserve.engine.live_request import Request
from edgeserve.engine.output import EngineEvent, RequestFailed, RequestProgress
from edgeserve.engine.saver import SAVING_PAUSE_SECONDS
from edgeserve.errors import AbortedError, ClosedError, StepError
from edgeserve.home_process import HomeProcess


@dataclass(slots=True)
class _Inbox:
    wants_progress: bool
    events: list[EngineEvent] = field(default_factory=list[EngineEvent])


class SharedEngine:
    """The engine's face for threads. Nothing is computed unless somebody waits for an event."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = FairLock()
        self._inboxes: dict[str, _Inbox] = {}
        self._forgotten: deque[str] = deque()
        self._closed = False
        self._is_saving = False
        self._home = HomeProcess()
        # Dropped without close, memory and threads go with the last stream that uses them. Not
        # at exit: another thread may still be in a step.
        weakref.finalize(self, _close_at_home, engine, self._home).atexit = False

    def submit(self, request: Request, *, wants_progress: bool) -> None:
        """Queues a request. Without `wants_progress` only its end is an event.

        Raises InvalidRequestError, ContextLengthError, OutOfBlocksError, ClosedError.
        """
        with self._locked():
            self._require_open()
            self._engine.add_request(request)
            self._inboxes[request.request_id] = _Inbox(wants_progress)

    def events_of(self, request_id: str) -> list[EngineEvent]:
        """What has happened to a request since last asked; computes one step if nothing has.

        Of a request that was forgotten, that it was. Raises ClosedError.
        """
        with self._locked():
            inbox = self._inboxes.get(request_id)
            if inbox is None:
                return [RequestFailed(request_id, AbortedError(request_id))]
            if not inbox.events:
                self._require_open()
                self._step()
            if not inbox.events and not self._engine.is_live(request_id):
                # Ctrl-C fell between a step and its events: better an error than to wait forever.
                inbox.events.append(RequestFailed(request_id, StepError(KeyboardInterrupt())))
            events, inbox.events = inbox.events, []
        return events

    def forget(self, request_id: str) -> None:
        """Cancels a request if it is live: at once, or when the step that is running ends.

        Never waits: a stream may be collected as garbage in the middle of a step, in its thread.
        """
        self._forgotten.append(request_id)
        turn = new_turn()
        try:
            if self._lock.try_take(turn):
                self._drop_forgotten()
        finally:
            if self._lock.is_held_by(turn):
                self._lock.give_back(turn)

    def close(self) -> None:
        """Cancels all requests and gives the engine's memory back. Twice is fine.

        In a forked copy nothing is done: the memory goes with the process.
        """
        if not self._home.is_here:
            return
        with self._locked():
            if not self._closed:
                self._closed = True
                self._engine.close()

    def _locked(self) -> _Locked:
        self._home.require()  # in a fork the lock may be one that nobody is left to release
        return _Locked(self._lock, self._drop_forgotten)

    def _drop_forgotten(self) -> None:
        while self._forgotten:
            request_id = self._forgotten.popleft()
            self._inboxes.pop(request_id, None)
            self._engine.abort(request_id)

    def _step(self) -> None:
        for event in self._engine.step():
            inbox = self._inboxes.get(event.request_id)
            if inbox is None or (isinstance(event, RequestProgress) and not inbox.wants_progress):
                continue
            inbox.events.append(event)
        if self._engine.saver.has_unsaved and not self._engine.has_work and not self._is_saving:
            Thread(target=self._save_rest, name="edgeserve-saving", daemon=True).start()
            self._is_saving = True

    def _save_rest(self) -> None:
        """What no step of anybody's carries to disk: a bite at a time, on a thread of its own."""
        saving = True
        while saving:
            time.sleep(SAVING_PAUSE_SECONDS)
            with self._locked():
                if not self._closed and not self._engine.has_work:
                    self._engine.saver.save_some()
                idle = not (self._closed or self._engine.has_work)
                saving = self._is_saving = idle and self._engine.saver.has_unsaved

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError


class _Locked:
    """Holds the engine; what was forgotten is dropped first and last.

    No generator, in which Ctrl-C between taking the lock and the `with` block's first line would
    leave it taken for as long as the traceback lives.
    """

    def __init__(self, lock: FairLock, drop_forgotten: Callable[[], None]) -> None:
        self._lock = lock
        self._drop_forgotten = drop_forgotten
        self._turn = new_turn()

    def __enter__(self) -> None:
        try:
            self._lock.take(self._turn)
            self._drop_forgotten()
        except BaseException:
            self._lock.give_back(self._turn)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._drop_forgotten()
        finally:
            self._lock.give_back(self._turn)


def _close_at_home(engine: Engine, home: HomeProcess) -> None:
    if home.is_here:
        engine.close()
