"""A load: chats that arrive at once, when each one's tokens came, and what that adds up to.

Knows neither who answers nor how: throughput.py asks this package and llama.cpp's server alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_TEXT = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work number night point home water
room mother area money story fact month lot right study book eye job word business issue side kind
head house service friend father power hour game line end member law car city name team minute idea
body information back parent face others level office door health person art war history party
"""
WORDS = _TEXT.split()


@dataclass(frozen=True)
class Chat:
    """A prompt as token ids, which mean the same to whoever answers, and the answer's seed."""

    prompt_token_ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class Load:
    """Chats that are asked at the same time. Each is answered with `max_tokens`, whatever ends.

    `shared` is what all prompts begin with, and what a warm cache holds before the chats come.
    """

    chats: tuple[Chat, ...]
    shared: tuple[int, ...]
    max_tokens: int
    temperature: float


@dataclass
class Answer:
    """One chat's answer: when its pieces came, in seconds since all were asked.

    `num_tokens` may be more than the ids: a piece that ends within a character is not always sent.
    """

    token_ids: list[int] = field(default_factory=list[int])
    times: list[float] = field(default_factory=list[float])
    num_tokens: int = 0
    num_cached: int = 0

    def add(self, seconds: float, token_ids: Sequence[int]) -> None:
        if token_ids:
            self.token_ids.extend(token_ids)
            self.times.append(seconds)
            self.num_tokens += len(token_ids)

    @property
    def gaps(self) -> list[float]:
        """Seconds between pieces."""
        return [after - before for before, after in pairwise(self.times)]


@dataclass(frozen=True)
class Spread:
    """Percentiles, in milliseconds."""

    p50: float
    p95: float
    p99: float
    largest: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Spread:
        found = sorted(seconds)
        return cls(*(1e3 * percentile(found, share) for share in (0.5, 0.95, 0.99, 1.0)))

    def __str__(self) -> str:
        return f"p50 {self.p50:.0f}, p95 {self.p95:.0f}, p99 {self.p99:.0f}, max {self.largest:.0f}"


@dataclass(frozen=True)
class Round:
    """What one contestant made of one load."""

    seconds: float
    num_prompt_tokens: int
    num_cached_tokens: int
    num_tokens: int
    ttft_ms: Spread
    itl_ms: Spread

    @classmethod
    def of(cls, load: Load, answers: Sequence[Answer], seconds: float) -> Round:
        """Raises RuntimeError where an answer is not as long as was asked for."""
        for index, answer in enumerate(answers):
            if answer.num_tokens != load.max_tokens:
                given = f"{answer.num_tokens} tokens of {load.max_tokens}"
                raise RuntimeError(f"chat {index} was answered with {given}")
        return cls(
            seconds=seconds,
            num_prompt_tokens=sum(len(chat.prompt_token_ids) for chat in load.chats),
            num_cached_tokens=sum(answer.num_cached for answer in answers),
            num_tokens=sum(answer.num_tokens for answer in answers),
            ttft_ms=Spread.of(answer.times[0] for answer in answers),
            itl_ms=Spread.of(gap for answer in answers for gap in answer.gaps),
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of the ordered ones do not exceed; 0 of none."""
    return ordered[round(share * (len(ordered) - 1))] if ordered else 0.0


Tokenize = Callable[[str], Sequence[int]]


def words(tokenize: Tokenize, num_tokens: int, seed: int) -> tuple[int, ...]:
    """So many tokens of words in no order; the same for the same seed."""
    rng = random.Random(seed)
    # No tokenizer makes fewer than a token of a word and the space before it.
    ids = tokenize(" ".join(rng.choice(WORDS) for _ in range(num_tokens)))
    return tuple(ids[:num_tokens])


@dataclass(frozen=True)
class Shape:
    """How a load looks; `shared` tokens begin all prompts, and `own` ones end each."""

    num_chats: int
    shared: int
    own: int
    max_tokens: int

    def load(self, tokenize: Tokenize, *, number: int, temperature: float) -> Load:
        """Load `number`, of which only what is shared has been seen before."""
        shared = words(tokenize, self.shared, 0)
        chats: list[Chat] = []
        for index in range(self.num_chats):
            seed = 1 + number * self.num_chats + index
            chats.append(Chat((*shared, *words(tokenize, self.own, seed)), seed))
        return Load(tuple(chats), shared, self.max_tokens, temperature)
