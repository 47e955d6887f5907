"""FairLock: one at a time, in order of arrival, and nobody is lost."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

import pytest

from edgeserve.engine.fair_lock import FairLock, new_turn

SECONDS = 30


@contextmanager
def held(lock: FairLock) -> Generator[None]:
    turn = new_turn()
    try:
        lock.take(turn)
        yield
    finally:
        lock.give_back(turn)


def wait_until_queued(lock: FairLock, count: int) -> None:
    deadline = threading.Event()
    for _ in range(SECONDS * 1000):
        if len(lock._turns) == count:  # pyright: ignore[reportPrivateUsage]
            return
        deadline.wait(0.001)
    raise AssertionError("a thread did not queue")


def test_threads_are_served_in_order_of_arrival() -> None:
    lock, served = FairLock(), list[int]()

    def take(name: int) -> None:
        with held(lock):
            served.append(name)

    threads = [threading.Thread(target=take, args=(n,)) for n in range(5)]
    with held(lock):
        for n, thread in enumerate(threads):
            thread.start()
            wait_until_queued(lock, n + 1)
        assert served == []
    for thread in threads:
        thread.join(SECONDS)
    assert served == [0, 1, 2, 3, 4]


def test_thread_that_loops_cannot_keep_another_out() -> None:
    lock, turns = FairLock(), list[str]()

    def loop(name: str) -> None:
        for _ in range(200):
            with held(lock):
                turns.append(name)
                if len(turns) < 300:
                    wait_until_queued(lock, 1)

    threads = [threading.Thread(target=loop, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert turns[:300] in (["a", "b"] * 150, ["b", "a"] * 150)


def test_trying_never_waits() -> None:
    lock, first = FairLock(), new_turn()
    assert lock.try_take(first)
    assert not lock.try_take(new_turn())
    lock.give_back(first)
    with held(lock):
        assert not lock.try_take(new_turn())
    assert lock.try_take(new_turn())


def test_giving_back_what_one_does_not_have_changes_nothing() -> None:
    lock, holder = FairLock(), new_turn()
    lock.take(holder)
    lock.give_back(new_turn())
    assert lock.is_held_by(holder)
    lock.give_back(holder)
    lock.give_back(holder)
    assert lock.try_take(new_turn())


def test_only_one_holds_it() -> None:
    lock, inside, most = FairLock(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(300):
            with held(lock):
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert most == 1
    assert lock.try_take(new_turn())


class InterruptedTurn:
    """A lock that is interrupted where a thread would wait for its turn."""

    def acquire(self) -> None:
        raise KeyboardInterrupt

    def release(self) -> None: ...


def test_thread_that_is_interrupted_while_it_waits_leaves_the_line() -> None:
    lock, holder = FairLock(), new_turn()
    turn = cast(threading.Lock, InterruptedTurn())
    lock.take(holder)
    with pytest.raises(KeyboardInterrupt):
        lock.take(turn)
    lock.give_back(turn)
    lock.give_back(holder)
    assert lock.try_take(new_turn())


def test_thread_that_is_interrupted_once_it_was_given_the_lock_gives_it_back() -> None:
    lock, holder = FairLock(), new_turn()
    turn = cast(threading.Lock, InterruptedTurn())
    lock.take(holder)
    with pytest.raises(KeyboardInterrupt):
        lock.take(turn)
    lock.give_back(holder)
    assert lock.is_held_by(turn)
    lock.give_back(turn)
    assert lock.try_take(new_turn())
