"""The engine on a thread of its own, for asyncio: requests go in by a bounded inbox, events come
back to the loop that asked for them. Nothing else ever touches the engine's state.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
import weakref
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from operator import attrgetter

from edgeserve.engine.accounting import EngineStats
from edgeserve.engine.engine import Engine
from edgeserve.engine.live_request import Request
from edgeserve.engine.output import (
    EngineEvent,
    PromptRead,
    RequestFailed,
    RequestProgress,
)
from edgeserve.engine.prompt_cost import PromptCost
from edgeserve.engine.saver import SAVING_PAUSE_SECONDS
from edgeserve.engine.scheduler import PRIORITY_STEP
from edgeserve.errors import ClosedError, EdgeServeError, QueueFullError, StepError
from edgeserve.frozen import frozen
from edgeserve.home_process import HomeProcess

Events = asyncio.Queue[EngineEvent]
"""One request's events, in order; the last one is its end."""


@frozen
class _Listener:
    """Who hears of a request. Without `wants_progress` only of its end."""

    loop: asyncio.AbstractEventLoop
    events: Events
    wants_progress: bool


@frozen
class _Submission:
    number: int
    request: Request
    arrived: float
    listener: _Listener

    @property
    def rank(self) -> int:
        """As in the scheduler, but for all that wait."""
        return self.number + PRIORITY_STEP * self.request.priority


@frozen
class _Cancellation:
    request_id: str


@frozen
class _Inquiry:
    token_ids: Sequence[int]
    answer: Future[PromptCost]


_Command = _Submission | _Cancellation | _Inquiry | None
"""What the thread is told; None ends it."""


class AsyncEngine:
    """The engine's face for event loops, any number of them. Close it."""

    def __init__(self, engine: Engine, *, max_queued_requests: int) -> None:
        """At most `max_queued_requests` wait to be computed; one more is refused."""
        self.max_queued_requests = max_queued_requests
        self._engine = engine
        self._room = _Room(max_queued_requests)
        self._home = HomeProcess()
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # nothing may follow the command that ends the thread
        self._closed = False
        # Its put() is safe in __del__, where a stream that is dropped cancels its request.
        self._inbox: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._ended: Future[None] = Future()
        work = _EngineThread(engine, self._inbox, self._room)
        # A daemon, or an engine that nobody closed would keep the program from ending.
        self._thread = threading.Thread(
            target=work.run, args=(self._ended,), name="edgeserve-engine", daemon=True
        )
        self._thread.start()
        weakref.finalize(self, _end_thread, self._inbox, self._thread)

    @property
    def stats(self) -> EngineStats:
        """The engine's, in which requests of the inbox wait too."""
        stats = self._engine.stats
        load = replace(stats.load, num_waiting=stats.load.num_waiting + self._room.num_taken)
        return replace(stats, load=load)

    def submit(self, request: Request, *, wants_progress: bool) -> Events:
        """Queues a request for the running event loop.

        Raises InvalidRequestError, ContextLengthError, OutOfBlocksError, QueueFullError,
        ClosedError, ForkedProcessError.
        """
        self._home.require()
        self._engine.validate(request)
        listener = _Listener(asyncio.get_running_loop(), asyncio.Queue(), wants_progress)
        with self._lock:
            if self._closed or self._ended.done():
                raise ClosedError
            if not self._room.take():
                raise QueueFullError(self.max_queued_requests)
            self._inbox.put(_Submission(next(self._numbers), request, self._engine.now(), listener))
        return listener.events

    def forget(self, request_id: str) -> None:
        """Cancels a request if it is live; before the next step. Never waits, fine anywhere."""
        self._inbox.put(_Cancellation(request_id))

    async def prompt_cost(self, token_ids: Sequence[int]) -> PromptCost:
        """What reading a prompt would take now; told between two steps. Raises ClosedError."""
        self._home.require()
        answer: Future[PromptCost] = Future()
        with self._lock:
            if self._closed or self._ended.done():
                raise ClosedError
            self._inbox.put(_Inquiry(token_ids, answer))
        return await asyncio.wrap_future(answer)

    async def close(self) -> None:
        """Cancels all requests and gives the engine's memory back. Twice is fine.

        In a forked copy nothing is done: the memory goes with the process.
        """
        if not self._home.is_here:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self._inbox.put(None)
        try:
            # Shielded: whoever stops waiting must not stop the others.
            await asyncio.shield(asyncio.wrap_future(self._ended))
        finally:
            if self._ended.done():  # the last thing that the thread does
                self._thread.join()


def _end_thread(inbox: queue.SimpleQueue[_Command], thread: threading.Thread) -> None:
    """For an engine that nobody closed, when it is dropped or when Python ends."""
    inbox.put(None)
    if thread is not threading.current_thread():
        thread.join()


