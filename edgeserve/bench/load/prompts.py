"""The chats of a load, the same for a seed: a shared beginning, and turns that are each their own.

A length is in words of few letters, which are about a token each; a report has the server's count.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen

_WORDS = """
    river stone light paper garden window bread silver winter summer north south table mirror
    forest market engine letter number music island bridge storm candle village mountain cloud
    road harbor clock field metal glass cotton copper story question answer reason memory signal
    circle square corner center border level order value power speed force weight heat water
""".split()  # noqa: SIM905  sixty words are read more easily than sixty strings
_INSTRUCTION = "Answer in plain prose."
_REQUEST = "Write about these words:"


@frozen
class Shape:
    """How many chats, of how many turns, and how long what is sent is, in words."""

    num_chats: int
    turns: int = 1
    shared_prefix: int = 0
    unique: int = 64

    def __post_init__(self) -> None:
        for name, value, least in (
            ("--requests", self.num_chats, 1),
            ("--turns", self.turns, 1),
            ("--shared-prefix", self.shared_prefix, 0),
            ("--unique", self.unique, 1),
        ):
            if value < least:
                raise InvalidRequestError(name, value, f"{least} or more")


@frozen
class Chat:
    """What a user says: the system prompt, and a text a turn. The server's answers go between."""

    index: int
    system: str
    turns: tuple[str, ...]


def chats(shape: Shape, seed: int, *, first: int = 0) -> Iterator[Chat]:
    """Chat `first` and those after it. Two seeds share the system prompt only."""
    shared = _words(random.Random("shared"), shape.shared_prefix)
    system = f"{_INSTRUCTION} {shared}".strip()
    for index in range(first, first + shape.num_chats):
        texts = (
            f"{_REQUEST} {_words(random.Random(f'{seed}/{index}/{turn}'), shape.unique)}"
            for turn in range(shape.turns)
        )
        yield Chat(index, system, tuple(texts))


def _words(source: random.Random, count: int) -> str:
    return " ".join(source.choices(_WORDS, k=count))
