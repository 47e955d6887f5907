"""Many chats at once, through this package and through llama.cpp's server: wall time, side by side.

    python benches/throughput.py MODEL.gguf [MODEL.gguf ...] [--server PATH/llama-server]
        [--chats 16] [--shared 500] [--own 50] [--max-tokens 64] [--prefix shared,none]
        [--temperatures 0,1] [--speculation auto] [--rounds 3] [--threads 2] [--json FILE]

All chats are asked at the same time, as token ids, and answered with as many tokens as asked for.
With a shared prefix both caches hold it before the clock starts; with --prefix none all of a prompt
is new. llama.cpp's server has as many slots as there are chats, and runs in the better of its two
modes (weights repacked, or as in the file), which a shorter load finds out. Rounds alternate; every
round brings chats that nobody has seen. Ratios are of medians. Without --server only ours is run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from llama_server import LlamaServer, ServerOptions
from load import Answer, Load, Round, Shape

from edgeserve import AsyncLLM, SamplingParams
from edgeserve.runner.native_runner import num_cores

_BLOCK = 16


class Contestant(Protocol):
    name: str

    async def warm(self, load: Load) -> None:
        """What is not timed: the cache holds what the load's prompts share."""
        ...

    async def answer(self, load: Load) -> list[Answer]: ...


class Ours:
    """This package's engine, in this process: one stream a chat, as a server would hold them."""

    name = "edgeserve"

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm

    async def warm(self, load: Load) -> None:
        if load.shared:
            prompt = {"prompt_token_ids": load.shared}
            await self._llm.generate(prompt, max_tokens=1, temperature=0.0)

    async def answer(self, load: Load) -> list[Answer]:
        started = time.perf_counter()
        return await asyncio.gather(
            *(self._answer(index, load, started) for index in range(len(load.chats)))
        )

    async def _answer(self, index: int, load: Load, started: float) -> Answer:
        chat, answer = load.chats[index], Answer()
        params = SamplingParams(
            temperature=load.temperature,
            top_k=40,
            top_p=0.95,
            min_p=0.05,
            repetition_penalty=1.0,
            seed=chat.seed,
            max_tokens=load.max_tokens,
            ignore_eos=True,
        )
        stream = self._llm.stream({"prompt_token_ids": chat.prompt_token_ids}, params)
        async for chunk in stream:
            answer.add(time.perf_counter() - started, chunk.token_ids)
        assert stream.output is not None
        answer.num_cached = stream.output.num_cached_tokens
        return answer


@dataclass(frozen=True)
class Comparison:
    """Rounds by contestant, ours first; `same_first` is how many greedy answers begin alike."""

    model: str
    prefix: str
    temperature: float
    rounds: dict[str, list[Round]]
    same_first: int | None

    def seconds(self, name: str) -> float:
        return statistics.median(each.seconds for each in self.rounds[name])

    @property
    def ratio(self) -> float | None:
        """Our time over theirs."""
        ours, *others = self.rounds
        return self.seconds(ours) / self.seconds(others[0]) if others else None

    def lines(self) -> Iterator[str]:
        yield f"{self.model}, prefix {self.prefix}, temperature {self.temperature:g}"
        for name, rounds in self.rounds.items():
            times = [each.seconds for each in rounds]
            last = rounds[-1]
            yield (
                f"  {name}: {self.seconds(name):.2f} s ({min(times):.2f} to {max(times):.2f}), "
                f"{last.num_tokens / self.seconds(name):.0f} tokens/s; "
                f"{last.num_cached_tokens} of {last.num_prompt_tokens} prompt tokens cached"
            )
            yield f"    TTFT ms: {last.ttft_ms}; ITL ms: {last.itl_ms}"
        if self.ratio is not None:
            same = "" if self.same_first is None else f"; {self.same_first} first tokens are equal"
            yield f"  ratio {self.ratio:.3f}{same}"

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "ratio": self.ratio}


async def play(who: Contestant, load: Load) -> tuple[Round, list[Answer]]:
    await who.warm(load)
    started = time.perf_counter()
    answers = await who.answer(load)
    return Round.of(load, answers, time.perf_counter() - started), answers


