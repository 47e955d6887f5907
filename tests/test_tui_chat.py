"""The chat by its keys: asking, stopping, branches, drafts, what is found after a restart."""

from __future__ import annotations

from pathlib import Path

from edgeserve.chats.records import TurnState
from edgeserve.errors import ModelNotFoundError, ServerUnreachableError
from tests.chat_app import Table, drive
from tests.fake_chat_client import FakeClient, words


def test_a_question_is_answered(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hello you")
        await table.shows("You said: Hello you")
        assert "Hello you" in table.screen().splitlines()[0]
        assert "tiny · 14 of 8.2k" in table.screen()

    drive(tmp_path, body)


def test_a_question_is_taken_while_the_model_loads(tmp_path: Path):
    client = FakeClient()
    client.hold_loading()

    async def body(table: Table) -> None:
        await table.type("Hi", "enter")
        await table.shows("then your answer")
        await client.release_loading()
        await table.shows("You said: Hi")

    drive(tmp_path, body, client=client, model="tiny")


def test_escape_and_ctrl_c_stop(tmp_path: Path):
    async def body(table: Table) -> None:
        for key in ("escape", "ctrl+c"):
            table.client.hold()
            await table.type("Hi", "enter")
            await table.until(lambda: table.client.answers)
            await table.client.let(3)
            await table.pilot.press(key)
            await table.until(lambda: not table.chat.talk.is_answering)
            assert table.chat.talk.turns[-1].state is TurnState.STOPPED
            assert table.chat.talk.turns[-1].text == "You "
            await table.client.release()
            await table.pilot.press("ctrl+n")

    drive(tmp_path, body)


def test_a_second_ctrl_c_leaves(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.pilot.press("ctrl+c")
        await table.shows("ctrl+c again to leave")
        await table.pilot.press("ctrl+c")
        await table.until(lambda: not table.app.is_running)

    drive(tmp_path, body)


def test_everything_is_there_after_a_restart(tmp_path: Path):
    async def first(table: Table) -> None:
        await table.ask("Remember me")
        await table.type("not yet sent")

    async def second(table: Table) -> None:
        await table.shows("You said: Remember me")
        assert table.chat.composer.text == "not yet sent"

    drive(tmp_path, first)
    drive(tmp_path, second)


def test_an_edit_makes_a_branch_and_the_first_is_still_there(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("one")
        await table.pilot.press("alt+e")
        await table.until(lambda: table.chat.composer.text == "one")
        await table.type(" more", "enter")
        await table.until(lambda: table.texts() == ["one more", "You said: one more"])
        await table.shows("‹2/2›")
        await table.type("/branch -", "enter")
        await table.until(lambda: table.texts() == ["one", "You said: one"])
        await table.shows("this branch:")

    drive(tmp_path, body)


def test_another_answer(tmp_path: Path):
    client = FakeClient()
    client.will_answer(words("first"), words("second"))

    async def body(table: Table) -> None:
        await table.ask("Hi")
        await table.pilot.press("ctrl+r")
        await table.until(lambda: table.texts() == ["Hi", "second"])
        await table.shows("‹2/2›")

    drive(tmp_path, body, client=client, model="tiny")


def test_a_cut_off_answer_goes_on(tmp_path: Path):
    client = FakeClient()
    gone = ServerUnreachableError("http://here", "connection reset")
    client.will_answer((*words("Half an")[:-1], gone), words(" answer"))

    async def body(table: Table) -> None:
        await table.type("Hi", "enter")
        await table.shows("/continue goes on")
        await table.shows("connection reset")
        await table.type("/continue", "enter")
        await table.until(lambda: table.texts() == ["Hi", "Half an answer"])

    drive(tmp_path, body, client=client, model="tiny")


def test_an_error_that_nobody_foresaw_ends_the_answer_and_is_shown(tmp_path: Path):
    client = FakeClient()
    client.will_answer((*words("Half an")[:-1], RuntimeError("odd thing")), words(" answer"))

    async def body(table: Table) -> None:
        await table.type("Hi", "enter")
        await table.shows("/continue goes on")
        await table.says("the answer failed unexpectedly (RuntimeError")
        assert client.answers[0].stopped
        await table.type("/continue", "enter")
        await table.until(lambda: table.texts() == ["Hi", "Half an answer"])

    drive(tmp_path, body, client=client, model="tiny")


def test_a_model_that_does_not_load_says_what_to_do(tmp_path: Path):
    client = FakeClient(loads={"tiny": (ModelNotFoundError("tiny: the file has gone"),)})

    async def body(table: Table) -> None:
        await table.shows("the file has gone")
        await table.shows("f4 shows what else there is")
        await table.type("kept")
        assert table.chat.composer.text == "kept"

    drive(tmp_path, body, client=client, model="tiny")
