"""Two windows of the chat with one file: each sees what the other does, and stays where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from edgeserve.chats.records import TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.tui.app import EdgeServeApp
from tests.chat_app import Table, desk
from tests.fake_chat_client import IN_USE, FakeClient, words


def drive_two(folder: Path, body: Callable[[Table, Table], Awaitable[None]]) -> None:
    """Runs two apps beside each other."""

    async def main() -> None:
        clients = FakeClient(model=IN_USE), FakeClient(model=IN_USE)
        apps = [EdgeServeApp(desk(folder, client)) for client in clients]
        async with apps[0].run_test() as one, apps[1].run_test() as two:
            tables = Table(apps[0], one, clients[0]), Table(apps[1], two, clients[1])
            for table in tables:
                await table.until(lambda table=table: table.chat.is_open)
            await body(*tables)
            for table in tables:
                await table.chat.leave()

    asyncio.run(asyncio.wait_for(main(), 60))


async def _same_chat(one: Table, two: Table, question: str = "Hi") -> None:
    await one.ask(question)
    await two.chat.commands.open(one.chat.talk.chat.id)


def test_what_is_asked_edited_and_answered_in_one_is_seen_in_the_other(tmp_path: Path):
    async def body(one: Table, two: Table) -> None:
        await _same_chat(one, two)
        await one.ask("And more")
        await two.shows("You said: And more")
        await one.pilot.press("alt+e")
        await one.until(lambda: one.chat.composer.text == "And more")
        await one.type(", please", "enter")
        await one.until(lambda: one.texts()[-1] == "You said: And more, please")
        # The other window stays on the branch it shows, and says that there is another.
        await two.shows("‹1/2›")
        assert two.texts()[-1] == "You said: And more"
        await two.type("/branch", "enter")
        await two.shows("You said: And more, please")

    drive_two(tmp_path, body)


def test_an_answer_is_seen_as_it_comes_and_nobody_asks_into_it(tmp_path: Path):
    async def body(one: Table, two: Table) -> None:
        await _same_chat(one, two)
        one.client.hold()
        await one.type("Long", "enter")
        await one.until(lambda: one.client.answers[1:])
        await one.client.let(4)
        await two.until(lambda: two.texts()[2:3] == ["Long"] and "You said" in two.texts()[-1])
        for text in ("Me too", "/continue"):
            two.chat.composer.put(text)
            await two.pilot.press("enter")
            await two.says("an answer is being written here, perhaps by another window")
            two.chat.notice.dismiss()
        assert two.texts()[-1].startswith("You said")
        await one.client.release()
        await two.shows("You said: Long")
        two.chat.composer.put("Me too")
        await two.pilot.press("enter")
        await two.shows("You said: Me too")
        await one.shows("You said: Me too")

    drive_two(tmp_path, body)


def test_both_stream_into_the_same_chat(tmp_path: Path):
    async def body(one: Table, two: Table) -> None:
        await _same_chat(one, two)
        for table, name in ((one, "left"), (two, "right")):
            table.client.will_answer(words(f"from the {name}"))
            table.client.hold()
            # Before the other window's question is seen: both follow the same answer.
            await table.chat.talk.ask(name)
        for table in (one, two):
            await table.until(lambda table=table: len(table.client.answers) > 0)
            await table.client.let(4)
        for table, name in ((one, "left"), (two, "right")):
            await table.client.release()
            await table.until(lambda table=table: not table.chat.talk.is_answering)
            await table.shows(f"from the {name}")
        for table, name in ((one, "left"), (two, "right")):
            await table.shows("/2›")
            assert table.texts() == ["Hi", "You said: Hi", name, f"from the {name}"]

    drive_two(tmp_path, body)
    with ChatStore(tmp_path / "chats.db") as store:
        (chat,) = store.chats()
        turns = store.turns(chat.id).turns
        assert sorted(turn.text for turn in turns[-4:]) == [
            "from the left",
            "from the right",
            "left",
            "right",
        ]
        assert all(turn.state is TurnState.COMPLETE for turn in turns)


def test_a_chat_that_is_deleted_and_brought_back_elsewhere(tmp_path: Path):
    async def body(one: Table, two: Table) -> None:
        await _same_chat(one, two, "Precious")
        await one.type("/delete", "enter")
        await two.shows("Another window deleted this chat")
        assert two.texts() == ["Precious", "You said: Precious"]
        await one.type("/undo", "enter")
        await two.until(lambda: two.chat.talk.chat.deleted_at is None)
        await one.type("/delete", "enter")
        await two.until(lambda: two.chat.talk.chat.deleted_at is not None)
        await two.ask("Still here")
        await one.pilot.press("f2")
        await one.shows("Precious")

    drive_two(tmp_path, body)
    with ChatStore(tmp_path / "chats.db") as store:
        assert [chat.title for chat in store.chats()] == ["Precious"]


def test_a_draft_that_is_taken_away_elsewhere_leaves_the_other_window_usable(tmp_path: Path):
    async def body(one: Table, two: Table) -> None:
        await one.type("a draft")
        await one.chat.talk.keep_draft("a draft")
        await two.chat.commands.open(one.chat.talk.chat.id)
        assert two.chat.composer.text == "a draft"
        await one.chat.talk.keep_draft("")
        await two.until(lambda: not two.chat.talk.chat.id)
        await two.pilot.press("enter")
        await two.shows("You said: a draft")

    drive_two(tmp_path, body)


def test_settings_and_titles_changed_elsewhere_are_seen(tmp_path: Path):
    async def body(one: Table, two: Table) -> None:
        await _same_chat(one, two)
        await one.type("/rename Another name", "enter")
        await two.until(lambda: "Another name" in two.screen().splitlines()[0])
        await one.type("/set seed 5", "enter")
        await two.until(lambda: two.chat.talk.chat.settings.get("seed") == 5)
        await two.ask("Again")
        assert two.client.asked[-1].settings.seed == 5

    drive_two(tmp_path, body)
