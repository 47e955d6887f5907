"""SIGTERM and SIGHUP end a program in order, with the code that shells know them by."""

from __future__ import annotations

import asyncio
import signal

import pytest

from edgeserve.commands.ending_signals import ended_by_signals


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

    before = signal.getsignal(number)
    assert asyncio.run(main()) == code
    assert ended == ["ended"]
    assert signal.getsignal(number) is before


def test_without_a_signal_the_code_is_none():
    async def main() -> int:
        async def end() -> None:
            raise AssertionError

        with ended_by_signals(end) as ending:
            await asyncio.sleep(0)
        return ending.code

    assert asyncio.run(main()) == 0
