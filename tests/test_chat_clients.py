"""The terminal chat's two clients answer alike: of an engine in this process, and of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgeserve import LLM, AsyncLLM
from edgeserve.errors import (
    ClosedError,
    ContextLengthError,
    EdgeServeError,
    ModelNotFoundError,
    NoModelInUseError,
)
from edgeserve.tui.client import (
    Answer,
    AnswerEnd,
    AnswerEvent,
    AnswerPiece,
    ChatClient,
    ChatSettings,
    LoadProgress,
    OfferedModel,
    PromptReading,
    Question,
)
from edgeserve.tui.http_client import HttpClient
from edgeserve.tui.local_client import LocalClient
from edgeserve.tui.model_shelf import Report, ShelvedModel
from edgeserve.types import Message, SamplingDefaults

from .server_harness import real_server
from .tiny_models import CHATML, write_tiny_model

SECONDS = 60
CONTEXT = 512
LONG = "the inn is old and far away, " * 12
SETTINGS = ChatSettings(temperature=1.0, seed=3, max_tokens=24)
FOREVER = ChatSettings(temperature=1.0, seed=3, max_tokens=400)
THINKING = CHATML.replace("assistant\n' }}", "assistant\n<think>\n' }}") + "{# </think> #}"


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def asking(text: str, settings: ChatSettings = SETTINGS, alternatives: int = 0) -> Question:
    return Question([user(text)], settings, alternatives=alternatives)


@dataclass
class Shelved:
    name: str
    path: Path
    fits: bool = True
    size_bytes: int = 1000
    note: str = ""

    def fits_beside(self) -> bool:
        return self.fits

    async def load(self) -> AsyncLLM:
        return await AsyncLLM.create(str(self.path), num_threads=1)


class Shelf:
    """A ModelShelf of one file, by the name "tiny"; `fits` is what the next ones say."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fits = True
        self.accepted: list[str] = []

    def models(self) -> Sequence[OfferedModel]:
        return [OfferedModel("tiny", "Tiny", here=True)]

    def accept_license(self, name: str) -> None:
        self.accepted.append(name)

    def fetch(self, name: str, report: Report) -> ShelvedModel:  # noqa: ARG002
        if name not in ("tiny", "broken"):
            raise ModelNotFoundError(f"{name}: no such model")
        path = self.path if name == "tiny" else self.path.with_name("absent.gguf")
        return Shelved(name, path, self.fits)

    def memory_bytes(self) -> int | None:
        return 1 << 20


@contextmanager
def local(path: Path) -> Iterator[Callable[[], ChatClient]]:
    yield lambda: LocalClient(Shelf(path))


@contextmanager
def remote(path: Path) -> Iterator[Callable[[], ChatClient]]:
    with real_server(path) as (url, _):
        yield lambda: HttpClient(url)


Test = Callable[[ChatClient], Awaitable[None]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=CONTEXT)


@pytest.fixture(scope="module", params=[local, remote], ids=["local", "http"])
def make(request: pytest.FixtureRequest, path: Path) -> Iterator[Callable[[], ChatClient]]:
    with request.param(path) as made:
        yield made


def with_client(make: Callable[[], ChatClient], test: Test) -> None:
    """Runs a test with a client that has its model, and closes it."""

    async def bounded() -> None:
        client = make()
        try:
            await client.use("tiny", lambda _: None)
            await asyncio.wait_for(test(client), SECONDS)
        finally:
            await client.aclose()

    asyncio.run(bounded())


async def read(answer: Answer) -> list[AnswerEvent]:
    return [event async for event in answer]


def text_of(events: Sequence[AnswerEvent]) -> str:
    return "".join(each.text for each in events if isinstance(each, AnswerPiece))


def end_of(events: Sequence[AnswerEvent]) -> AnswerEnd:
    assert [isinstance(each, AnswerEnd) for each in events].count(True) == 1
    assert isinstance(events[-1], AnswerEnd)
    return events[-1]


