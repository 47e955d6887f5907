"""The chat that is shown, without a screen: asking, stopping, branches, room, disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from edgeserve.chats.records import Turn, TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.errors import ChatsDiskFullError, ContextLengthError, ServerUnreachableError
from edgeserve.tui.client import AnswerEnd, PromptSize, Question
from edgeserve.tui.conversation import Conversation
from edgeserve.tui.happenings import (
    AnswerOver,
    Happening,
    KeptAgain,
    NotKept,
    RoomAsked,
    TextCame,
)
from edgeserve.tui.keeper import ChatKeeper
from edgeserve.tui.model_switch import ModelSwitch
from tests.fake_chat_client import IN_USE, FakeClient, words


class _Table:
    """A conversation with what it told."""

    def __init__(self, path: Path, client: FakeClient) -> None:
        self.client = client
        self.told: list[Happening] = []
        self._came = asyncio.Event()
        self.keeper = ChatKeeper(lambda: ChatStore(path / "chats.db"))
        self.switch = ModelSwitch(client, self._tell)
        self.talk = Conversation(client, self.keeper, self.switch, self._tell)

    def _tell(self, happening: Happening) -> None:
        self.told.append(happening)
        self._came.set()

    async def until(self, kind: type) -> Happening:
        """The next of a kind that is told, or the first that was since the last `until`."""
        while True:
            for i, happening in enumerate(self.told):
                if isinstance(happening, kind):
                    del self.told[: i + 1]
                    return happening
            self._came.clear()
            await asyncio.wait_for(self._came.wait(), 10)

    async def asked(self, text: str) -> Turn:
        """Asks, and waits for the end of the answer."""
        await self.talk.ask(text)
        await self.until(AnswerOver)
        return self.talk.turns[-1]

    def texts(self) -> list[str]:
        return [turn.text for turn in self.talk.turns]


def _with(
    path: Path, body: Callable[[_Table], Awaitable[None]], client: FakeClient | None = None
) -> None:
    async def main() -> None:
        table = _Table(path, client or FakeClient(model=IN_USE))
        await table.keeper.open()
        try:
            await body(table)
        finally:
            await table.talk.close()
            await table.keeper.close()

    asyncio.run(main())


def test_an_answer_streams_and_is_kept(tmp_path: Path):
    async def body(table: _Table) -> None:
        await table.talk.ask("Hi")
        first = await table.until(TextCame)
        assert isinstance(first, TextCame)
        assert first.text == "You "
        over = await table.until(AnswerOver)
        assert isinstance(over, AnswerOver)
        assert over.turn is not None
        assert over.turn.state is TurnState.COMPLETE
        assert over.turn.generation is not None
        assert over.turn.generation.seed == 7
        assert not table.talk.is_answering
        assert table.talk.used_tokens == 13

    _with(tmp_path, body)
    with ChatStore(tmp_path / "chats.db") as store:
        chat = store.latest()
        assert chat is not None
        assert chat.title == "Hi"
        kept = [(turn.role, turn.text) for turn in store.branch(chat.leaf_id)]
        assert kept == [("user", "Hi"), ("assistant", "You said: Hi")]


def test_what_has_come_of_an_answer_is_on_disk_before_it_ends(tmp_path: Path):
    async def body(table: _Table) -> None:
        table.client.hold()
        await table.talk.ask("Hi")
        await table.client.let(4)
        with ChatStore(tmp_path / "chats.db") as other:
            chat = other.latest()
            assert chat is not None
            for _ in range(200):
                turn = other.branch(chat.leaf_id)[-1]
                if turn.text:
                    break
                await asyncio.sleep(0.01)
        assert turn.state is TurnState.STREAMING
        assert "You said: Hi".startswith(turn.text.strip())
        await table.client.release()

    _with(tmp_path, body)


def test_stop_keeps_what_has_come(tmp_path: Path):
    async def body(table: _Table) -> None:
        table.client.hold()
        await table.talk.ask("Hi")
        await table.client.let(4)
        await table.talk.stop()
        await table.until(AnswerOver)
        turn = table.talk.turns[-1]
        assert (turn.state, turn.text) == (TurnState.STOPPED, "You said: ")
        table.client.will_answer(words("and hello"))
        await table.client.release()
        await table.talk.go_on()
        await table.until(AnswerOver)
        assert table.client.asked[-1].continues
        assert table.talk.turns[-1].text == "You said: and hello"
        assert table.talk.turns[-1].state is TurnState.COMPLETE

    _with(tmp_path, body)


def test_a_question_waits_for_the_model(tmp_path: Path):
    async def body(table: _Table) -> None:
        table.client.hold_loading()
        table.switch.use("tiny")
        await table.talk.ask("Hi")
        assert table.talk.answering.stage(table.talk.chat.id) == "model"
        assert table.texts() == ["Hi"]
        assert not table.client.asked
        await table.client.release_loading()
        await table.until(AnswerOver)
        assert table.texts() == ["Hi", "You said: Hi"]

    _with(tmp_path, body, FakeClient())


def test_a_question_that_waits_can_be_given_up(tmp_path: Path):
    async def body(table: _Table) -> None:
        await table.talk.ask("Hi")
        await table.talk.stop()
        over = await table.until(AnswerOver)
        assert over == AnswerOver(None)
        assert table.texts() == ["Hi"]

    _with(tmp_path, body, FakeClient())


def test_regenerate_and_edit_make_branches_and_lose_nothing(tmp_path: Path):
    async def body(table: _Table) -> None:
        table.client.will_answer(words("one"), words("two"), words("three"))
        await table.asked("Hi")
        await table.talk.regenerate()
        await table.until(AnswerOver)
        assert table.texts() == ["Hi", "two"]
        answer = table.talk.turns[-1]
        assert table.talk.tree.place(answer.id) == (2, 2)
        await table.talk.step_branch(answer.id, -1)
        assert table.texts() == ["Hi", "one"]
        await table.talk.edit(table.talk.turns[0].id, "Hello")
        await table.until(AnswerOver)
        assert table.texts() == ["Hello", "three"]
        await table.talk.step_branch(table.talk.turns[0].id, -1)
        assert table.texts() == ["Hi", "two"]

    _with(tmp_path, body)


def test_an_answer_goes_on_while_another_chat_is_shown(tmp_path: Path):
    async def body(table: _Table) -> None:
        await table.asked("first")
        first = table.talk.chat.id
        table.client.hold()
        await table.talk.ask("second")
        await table.client.let(3)
        table.talk.start_new()
        assert not table.talk.is_answering
        await table.client.let(1)
        await table.talk.open(first)
        assert table.talk.is_answering
        assert table.texts()[-1] == "You said: "
        await table.client.release()
        await table.until(AnswerOver)
        assert table.texts()[-1] == "You said: second"

    _with(tmp_path, body)


def test_a_server_that_goes_away_leaves_what_has_come(tmp_path: Path):
    async def body(table: _Table) -> None:
        gone = ServerUnreachableError("http://here", "connection reset")
        table.client.will_answer((*words("Half an")[:-1], gone))
        turn = await table.asked("Hi")
        assert (turn.state, turn.text) == (TurnState.FAILED, "Half an")
        assert "connection reset" in turn.error
        table.client.will_answer(words(" answer"))
        await table.talk.go_on()
        await table.until(AnswerOver)
        assert table.texts() == ["Hi", "Half an answer"]

    _with(tmp_path, body)


class _SizedClient(FakeClient):
    """A token for each message's character."""

    async def size(self, question: Question) -> PromptSize | None:
        return PromptSize(sum(len(str(m.get("content"))) for m in question.messages))