class _Room:
    """Places for requests that wait to be computed. For any thread."""

    def __init__(self, num_places: int) -> None:
        self._lock = threading.Lock()
        self._num_places = num_places
        self.num_taken = 0

    def take(self) -> bool:
        """A place, if there is one."""
        with self._lock:
            is_free = self.num_taken < self._num_places
            self.num_taken += is_free
        return is_free

    def release(self) -> None:
        with self._lock:
            self.num_taken -= 1


class _EngineThread:
    """What runs on the thread: commands first, then a step, until told to end."""

    def __init__(self, engine: Engine, inbox: queue.SimpleQueue[_Command], room: _Room) -> None:
        self._engine = engine
        self._inbox = inbox
        self._room = room
        self._waiting: list[_Submission] = []
        self._listeners: dict[str, _Listener] = {}

    def run(self, ended: Future[None]) -> None:
        try:
            try:
                while self._obey():
                    self._admit()
                    self._deliver(self._step())
            finally:
                self._deliver(_failures(list(self._listeners), ClosedError()))
                self._engine.close()
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    def _obey(self) -> bool:
        """Takes all commands there are, and waits for one where nothing else is to do."""
        idle = not (self._waiting or self._engine.has_work)
        while True:
            try:
                command = self._next_command(idle)
            except queue.Empty:
                return True
            idle = False
            match command:
                case _Submission():
                    insort(self._waiting, command, key=attrgetter("rank"))
                    self._listeners[command.request.request_id] = command.listener
                case _Cancellation():
                    self._cancel(command.request_id)
                case _Inquiry():
                    self._tell(command)
                case None:
                    return False

    def _next_command(self, idle: bool) -> _Command:
        """Raises queue.Empty if there is none, but waits when idle, and saves blocks meanwhile."""
        while idle and self._engine.saver.has_unsaved:
            self._engine.saver.save_some()
            with contextlib.suppress(queue.Empty):
                return self._inbox.get(timeout=SAVING_PAUSE_SECONDS)
        return self._inbox.get(block=idle)

    def _tell(self, inquiry: _Inquiry) -> None:
        if not inquiry.answer.set_running_or_notify_cancel():
            return  # nobody waits any more
        try:
            inquiry.answer.set_result(self._engine.prompt_cost(inquiry.token_ids))
        except Exception as error:
            inquiry.answer.set_exception(StepError(error))

    def _cancel(self, request_id: str) -> None:
        self._listeners.pop(request_id, None)
        self._engine.abort(request_id)
        for submission in self._waiting:
            if submission.request.request_id == request_id:
                self._waiting.remove(submission)
                self._room.release()
                return

    def _admit(self) -> None:
        """As many as may run at once. The others wait here, where they count as queued."""
        while self._waiting and self._engine.num_sequences < self._engine.limits.max_num_seqs:
            submission = self._waiting.pop(0)
            self._room.release()
            try:
                self._engine.add_request(submission.request, arrived=submission.arrived)
            except Exception as error:
                typed = error if isinstance(error, EdgeServeError) else StepError(error)
                self._deliver(_failures([submission.request.request_id], typed))

    def _step(self) -> Sequence[EngineEvent]:
        try:
            return self._engine.step()
        except Exception as error:  # not of the forward pass, which the engine handles itself
            live = [
                request_id for request_id in self._listeners if self._engine.is_live(request_id)
            ]
            for request_id in live:
                self._engine.abort(request_id)
            return _failures(live, StepError(error))

    def _deliver(self, events: Iterable[EngineEvent]) -> None:
        """Hands events to their loops; a loop is woken once however many it gets."""
        found: dict[asyncio.AbstractEventLoop, list[tuple[Events, EngineEvent]]]
        found = defaultdict(list)
        for event in events:
            listener = self._listeners.get(event.request_id)
            if listener is None:
                continue
            if not isinstance(event, RequestProgress | PromptRead):
                del self._listeners[event.request_id]
            elif not listener.wants_progress:
                continue
            found[listener.loop].append((listener.events, event))
        for loop, deliveries in found.items():
            try:
                loop.call_soon_threadsafe(_put_all, deliveries)
            except RuntimeError:  # the loop is closed: nobody is left to hear
                for _, event in deliveries:
                    self._cancel(event.request_id)


def _failures(request_ids: Iterable[str], error: EdgeServeError) -> list[RequestFailed]:
    return [RequestFailed(request_id, error) for request_id in request_ids]


def _put_all(deliveries: Sequence[tuple[Events, EngineEvent]]) -> None:
    for events, event in deliveries:
        events.put_nowait(event)
