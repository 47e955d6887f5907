"""The chat: what is typed becomes a question or a command, and what happens is drawn."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractContextManager
from typing import Any, ClassVar, TypeVar, cast

from rich.cells import cell_len
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from edgeserve.errors import EdgeServeError
from edgeserve.tui.chat_commands import ChatCommands
from edgeserve.tui.conversation import Conversation
from edgeserve.tui.desk import Desk
from edgeserve.tui.drawing import Focus, doing, header_texts, keys_now, turn_views
from edgeserve.tui.happenings import Happening, TextCame
from edgeserve.tui.hearing import Hearing
from edgeserve.tui.keeper import ChatKeeper
from edgeserve.tui.model_switch import ModelSwitch
from edgeserve.tui.opening import close_chats, open_chats
from edgeserve.tui.pace import Pace
from edgeserve.tui.painting import LeanCompositor
from edgeserve.tui.screens.chat_keys import CHAT_KEYS
from edgeserve.tui.sending import Sending
from edgeserve.tui.widgets import transcript_messages as wanted
from edgeserve.tui.widgets.chat_list import ChatList
from edgeserve.tui.widgets.cockpit import Cockpit
from edgeserve.tui.widgets.composer import Composer
from edgeserve.tui.widgets.header import ChatHeader
from edgeserve.tui.widgets.notice import Kind, Notice
from edgeserve.tui.widgets.status_line import StatusLine
from edgeserve.tui.widgets.transcript import Transcript
from edgeserve.tui.widgets.writing import Writing
from edgeserve.tui.window import STILL_ANSWERING, draft_of
from edgeserve.tui.wording import cost

T = TypeVar("T")

_TICK_S = 0.25
_OTHERS_S = 1.0
_AGAIN_S, _AGAIN = 2.0, "ctrl+c again to leave"
_HASTE_S = 0.5
_PLACES: dict[str, Focus] = {"transcript": "transcript", "search": "search", "found": "list"}


class ChatScreen(Screen[None]):
    """Holds the conversation under way; commands are chat_commands.py's."""

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012  not a ClassVar in Screen
        (0, "-tiny"),
        (70, "-narrow"),
        (110, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (18, "-high")]  # noqa: RUF012  the same

    AUTO_FOCUS = "#composer"
    BINDINGS: ClassVar[list[BindingType]] = CHAT_KEYS

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._compositor = LeanCompositor()
        self.desk = desk
        self.signs = desk.signs
        self.keeper = ChatKeeper(desk.open_chats, self._hear)
        self.switch = ModelSwitch(desk.client, self._hear, desk.clock)
        self.talk = Conversation(desk.client, self.keeper, self.switch, self._hear)
        self.commands = ChatCommands(self)
        self.editing: str | None = None
        self.is_open = False
        self._was_shown = False
        self._hearing = Hearing(self, self.commands)
        self._sending = Sending(self, self.commands)
        self._note = ""
        self._interrupted_at = 0.0
        self._stopped_at = 0.0
        self._pace = Pace()

    def compose(self) -> ComposeResult:
        self._classify()
        yield ChatHeader(id="header")
        with Horizontal(id="middle"):
            yield ChatList(self.signs, self.desk.clock, id="chats")
            with Vertical(id="talk"):
                yield Static(id="welcome", markup=False)
                yield Transcript(is_ascii=self.desk.terminal.is_ascii, id="transcript")
                yield Notice(id="notice")
                yield Writing(self.signs, self.desk.folder, self.commands.arguments, id="writing")
            yield Cockpit(self.signs, id="cockpit")
        yield StatusLine(id="status")

    def _classify(self) -> None:
        """By the size that it will have, as Textual does once it has it: all would be styled and
        laid out a second time."""
        size = self._program.size
        for cells, points in (
            (size.width, self.HORIZONTAL_BREAKPOINTS),
            (size.height, self.VERTICAL_BREAKPOINTS),
        ):
            reached = [name for least, name in points or () if cells >= least]
            self.add_class(*reached[-1:], update=False)

    def on_mount(self) -> None:
        self.switch.is_choosing = self.desk.client.model is None
        self.composer.focus()
        self.show_branch()
        self.set_interval(_TICK_S, self._tick)
        self.set_interval(_OTHERS_S, self._look_for_others)
        self.call_after_refresh(lambda: self.do(self._opened_chats()))

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """The first time all has got its styles right before, as it was mounted."""
        event.refresh_styles = event.refresh_styles and self._was_shown
        self._was_shown = True

    async def _opened_chats(self) -> None:
        await open_chats(self, self.commands)
        self.is_open = True
        if not self.desk.model and self.desk.client.model is None:
            await self.commands.choose_first_model()

    # --- parts ----------------------------------------------------------------------------------

    @property
    def composer(self) -> Composer:
        return self.query_one(Composer)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def notice(self) -> Notice:
        return self.query_one(Notice)

    @property
    def chats(self) -> ChatList:
        return self.query_one(ChatList)

    @property
    def cockpit(self) -> Cockpit:
        return self.query_one(Cockpit)

    @property
    def writing(self) -> Writing:
        return self.query_one(Writing)

    # --- drawing --------------------------------------------------------------------------------

    def say(self, text: str, kind: Kind = "note") -> None:
        """Shows a few lines above the composer."""
        if self.is_mounted:
            self.notice.show(text, kind)

    def note(self, text: str) -> None:
        """A remark in the status line, until something is typed; above the composer where it has
        no room there."""
        if cell_len(text) > self.query_one(StatusLine).content_size.width > 0:
            self._note = ""
            self.say(text)
        else:
            self._note = text
        self.draw_status()

    def show_branch(self) -> None:
        views = turn_views(self.talk, self.signs)
        welcome = self.query_one("#welcome", Static)
        welcome.display = not views
        self.transcript.display = bool(views)
        if not views and welcome.content != (text := self.commands.welcome()):
            welcome.update(text)
        self.transcript.show(views)
        self.draw_status()

    def draw_status(self) -> None:
        talk, client = self.talk, self.desk.client
        if self._note.startswith(STILL_ANSWERING) and not talk.is_answering:
            self._note = ""
        title, model, is_full = header_texts(talk, client, self.switch, self.signs)
        self.query_one(ChatHeader).show(title, model, is_nearly_full=is_full)
        text, is_busy = doing(talk, client, self.switch, self.signs, self._pace)
        status = self.query_one(StatusLine)
        status.show_doing(self._note or text, is_busy=is_busy and not self._note)
        focus = _PLACES.get("" if self.focused is None else self.focused.id or "", "composer")
        is_editing = self.editing is not None
        keys = keys_now(
            focus, is_busy=talk.is_answering, is_editing=is_editing, is_wide=self.is_wide
        )
        status.show_keys(keys)

    # --- what happens ---------------------------------------------------------------------------

    def _hear(self, happening: Happening) -> None:
        if not self.is_mounted:
            return
        if isinstance(happening, TextCame):
            came = happening
            self.transcript.append(
                came.turn_id, came.text, is_reasoning=came.is_reasoning, tokens=came.tokens
            )
        else:
            self._hearing.hear(happening)

    def _tick(self) -> None:
        run = self.talk.answering.run(self.talk.chat.id)
        count = 0 if run is None else len(run.tokens)
        stage = self.talk.answering.stage(self.talk.chat.id)
        came = (self.talk.chat.id, stage, run and (run.turn.id, run.num_events))
        self._pace.saw(count, came, self.desk.clock())
        if self.talk.is_answering or self.switch.loading or self.switch.is_choosing:
            self.draw_status()
        if self.query_one(Cockpit).display:
            self.do(self.commands.draw_cockpit(), group="cockpit")

    def _look_for_others(self) -> None:
        self.do(self.commands.look_for_others(), group="others")

    def do(self, work: Coroutine[Any, Any, None], *, group: str = "") -> None:
        """Runs it; what goes wrong is said. Of a group only the last one goes on."""
        self.run_worker(
            self._guarded(work),
            group=group or "commands",
            exclusive=bool(group),
            exit_on_error=True,
        )

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EdgeServeError as error:
            self.say(str(error), "trouble")

    # --- writing --------------------------------------------------------------------------------

    @on(Composer.Sent)
    def _sent(self, event: Composer.Sent) -> None:
        self._note = ""
        self.composer.is_sending = False
        self.do(self._sending.send(event.text))

    @on(Writing.Typed)
    def _typed(self, event: Writing.Typed) -> None:
        event.stop()
        self._note = ""
        if self.notice.kind == "note":
            self.notice.dismiss()

    @on(Writing.Rested)
    def _rested(self, event: Writing.Rested) -> None:
        """The draft is kept, and what it would cost is said."""
        text = event.text
        if self.editing is None:
            self.do(self.talk.keep_draft(draft_of(text)))
        if text.strip() and not self.talk.is_answering and not text.startswith("/"):
            self.do(self._tell_cost(text), group="cost")

    @on(Composer.EditorAsked)
    def _editor(self) -> None:
        self.do(self.commands.do("editor"))

    async def _tell_cost(self, text: str) -> None:
        found = await self.talk.cost(text)
        if found is not None and self.composer.text == text:
            self.note(cost(found, self.signs, what="next turn"))

    # --- what commands need of the screen --------------------------------------------------------

    @property
    def is_wide(self) -> bool:
        return self.has_class("-wide")

    @property
    def shows_list(self) -> bool:
        return bool(self.chats.display)

    def show_list(self, is_shown: bool) -> None:
        self.set_class(is_shown and not self.is_wide, "-show-list")
        self.set_class(not is_shown and self.is_wide, "-hide-list")

    def toggle_cockpit(self) -> None:
        self.toggle_class("-show-cockpit")

    def after_drawing(self, call: Any, *arguments: object) -> None:
        self.call_after_refresh(call, *arguments)

    async def ask_user(self, dialog: ModalScreen[T]) -> T | None:
        return await self._program.push_screen_wait(dialog)

    def given_up(self) -> AbstractContextManager[None]:
        return self._program.suspend()

    @property
    def theme_name(self) -> str:
        return self._program.theme

    def use_theme(self, name: str) -> None:
        self._program.theme = name

    @property
    def _program(self) -> App[None]:
        return cast("App[None]", self.app)  # pyright: ignore[reportUnknownMemberType]

    def write_raw(self, text: str) -> None:
        """To the terminal, as it is."""
        driver = self._program._driver  # pyright: ignore[reportPrivateUsage]  no public way
        if driver is not None:
            driver.write(text)
            driver.flush()

    async def leave(self) -> None:
        """Everything is stopped and kept, then the program ends."""
        await close_chats(self)
        self._program.exit()

    # --- keys -----------------------------------------------------------------------------------

    def action_command(self, name: str) -> None:
        self.do(self.commands.do(name))

    def action_escape(self) -> None:
        """Stops what goes on; else goes back a step."""
        if self.composer.is_sending:  # Enter right before it is still on its way here
            self.call_later(self.action_escape)
        elif self.composer.is_suggesting:
            self.writing.offer(())
        elif self.talk.is_answering or self._sending.is_busy:
            self.do(self._sending.stop())
        elif not self.commands.leave_edit() and not self.notice.dismiss():
            self.remove_class("-show-list")
            self._note = ""
            self.composer.focus()
            self.draw_status()

    def action_interrupt(self) -> None:
        """Copies what is selected; else stops, and quits when it comes again: after a stop not by
        what was pressed in the same haste."""
        selected = self.get_selected_text() or self.composer.selected_text
        if selected:
            self.do(self.commands.copy_text(selected))
            self.clear_selection()
            return
        now, before = self.desk.clock(), self._interrupted_at
        if self.talk.is_answering and now - self._stopped_at >= _HASTE_S:
            self._stopped_at = self._interrupted_at = now
            self.do(self.talk.stop())
        elif now - self._stopped_at < _HASTE_S:
            return
        elif now - before < _AGAIN_S:
            self.do(self.commands.do("quit"))
            return
        self._interrupted_at = now
        self.note(_AGAIN)
        self.set_timer(_AGAIN_S, lambda: self._note == _AGAIN and self.note(""))

    async def action_read(self, way: str) -> None:
        """Scrolls the chat, wherever the focus is."""
        name = way if way.startswith("page") else f"scroll_{way}"
        await self.transcript.run_action(name)

    def on_descendant_focus(self, _: events.DescendantFocus) -> None:
        self.draw_status()

    @on(wanted.BranchAsked)
    def _branch(self, event: wanted.BranchAsked) -> None:
        self.do(self.commands.step_branch(event.turn_id, event.step))

    @on(wanted.CodeCopyAsked)
    def _copy_code(self, event: wanted.CodeCopyAsked) -> None:
        self.do(self.commands.copy_text(event.text))

    @on(wanted.LinkAsked)
    def _link(self, event: wanted.LinkAsked) -> None:
        self.note(f"link: {event.url}")

    @on(wanted.TokenPointed)
    def _token(self, event: wanted.TokenPointed) -> None:
        self.query_one(Cockpit).show_token(event.token)

    @on(ChatList.Opened)
    def _opened(self, event: ChatList.Opened) -> None:
        self.remove_class("-show-list")
        self.do(self.commands.open(event.chat_id, event.turn_id))

    @on(ChatList.Searched)
    def _searched(self) -> None:
        self.do(self.commands.fill_list(), group="list")

    @on(ChatList.Asked)
    def _asked(self, event: ChatList.Asked) -> None:
        self.do(self.commands.do_with_chat(event.command, event.chat_id))