def _small(size: int) -> FakeClient:
    return _SizedClient(model=replace(IN_USE, context_tokens=size))


def test_a_full_context_asks_and_drops_the_oldest(tmp_path: Path):
    async def body(table: _Table) -> None:
        table.client.will_answer(words("a" * 20), words("b" * 20), words("c"))
        await table.asked("1" * 20)
        await table.asked("2" * 20)
        await table.talk.ask("3" * 20)
        asked = await table.until(RoomAsked)
        assert isinstance(asked, RoomAsked)
        first = [turn.id for turn in table.talk.turns[:2]]
        assert list(asked.room.oldest) == first
        await table.talk.decide("drop")
        await table.until(AnswerOver)
        assert list(table.talk.dropped) == first
        said = [message.get("content") for message in table.client.asked[-1].messages]
        assert said == ["2" * 20, "b" * 20, "3" * 20]

    _with(tmp_path, body, _small(100))


def test_a_full_context_can_be_summarised(tmp_path: Path):
    async def body(table: _Table) -> None:
        table.client.will_answer(words("a" * 90), words("b" * 20), words("short"), words("c"))
        await table.asked("1" * 90)
        await table.asked("2" * 20)
        await table.talk.ask("3" * 20)
        await table.until(RoomAsked)
        await table.talk.decide("summarise")
        await table.until(AnswerOver)
        assert [turn.role for turn in table.talk.turns][-3:] == ["user", "system", "assistant"]
        assert table.texts()[-2:] == ["short", "c"]
        messages = table.client.asked[-1].messages
        assert "short" in str(messages[0].get("content"))
        assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]

    _with(tmp_path, body, _small(240))