# --- what both do --------------------------------------------------------------------------------


def test_an_answer_is_what_the_engine_says_in_order(
    make: Callable[[], ChatClient], path: Path
) -> None:
    with LLM(str(path)) as llm:
        expected = llm.chat(LONG, temperature=1.0, seed=3, max_tokens=24)

    async def test(client: ChatClient) -> None:
        events = await read(client.ask(asking(LONG)))
        kinds = [type(each) for each in events]
        assert kinds == sorted(kinds, key=[PromptReading, AnswerPiece, AnswerEnd].index)
        end = end_of(events)
        assert text_of(events) == expected.text
        assert (end.finish_reason, end.prompt_tokens) == ("length", len(expected.prompt_token_ids))
        assert (end.answer_tokens, end.seed) == (24, 3)
        assert end.first_token_ms is not None
        assert end.first_token_ms > 0
        assert end.tokens_per_s is not None
        assert end.tokens_per_s > 0

    with_client(make, test)


def test_readings_go_up_to_the_whole_prompt(make: Callable[[], ChatClient]) -> None:
    async def test(client: ChatClient) -> None:
        events = await read(client.ask(asking(LONG + "readings")))
        readings = [each for each in events if isinstance(each, PromptReading)]
        done = [each.done for each in readings]
        assert done == sorted(done)
        assert (done[-1], readings[-1].seconds_left) == (readings[-1].total, 0.0)
        assert {each.total for each in readings} == {end_of(events).prompt_tokens}

    with_client(make, test)


def test_asked_again_it_is_found_and_the_same(make: Callable[[], ChatClient]) -> None:
    async def test(client: ChatClient) -> None:
        first = await read(client.ask(asking(LONG)))
        again = await read(client.ask(asking(LONG)))
        assert text_of(first) == text_of(again)
        cached = end_of(again).cached_tokens
        assert cached is not None
        assert cached >= (end_of(again).prompt_tokens or 0) - 17

    with_client(make, test)


def test_without_a_seed_the_end_tells_which_was_drawn(make: Callable[[], ChatClient]) -> None:
    async def test(client: ChatClient) -> None:
        drawn = await read(client.ask(asking("a", ChatSettings(temperature=1.0, max_tokens=12))))
        seed = end_of(drawn).seed
        told = ChatSettings(temperature=1.0, max_tokens=12, seed=seed)
        assert text_of(await read(client.ask(asking("a", told)))) == text_of(drawn)

    with_client(make, test)


def test_what_is_stopped_keeps_what_came(make: Callable[[], ChatClient]) -> None:
    async def test(client: ChatClient) -> None:
        answer = client.ask(asking("go on", FOREVER))
        events: list[AnswerEvent] = []
        async for event in answer:
            events.append(event)
            if sum(isinstance(each, AnswerPiece) for each in events) == 5:
                await answer.stop()
                await answer.stop()
        assert end_of(events).finish_reason == "stopped"
        assert end_of(events).prompt_tokens
        whole = text_of(await read(client.ask(asking("go on", FOREVER))))
        assert text_of(events)
        assert whole.startswith(text_of(events))
        assert len(text_of(events)) < len(whole)

    with_client(make, test)


def test_stopped_before_it_began_it_ends_at_once(make: Callable[[], ChatClient]) -> None:
    async def test(client: ChatClient) -> None:
        answer = client.ask(asking("go on", FOREVER))
        await answer.stop()
        events = await read(answer)
        assert (text_of(events), end_of(events).finish_reason) == ("", "stopped")

    with_client(make, test)


def test_an_answer_that_is_left_ends_in_the_engine(make: Callable[[], ChatClient]) -> None:
    async def test(client: ChatClient) -> None:
        async def left() -> None:
            async for event in client.ask(asking("go on", FOREVER)):
                if isinstance(event, AnswerPiece):
                    raise InterruptedError

        with pytest.raises(InterruptedError):
            await left()
        await read(client.ask(asking("b")))
        figures = await client.figures()
        while figures is not None and figures.running:  # a server hears of it a moment later
            figures = await client.figures()
        assert figures is not None

    with_client(make, test)


