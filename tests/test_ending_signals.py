"""SIGTERM and SIGHUP end a program in order, with the code that shells know them by."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading

import pytest

from edgeserve.commands.ending_signals import ended_by_signals


def timers() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if isinstance(each, threading.Timer)}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_once(number: signal.Signals, code: int):
    ended: list[str] = []

    async def main() -> int:
        over = asyncio.Event()

        async def end() -> None:
            ended.append("ended")
            over.set()

        with ended_by_signals(end) as ending:
            signal.raise_signal(number)
            signal.raise_signal(number)
            await over.wait()
        return ending.code

    before, others = signal.getsignal(number), timers()
    assert asyncio.run(main()) == code
    assert ended == ["ended"]
    assert signal.getsignal(number) is before
    for late in timers() - others:
        late.join(2)
        assert not late.is_alive(), "would end this process some seconds from now"


_HANGS = """
import asyncio, signal
from edgeserve.commands.ending_signals import ended_by_signals

async def main():
    async def end():
        print("ending", flush=True)
    with ended_by_signals(end, bound_s=0.2):
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_what_does_not_end_in_time_is_cut_short():
    done = subprocess.run(
        [sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout) == (143, "ending\n")


def test_without_a_signal_the_code_is_none():
    async def main() -> int:
        async def end() -> None:
            raise AssertionError

        with ended_by_signals(end) as ending:
            await asyncio.sleep(0)
        return ending.code

    assert asyncio.run(main()) == 0