def test_a_full_context_can_go_on_in_a_new_chat(tmp_path: Path):
    async def body(table: _Table) -> None:
        table.client.will_answer(words("a" * 60), words("c"))
        await table.asked("1" * 20)
        before = table.talk.chat.id
        await table.talk.ask("3" * 20)
        await table.until(RoomAsked)
        await table.talk.decide("new chat")
        while len(table.talk.turns) < 2 or table.talk.is_answering:
            await table.until(object)
        assert table.talk.chat.id != before
        assert table.texts() == ["3" * 20, "c"]
        await table.talk.open(before)
        assert table.texts() == ["1" * 20, "a" * 60]

    _with(tmp_path, body, _small(100))


class _UnsizedClient(FakeClient):
    async def size(self, question: Question) -> PromptSize | None:
        del question
        return None


def test_a_server_that_cannot_count_says_that_the_context_is_full(tmp_path: Path):
    async def body(table: _Table) -> None:
        full = ContextLengthError(1000, 800)
        table.client.will_answer(words("a" * 50), words("b" * 50), (full,), words("c"))
        await table.asked("1" * 50)
        await table.asked("2" * 50)
        await table.talk.ask("3" * 50)
        asked = await table.until(RoomAsked)
        assert isinstance(asked, RoomAsked)
        assert asked.room.context_tokens == 800
        await table.talk.decide("drop")
        await table.until(AnswerOver)
        assert table.texts()[-1] == "c"
        assert len(table.client.asked[-1].messages) == 3

    _with(tmp_path, body, _UnsizedClient(model=replace(IN_USE, context_tokens=None)))


class _FullStore(ChatStore):
    is_full = False

    def write(self, turn_id: str, text: str, reasoning: str = "") -> None:
        self._refuse()
        super().write(turn_id, text, reasoning)

    def finish(self, *args: object, **kwargs: object) -> Turn:
        self._refuse()
        return super().finish(*args, **kwargs)  # type: ignore[arg-type]

    def _refuse(self) -> None:
        if self.is_full:
            raise ChatsDiskFullError(Path("chats.db"))


def test_an_answer_outlives_a_full_disk(tmp_path: Path):
    async def main() -> None:
        store = _FullStore(tmp_path / "chats.db")
        told: list[Happening] = []
        client = FakeClient(model=IN_USE)
        keeper = ChatKeeper(lambda: store)
        talk = Conversation(
            client, keeper, ModelSwitch(client, told.append), told.append, retry_s=0.01
        )
        store.is_full = True
        await talk.ask("Hi")
        while not any(isinstance(each, AnswerOver) for each in told):
            await asyncio.sleep(0.005)
        assert talk.turns[-1].text == "You said: Hi"
        assert any(isinstance(each, NotKept) for each in told)
        store.is_full = False
        while not any(isinstance(each, KeptAgain) for each in told):
            await asyncio.sleep(0.005)
        assert store.branch(talk.chat.leaf_id)[-1].text == "You said: Hi"
        await talk.close()
        await keeper.close()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_an_end_by_length_can_go_on(tmp_path: Path):
    async def body(table: _Table) -> None:
        end = AnswerEnd("length", prompt_tokens=10, answer_tokens=1, seed=7)
        table.client.will_answer(words("one", end=end), words(" two"))
        await table.asked("Count")
        await table.talk.go_on()
        await table.until(AnswerOver)
        assert table.texts() == ["Count", "one two"]

    _with(tmp_path, body)


def test_closing_in_mid_answer_keeps_it(tmp_path: Path):
    async def body(table: _Table) -> None:
        table.client.hold()
        await table.talk.ask("Hi")
        await table.client.let(4)

    _with(tmp_path, body)
    with ChatStore(tmp_path / "chats.db") as store:
        chat = store.latest()
        assert chat is not None
        turn = store.branch(chat.leaf_id)[-1]
        assert (turn.state, turn.text) == (TurnState.STOPPED, "You said: ")
