"""What keeps the chat prompt: nothing is laid out or painted twice, and no key is lost to haste."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from textual._text_area_theme import TextAreaTheme
from textual.geometry import Region
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widgets import TextArea

from edgeserve.chats.store import ChatStore
from edgeserve.tui.app import EdgeServeApp
from edgeserve.tui.themes import THEMES
from edgeserve.tui.widgets.frame_pace import FramePace
from edgeserve.tui.widgets.transcript import Transcript
from edgeserve.tui.widgets.writing import Writing
from tests.chat_app import Table, desk, drive
from tests.fake_chat_client import IN_USE, FakeClient, words

_LONG = "".join(f"Line {i} of it.\n\n" for i in range(40))


@contextmanager
def _layouts_counted() -> Iterator[list[object]]:
    found: list[object] = []
    lay_out = Screen._refresh_layout

    def counted(self: Screen[object], *given: object, **named: object) -> None:
        found.append(self)
        lay_out(self, *given, **named)  # type: ignore[arg-type]

    Screen._refresh_layout = counted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Screen._refresh_layout = lay_out  # type: ignore[method-assign]


def test_neither_an_answer_nor_a_key_lays_the_screen_out_anew(tmp_path: Path):
    async def body(table: Table) -> None:
        table.client.will_answer(words(_LONG))
        table.client.hold()
        await table.type("Go on", "enter")
        await table.client.let(80)
        await table.shows("Line 25")
        await table.type("a")
        with _layouts_counted() as found:
            await table.client.let(24)
            await table.shows("Line 33")
            await table.type("b")
            await table.shows("ab")
        assert len(found) <= 1  # a note that went away
        await table.client.release()

    drive(tmp_path, body)


def test_only_lines_that_changed_are_painted(tmp_path: Path):
    async def body(table: Table) -> None:
        table.client.will_answer(words("one two three four"))
        table.client.hold()
        await table.type("Go on", "enter")
        await table.client.let(3)
        await table.shows("one")
        painted: list[Region] = []
        transcript = table.chat.transcript
        refresh = transcript.refresh

        def watched(*regions: Region, **named: bool) -> Transcript:
            painted.extend(regions or [transcript.size.region])
            return refresh(*regions, **named)

        transcript.refresh = watched  # type: ignore[method-assign]
        await table.client.let(1)
        await table.shows("one two")
        assert [region.height for region in painted] == [1]
        await table.client.release()

    drive(tmp_path, body)


def test_a_key_is_heard_by_whom_it_concerns(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("a")
        heard: list[tuple[MessagePump, Message]] = []
        dispatch = MessagePump._dispatch_message

        async def watched(self: MessagePump, message: Message) -> None:
            heard.append((self, message))
            await dispatch(self, message)

        MessagePump._dispatch_message = watched  # type: ignore[method-assign]
        try:
            await table.type("", "b")
            await table.shows("ab")
        finally:
            MessagePump._dispatch_message = dispatch  # type: ignore[method-assign]
        assert any(isinstance(message, TextArea.Changed) for _, message in heard)
        assert not any(isinstance(message, TextArea.SelectionChanged) for _, message in heard)
        above = [type(message) for pump, message in heard if pump is table.app]
        assert TextArea.Changed not in above
        assert Writing.Typed not in above

    drive(tmp_path, body)


def test_a_key_finds_no_styles_anew_but_another_theme_does(tmp_path: Path):
    async def body(table: Table) -> None:
        composer = table.chat.composer
        await table.type("a")
        found: list[object] = []
        apply = TextAreaTheme.apply_css

        def watched(self: TextAreaTheme, area: TextArea) -> None:
            found.append(area)
            apply(self, area)

        TextAreaTheme.apply_css = watched  # type: ignore[method-assign]
        try:
            await table.type("", "b", "c", "left", "d")
            await table.shows("abdc")
            assert not found
            for theme in ("light", "dark"):
                table.app.theme = THEMES[theme].name
                await table.until(lambda: composer in found)
                found.clear()
                await table.until(lambda: _colour_of(table, "abdc") == _wanted_colour(table))
        finally:
            TextAreaTheme.apply_css = apply  # type: ignore[method-assign]

    drive(tmp_path, body)


def _colour_of(table: Table, text: str) -> object:
    """What is written on the screen in one style, the cursor aside."""
    for strip in table.app.screen._compositor.render_strips():
        for part, style, _ in strip:
            if part.startswith(text[:3]) and style is not None:
                return style.color
    return None


def _wanted_colour(table: Table) -> object:
    return table.chat.composer.rich_style.color


def test_the_status_of_a_long_chat_looks_at_its_last_turns(tmp_path: Path):
    with ChatStore(tmp_path / "chats.db") as store:
        chat, parent = store.new_chat(), None
        for i in range(100):
            parent = store.add_turn(chat.id, parent, "user", f"Question {i}").id
            parent = store.add_turn(chat.id, parent, "assistant", f"Answer {i}").id

    async def body(table: Table) -> None:
        await table.ask("And now?")
        await table.until(lambda: table.chat.talk.used_tokens == 14)
        looked_at: list[object] = []
        answering = table.chat.talk.answering
        stands = answering.as_it_stands
        answering.as_it_stands = lambda turn: looked_at.append(turn) or stands(turn)  # type: ignore[method-assign,func-returns-value]
        table.chat.draw_status()
        assert 1 <= len(looked_at) <= 2
        assert len(table.texts()) == 202

    drive(tmp_path, body)


def test_what_is_typed_before_the_chats_are_open_stays(tmp_path: Path):
    with ChatStore(tmp_path / "chats.db") as store:
        chat = store.new_chat()
        store.add_turn(chat.id, None, "user", "An older question")

    async def main() -> None:
        app = EdgeServeApp(desk(tmp_path, FakeClient(model=IN_USE)))
        opened = asyncio.Event()
        run = app.chat.keeper.run
        app.chat.keeper.run = lambda call: _after(opened, run(call))  # type: ignore[method-assign]
        async with app.run_test() as pilot:
            table = Table(app, pilot, FakeClient())
            await pilot.press("s", "o", "o", "n")
            opened.set()
            await table.until(lambda: app.chat.is_open)
            assert app.chat.composer.text == "soon"
            assert table.texts() == ["An older question"]
            assert len(await run(lambda store: store.chats())) == 1
            await app.chat.leave()

    asyncio.run(asyncio.wait_for(main(), 60))


async def _after(event: asyncio.Event, call: object) -> object:
    await event.wait()
    return await call  # type: ignore[misc]


def test_what_is_typed_right_after_enter_stays(tmp_path: Path):
    async def body(table: Table) -> None:
        composer = table.chat.composer
        await table.type("First")
        composer.action_send()
        composer.insert("Sec")  # before the screen has heard of it
        await table.until(lambda: table.texts()[:1] == ["First"])
        assert composer.text == "Sec"

    drive(tmp_path, body)


def test_what_a_question_would_cost_gives_way_to_its_answer(tmp_path: Path):
    async def body(table: Table) -> None:
        table.client.will_answer(words("one two three"))
        table.client.hold()
        await table.type("Go on")
        table.chat.note("next turn: 12 tokens")
        await table.shows("next turn: 12 tokens")
        await table.type("", "enter")
        await table.client.let(3)
        await table.shows("answering")
        await table.client.release()

    drive(tmp_path, body)


def test_frames_are_fewer_where_they_cost_more():
    spent = 0.0
    pace = FramePace(lambda: spent)
    assert pace.pause() == 0.05
    spent += 0.04  # a fifth of what this frame may be apart from the next
    assert round(pace.pause(), 3) == 0.1
    spent += 10
    assert pace.pause() == 0.25
    assert pace.pause() == 0.05
