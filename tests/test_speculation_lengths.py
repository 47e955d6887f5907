"""Draft lengths: against the best fixed length, over answers that a model gave and step times that
a machine could have. data/spoken.json holds prompts and answers of SmolLM2 135M as token ids.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgeserve.engine.speculation.draft_lengths import PayingLengths
from edgeserve.engine.speculation.lookup import Lookup
from edgeserve.engine.speculation.replay import least_seconds, replay, right_guesses
from edgeserve.engine.speculation.row_times import RowTimes
from edgeserve.engine.speculation.speculator import DraftLengths, FixedLength

from .test_speculation_lookup import line

SPOKEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data/spoken.json").read_text(encoding="utf-8")
)
PROSE = [spoken for spoken in SPOKEN if spoken["name"] == "prose"]


def cpu(num_rows: int) -> float:
    """A row adds a fifth; past a tile of eight, more."""
    return 0.01 * (1.0 + 0.2 * (num_rows - 1) + 0.1 * max(0, num_rows - 8))


def flat(num_rows: int) -> float:
    """Memory is all that counts: a GPU, or a large model."""
    return 0.01 * (1.0 + 0.02 * (num_rows - 1))


def steep(num_rows: int) -> float:
    """Rows are computed nearly one after another: no draft pays."""
    return 0.01 * (1.0 + 0.95 * (num_rows - 1))


def stairs(num_rows: int) -> float:
    """Tiles of four rows: a whole one costs what one row of it does."""
    return 0.01 * (1.0 + 0.5 * ((num_rows - 1) // 4))


CURVES = [cpu, flat, steep, stairs]


def noisy(curve: Callable[[int], float]) -> Callable[[int], float]:
    source = random.Random(2)
    return lambda num_rows: curve(num_rows) * source.uniform(0.93, 1.07)


def seconds(
    spoken: Sequence[dict[str, Any]], lengths: DraftLengths, curve: Callable[[int], float]
) -> float:
    """One answer after another, as a server that runs for a while."""
    lookup = Lookup()
    return sum(
        replay(line(each["prompt"]), each["answer"], lookup, lengths, curve).seconds
        for each in spoken
    )


@pytest.mark.parametrize("curve", CURVES)
def test_chosen_lengths_are_as_good_as_the_best_fixed_one(curve: Callable[[int], float]) -> None:
    chosen = seconds(SPOKEN, PayingLengths(RowTimes()), noisy(curve))
    fixed = {
        n: seconds(SPOKEN, FixedLength(n), noisy(curve)) for n in (0, 1, 2, 3, 4, 6, 8, 12, 16)
    }
    assert chosen <= 1.03 * min(fixed.values())


@pytest.mark.parametrize("curve", CURVES)
def test_prose_costs_at_most_three_percent(curve: Callable[[int], float]) -> None:
    chosen = seconds(PROSE, PayingLengths(RowTimes()), noisy(curve))
    assert chosen <= seconds(PROSE, FixedLength(0), noisy(curve)) / 0.97


@pytest.mark.parametrize("curve", CURVES)
def test_chosen_lengths_come_near_what_is_best_when_known_beforehand(
    curve: Callable[[int], float],
) -> None:
    best = sum(
        least_seconds(
            right_guesses(line(each["prompt"]), each["answer"], Lookup()),
            len(each["answer"]),
            curve,
        )
        for each in SPOKEN
    )
    chosen = seconds(SPOKEN, PayingLengths(RowTimes()), curve)
    least = {"cpu": 0.89, "flat": 0.93, "steep": 0.96, "stairs": 0.93}
    assert best / chosen > least[curve.__name__]


def test_edits_pay_where_a_row_adds_a_fifth_and_twice_where_guesses_are_mostly_right() -> None:
    lookup, lengths = Lookup(), PayingLengths(RowTimes())
    for spoken in SPOKEN:
        found = replay(line(spoken["prompt"]), spoken["answer"], lookup, lengths, cpu)
        gain = cpu(1) * (len(spoken["answer"]) - 1) / found.seconds
        if found.num_accepted_tokens >= 0.8 * found.num_draft_tokens:
            assert gain > 2.0, spoken["name"]
        elif spoken["name"] in ("edit", "copy"):
            assert gain > 1.4, spoken["name"]
        else:
            assert gain > 0.97, spoken["name"]