@dataclass
class Bench:
    """One model's loads, numbered so that none comes twice."""

    model: Path
    shape: Shape
    llm: AsyncLLM
    number: int = 0

    def load(self, shape: Shape, temperature: float) -> Load:
        self.number += 1
        return shape.load(self.llm.tokenize, number=self.number, temperature=temperature)

    async def better(self, servers: Sequence[LlamaServer]) -> LlamaServer:
        """The mode that is quicker with a quarter of the answers' length; the others are closed."""
        if len(servers) == 1:
            return servers[0]
        load = self.load(replace(self.shape, max_tokens=max(2, self.shape.max_tokens // 4)), 0.0)
        times = [(await play(server, load))[0].seconds for server in servers]
        best = servers[times.index(min(times))]
        for server, seconds in zip(servers, times, strict=True):
            print(f"{server.name}: {seconds:.2f} s for a shorter load", flush=True)
            if server is not best:
                server.close()
        return best

    async def compare(
        self, who: Sequence[Contestant], prefix: str, temperature: float, num_rounds: int
    ) -> Comparison:
        shape = self.shape
        if prefix == "none":
            shape = replace(shape, shared=0, own=shape.shared + shape.own)
        rounds: dict[str, list[Round]] = {one.name: [] for one in who}
        same: int | None = None
        for number in range(num_rounds):
            load = self.load(shape, temperature)
            answers: dict[str, list[Answer]] = {}
            for one in who if number % 2 == 0 else reversed(who):
                found, answers[one.name] = await play(one, load)
                rounds[one.name].append(found)
            if temperature == 0.0 and len(who) > 1:
                firsts = zip(*answers.values(), strict=True)
                same = sum(len({a.token_ids[0] for a in pair}) == 1 for pair in firsts)
        return Comparison(self.model.name, prefix, temperature, rounds, same)


async def measure(given: argparse.Namespace, model: Path) -> list[Comparison]:
    shape = Shape(given.chats, given.shared, given.own, given.max_tokens)
    longest = shape.shared + shape.own + shape.max_tokens
    slot_tokens = -(-longest // 256) * 256
    async with AsyncExitStack() as stack:
        llm = await stack.enter_async_context(
            await AsyncLLM.create(
                str(model),
                num_threads=given.threads,
                max_num_seqs=shape.num_chats,
                max_model_len=-(-longest // _BLOCK) * _BLOCK,
                speculation=given.speculation,
                disk_cache=0,  # or a second run would find the first one's prompts
            )
        )
        bench = Bench(model, shape, llm)
        who: list[Contestant] = [Ours(llm)]
        if given.server is not None:
            servers: list[LlamaServer] = []
            for repack in [mode == "repacked" for mode in given.modes.split(",")]:
                options = ServerOptions(model, shape.num_chats, slot_tokens, given.threads, repack)
                server = LlamaServer(given.server, options)
                servers.append(await stack.enter_async_context(server))
            who.append(await bench.better(servers))
        found: list[Comparison] = []
        for prefix in given.prefix.split(","):
            for temperature in given.temperatures.split(","):
                found.append(await bench.compare(who, prefix, float(temperature), given.rounds))
                print("\n".join(found[-1].lines()), flush=True)
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--server", type=Path, help="llama.cpp's llama-server")
    parser.add_argument("--modes", default="repacked,file", help="of the server, to choose from")
    parser.add_argument("--chats", type=int, default=16, help="at once")
    parser.add_argument("--shared", type=int, default=500, help="tokens that prompts begin with")
    parser.add_argument("--own", type=int, default=50, help="tokens that end each prompt")
    parser.add_argument("--max-tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--prefix", default="shared,none", help="shared, none or both")
    parser.add_argument("--temperatures", default="0,1")
    parser.add_argument("--speculation", default="auto", help="of ours: auto, off, or a proposer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=num_cores())
    parser.add_argument("--json", type=Path, help="where all figures go")
    return parser.parse_args()


async def main() -> None:
    given = arguments()
    print(f"{given.threads} threads; load {os.getloadavg()[0]:.1f} before", flush=True)
    found = [each for model in given.models for each in await measure(given, model)]
    if given.json is not None:
        given.json.write_text(json.dumps([each.as_dict() for each in found], indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