def test_a_message_is_continued_where_it_ends(make: Callable[[], ChatClient], path: Path) -> None:
    messages: list[Message] = [user("count"), {"role": "assistant", "content": "one, two,"}]
    with LLM(str(path)) as llm:
        expected = llm.chat(
            messages, continue_final_message=True, temperature=1.0, seed=3, max_tokens=24
        )

    async def test(client: ChatClient) -> None:
        events = await read(client.ask(Question(messages, SETTINGS, continues=True)))
        assert text_of(events) == expected.text
        assert end_of(events).prompt_tokens == len(expected.prompt_token_ids)

    with_client(make, test)


def test_tokens_come_with_their_rivals_where_asked(make: Callable[[], ChatClient]) -> None:
    async def test(client: ChatClient) -> None:
        events = await read(client.ask(asking("the inn", alternatives=3)))
        facts = [fact for each in events if isinstance(each, AnswerPiece) for fact in each.tokens]
        assert len(facts) == end_of(events).answer_tokens == 24
        for fact in facts:
            likely = [share for _, share in fact.alternatives]
            assert len(likely) == 3
            assert likely == sorted(likely, reverse=True)
            assert fact.probability is not None
            assert 0 < fact.probability <= likely[0] <= 1

    with_client(make, test)


def test_a_size_is_what_the_answer_then_says(make: Callable[[], ChatClient]) -> None:
    async def test(client: ChatClient) -> None:
        size = await client.size(asking(LONG + "size"))
        end = end_of(await read(client.ask(asking(LONG + "size"))))
        assert size is not None
        assert size.tokens == end.prompt_tokens

    with_client(make, test)


def test_a_prompt_too_long_is_refused_and_the_next_is_answered(
    make: Callable[[], ChatClient],
) -> None:
    async def test(client: ChatClient) -> None:
        with pytest.raises(ContextLengthError) as raised:
            await read(client.ask(asking("a b " * CONTEXT)))
        size = await client.size(asking("a b " * CONTEXT))
        assert size is not None
        assert (raised.value.max_model_len, raised.value.num_prompt_tokens) == (
            CONTEXT,
            size.tokens,
        )
        assert text_of(await read(client.ask(asking("a"))))

    with_client(make, test)


def test_an_unknown_model_leaves_the_one_before(make: Callable[[], ChatClient]) -> None:
    async def test(client: ChatClient) -> None:
        before = client.model
        with pytest.raises(ModelNotFoundError, match="nobody's"):
            await client.use("nobody's", lambda _: None)
        assert client.model is before
        assert text_of(await read(client.ask(asking("a"))))

    with_client(make, test)


def test_the_model_is_described(make: Callable[[], ChatClient]) -> None:
    async def test(client: ChatClient) -> None:
        model = client.model
        assert model is not None
        assert (model.name, model.context_tokens, model.thinks) == ("tiny", CONTEXT, False)
        assert len(model.fingerprint) == 32
        assert model.sampling == SamplingDefaults()
        assert [each.name for each in await client.models()] == ["tiny"]

    with_client(make, test)


def test_figures_count_what_was_read(make: Callable[[], ChatClient]) -> None:
    async def test(client: ChatClient) -> None:
        before = await client.figures()
        end = end_of(await read(client.ask(asking(LONG))))
        after = await client.figures()
        assert before is not None
        assert after is not None
        assert after.prompt_tokens - before.prompt_tokens == end.prompt_tokens
        assert after.hit_tokens - before.hit_tokens == end.cached_tokens

    with_client(make, test)


