"""FairLock: one at a time, in order of arrival, and nobody is lost."""

from __future__ import annotations

import threading

import pytest

from edgeserve.engine import fair_lock
from edgeserve.engine.fair_lock import FairLock

SECONDS = 30


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
        with lock:
            served.append(name)

    threads = [threading.Thread(target=take, args=(n,)) for n in range(5)]
    with lock:
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
            with lock:
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
    lock = FairLock()
    assert lock.try_acquire()
    assert not lock.try_acquire()
    lock.release()
    with lock:
        assert not lock.try_acquire()
    assert lock.try_acquire()


def test_only_one_holds_it() -> None:
    lock, inside, most = FairLock(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(300):
            with lock:
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert most == 1
    assert lock.try_acquire()


def test_thread_that_is_interrupted_while_it_waits_leaves_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Turn:
        """A lock that is interrupted where a thread would wait for its turn."""

        calls = 0

        def acquire(self) -> None:
            self.calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt

        def release(self) -> None: ...

    lock = FairLock()
    lock.try_acquire()
    monkeypatch.setattr(fair_lock.threading, "Lock", Turn)
    with pytest.raises(KeyboardInterrupt), lock:
        raise AssertionError("it was held: nobody may enter")
    monkeypatch.undo()
    lock.release()
    assert lock.try_acquire()
