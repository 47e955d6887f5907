"""A signal ends a call into C early, and never leaves it running."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from edgeserve.runner.interruptible import run_interruptibly


def test_ctrl_c_cancels_the_call_and_waits_for_its_end() -> None:
    cancelled = threading.Event()
    seen: list[object] = []

    def call() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        seen.append(cancelled.wait(10))

    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(call, cancelled.set)
    assert seen == [True]


def test_a_second_ctrl_c_leaves_the_call_no_less_finished() -> None:
    cancelled = threading.Event()
    seen: list[object] = []

    def call() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        cancelled.wait(10)
        os.kill(os.getpid(), signal.SIGINT)
        seen.append("ended")

    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(call, cancelled.set)
    assert seen == ["ended"]


def test_its_error_is_the_callers() -> None:
    def call() -> None:
        raise ValueError("from within")

    with pytest.raises(ValueError, match="from within"):
        run_interruptibly(call, lambda: None)


def test_another_thread_makes_the_call_itself() -> None:
    threads: list[threading.Thread] = []
    own = threading.Thread(
        target=lambda: run_interruptibly(
            lambda: threads.append(threading.current_thread()), lambda: None
        )
    )
    own.start()
    own.join()
    assert threads == [own]