def test_without_a_model_nothing_is_answered(make: Callable[[], ChatClient]) -> None:
    async def run() -> None:
        client = make()
        with pytest.raises(NoModelInUseError):
            await read(client.ask(asking("a")))
        assert await client.size(asking("a")) is None
        assert await client.figures() is None
        await client.aclose()
        await client.aclose()
        for closed in (read(client.ask(asking("a"))), client.use("tiny", lambda _: None)):
            with pytest.raises(ClosedError):
                await closed

    asyncio.run(run())


@pytest.mark.parametrize("place", [local, remote], ids=["local", "http"])
def test_reasoning_is_told_from_the_answer(
    place: Callable[[Path], AbstractContextManager[Callable[[], ChatClient]]],
    tmp_path: Path,
) -> None:
    path = write_tiny_model(
        tmp_path / "thinks.gguf", "llama", context=CONTEXT, chat_template=THINKING
    )

    async def test(client: ChatClient) -> None:
        model = client.model
        assert model is not None
        assert model.thinks
        events = await read(client.ask(asking("a")))
        pieces = [each for each in events if isinstance(each, AnswerPiece) and each.text]
        assert pieces
        assert all(each.is_reasoning for each in pieces)
        assert end_of(events).reasoning_tokens == 24

    with place(path) as make:
        with_client(make, test)


# --- the engine in this process ------------------------------------------------------------------


def test_a_model_that_cannot_be_loaded_leaves_the_one_before(path: Path) -> None:
    shelf = Shelf(path)

    async def test(client: ChatClient) -> None:
        before = client.model
        for fits in (True, False):  # beside the one before, and in its place
            shelf.fits = fits
            with pytest.raises(EdgeServeError):
                await client.use("broken", lambda _: None)
            assert client.model is before
            assert text_of(await read(client.ask(asking("a"))))

    with_client(lambda: LocalClient(shelf), test)


@pytest.mark.parametrize("fits", [True, False])
def test_another_model_stops_what_the_one_before_says(path: Path, fits: bool) -> None:
    shelf = Shelf(path)

    async def test(client: ChatClient) -> None:
        shelf.fits = fits
        answer = client.ask(asking("go on", FOREVER))
        events: list[AnswerEvent] = []
        async for event in answer:
            events.append(event)
            if isinstance(event, AnswerPiece) and len(events) < 6:
                await client.use("tiny", lambda _: None)
        assert end_of(events).finish_reason == "stopped"

    with_client(lambda: LocalClient(shelf), test)


def test_a_download_that_nobody_waits_for_ends(path: Path) -> None:
    class Slow(Shelf):
        ended = False

        def fetch(self, name: str, report: Report) -> ShelvedModel:  # noqa: ARG002
            try:
                for done in range(1_000_000):
                    report(LoadProgress("download", done, None))
            finally:
                self.ended = True
            raise AssertionError("it was never cancelled")

    shelf = Slow(path)
    begun: list[LoadProgress] = []

    async def run() -> None:
        client = LocalClient(shelf)
        using = asyncio.ensure_future(client.use("tiny", begun.append))
        while not begun:
            await asyncio.sleep(0)
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        heard = len(begun)
        while not shelf.ended:
            await asyncio.sleep(0)
        assert len(begun) == heard
        assert client.model is None
        await client.aclose()

    asyncio.run(run())


def test_a_size_tells_what_is_cached_and_the_seconds(path: Path) -> None:
    async def test(client: ChatClient) -> None:
        first = await client.size(asking(LONG))
        assert first is not None
        assert (first.cached, first.seconds) == (0, None)
        await read(client.ask(asking(LONG)))
        then = await client.size(asking(LONG))
        assert then is not None
        assert then.cached is not None
        assert then.seconds is not None
        assert then.tokens - 17 <= then.cached < then.tokens
        other = await client.size(asking("another " * 40))
        assert other is not None
        assert (other.seconds or 0) > then.seconds

    with_client(lambda: LocalClient(Shelf(path)), test)
