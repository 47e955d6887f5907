"""Long calls into C that Ctrl-C ends early. Knows nothing of what is called."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

_LOOK_S = 0.05
"""Between two looks: a signal that another thread was given does not end a wait."""


def run_interruptibly(call: Callable[[], None], cancel: Callable[[], None]) -> None:
    """Runs `call`, in whose middle a signal's exception may be raised, in the main thread too.

    Python handles signals between bytecodes of the main thread, so none of them comes through a
    call into C. Another thread makes the call, and this one waits at a lock, which signals end.
    Then `cancel` makes the call end soon, and its end is waited for. About 0.1 ms.
    """
    if threading.current_thread() is not threading.main_thread():
        call()
        return
    outcome: list[BaseException | None] = []
    claim, ended = threading.Lock(), threading.Lock()

    def work() -> None:
        if not claim.acquire(blocking=False):
            return  # given up before it began
        try:
            call()
            outcome.append(None)
        except BaseException as error:  # raised again where it was asked for
            outcome.append(error)
        finally:
            ended.release()

    ended.acquire()
    try:
        threading.Thread(target=work, name="edgeserve-step", daemon=True).start()
        while not outcome:
            ended.acquire(timeout=_LOOK_S)
    except BaseException:
        if not claim.acquire(blocking=False):
            cancel()
            _wait_for(outcome, ended)
        raise
    if outcome[0] is not None:
        raise outcome[0]


def _wait_for(outcome: Sequence[object], ended: threading.Lock) -> None:
    """However often Ctrl-C is pressed meanwhile: what the call works on is not free before.

    The outcome tells, and not the lock: a signal may fall between its acquiring and its result.
    """
    while not outcome:
        with contextlib.suppress(KeyboardInterrupt):
            ended.acquire(timeout=_LOOK_S)
