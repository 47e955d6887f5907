"""The context is full: the three ways on, and what comes of each that goes wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgeserve.chats.records import TurnState
from edgeserve.errors import ServerUnreachableError
from edgeserve.tui.client import AnswerEnd, AnswerPiece
from tests.chat_app import Table, drive
from tests.fake_chat_client import IN_USE, FakeClient, words


def _client(context: int = 60) -> FakeClient:
    """A token for each four characters."""
    return FakeClient(model=replace(IN_USE, context_tokens=context))


async def _filled(table: Table) -> None:
    """Two exchanges, and a question that has no room beside them."""
    table.client.will_answer(words("a" * 60), words("b" * 20))
    await table.ask("1" * 40)
    await table.ask("2" * 20)
    await table.type("3" * 100, "enter")
    await table.shows("The context is full")


def _greyed(table: Table) -> list[str]:
    dropped = table.chat.talk.dropped
    return [turn.text[:1] for turn in table.chat.talk.turns if turn.id in dropped]


def test_the_oldest_are_left_out_and_greyed(tmp_path: Path):
    client = _client()

    async def body(table: Table) -> None:
        await _filled(table)
        client.will_answer(words("c"))
        await table.pilot.press("enter")
        await table.until(lambda: table.texts()[-1] == "c")
        assert _greyed(table)[:2] == ["1", "a"]
        assert "1" * 40 not in str(client.asked[-1].messages)
        # An edit above what is dropped is a branch of its own, with all of its context.
        await table.chat.talk.edit(table.chat.talk.turns[0].id, "9" * 20)
        await table.until(lambda: not table.chat.talk.is_answering)
        assert _greyed(table) == []
        await table.type("/branch -", "enter")
        await table.until(lambda: table.texts()[-1] == "c")
        assert _greyed(table)[:2] == ["1", "a"]

    drive(tmp_path, body, client=client)


def test_a_summary_stands_for_what_is_left_out(tmp_path: Path):
    client = _client()

    async def body(table: Table) -> None:
        await _filled(table)
        client.will_answer(words("in short"), words("c"))
        await table.pilot.press("down", "enter")
        await table.until(lambda: table.texts()[-2:] == ["in short", "c"])
        assert "in short" in str(client.asked[-1].messages[0].get("content"))
        assert _greyed(table)[:2] == ["1", "a"]

    drive(tmp_path, body, client=client)


def test_a_summary_that_fails_is_told_and_nothing_is_left_out(tmp_path: Path):
    client = _client()

    async def body(table: Table) -> None:
        await _filled(table)
        client.will_answer((AnswerPiece("half"), ServerUnreachableError("http://a", "reset")))
        await table.pilot.press("down", "enter")
        await table.says("the summary did not come: no server answers at http://a")
        await table.says("ctrl+r asks again")
        assert [text[:1] for text in table.texts()] == ["1", "a", "2", "b", "3"]
        assert _greyed(table) == []
        client.will_answer(words("in short"), words("c"))
        await table.pilot.press("ctrl+r")
        await table.shows("The context is full")
        await table.pilot.press("down", "enter")
        await table.until(lambda: table.texts()[-2:] == ["in short", "c"])

    drive(tmp_path, body, client=client)


def test_a_summary_of_no_words_is_told(tmp_path: Path):
    client = _client()

    async def body(table: Table) -> None:
        await _filled(table)
        client.will_answer((AnswerEnd("stop"),))
        await table.pilot.press("down", "enter")
        await table.says("the summary did not come: the model wrote nothing")

    drive(tmp_path, body, client=client)


def test_a_summary_is_stopped(tmp_path: Path):
    client = _client()

    async def body(table: Table) -> None:
        await _filled(table)
        client.hold()
        await table.pilot.press("down", "enter")
        await table.until(lambda: len(client.answers) == 3)
        await table.shows("summarising")
        await table.pilot.press("escape")
        await table.until(lambda: not table.chat.talk.is_answering)
        assert [text[:1] for text in table.texts()] == ["1", "a", "2", "b", "3"]
        await client.release()

    drive(tmp_path, body, client=client)


def test_it_is_asked_in_a_new_chat(tmp_path: Path):
    client = _client()

    async def body(table: Table) -> None:
        await _filled(table)
        before = table.chat.talk.chat.id
        client.will_answer(words("c"))
        await table.pilot.press("down", "down", "enter")
        await table.until(lambda: table.texts() == ["3" * 100, "c"])
        await table.chat.commands.open(before)
        assert [text[:1] for text in table.texts()] == ["1", "a", "2", "b"]

    drive(tmp_path, body, client=client)


def test_left_alone_the_question_stays_unanswered(tmp_path: Path):
    client = _client()

    async def body(table: Table) -> None:
        await _filled(table)
        await table.pilot.press("escape")
        await table.until(lambda: not table.chat.talk.is_answering)
        assert table.texts()[-1] == "3" * 100
        assert len(client.asked) == 2

    drive(tmp_path, body, client=client)


def test_a_file_larger_than_the_context_is_taken_back_to_be_shortened(tmp_path: Path):
    client = _client()

    async def body(table: Table) -> None:
        await table.ask("Hi")
        await table.type("x" * 5000)  # a long paste is a file
        await table.type("what is this?", "enter")
        await table.shows("The question is too long")
        await table.says("attach less")
        await table.pilot.press("enter")
        await table.until(lambda: table.chat.composer.text == "what is this?")
        assert [each.text for each in table.chat.writing.attached] == ["x" * 5000]
        assert table.texts() == ["Hi", "You said: Hi"]
        assert table.chat.talk.turns[-1].state is TurnState.COMPLETE
        await table.pilot.press(*(["backspace"] * len("what is this?")), "backspace")
        await table.type("never mind", "enter")
        await table.until(lambda: table.texts()[2:] == ["never mind", "You said: never mind"])

    drive(tmp_path, body, client=client)
