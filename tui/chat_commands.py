"""What commands do in the chat screen: turns, writing, the screen itself; the rest beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from textual.app import SuspendNotSupported

from edgeserve.chats.records import Turn
from edgeserve.tui.attachments import read_attachment
from edgeserve.tui.client import ChatSettings
from edgeserve.tui.clipboard import Clipboard
from edgeserve.tui.editor import edited
from edgeserve.tui.kept_theme import keep_theme
from edgeserve.tui.list_commands import ListCommands
from edgeserve.tui.model_commands import ModelCommands
from edgeserve.tui.room import Room
from edgeserve.tui.themes import THEMES
from edgeserve.tui.window import STILL_ANSWERING, ChatWindow, keep_written
from edgeserve.tui.wording import cost

Doing = Callable[[str], Awaitable[None]]


class ChatCommands:
    """`do` runs one by its name in the table of commands.py."""

    def __init__(self, screen: ChatWindow) -> None:
        self._screen = screen
        self._list = ListCommands(screen)
        self._models = ModelCommands(screen)
        self.fill_list = self._list.fill
        self.open = self._list.open
        self.look_for_others = self._list.look_for_others
        self.look_again = self._list.look_again
        self.do_with_chat = self._list.do_with_chat
        self.choose_first_model = self._models.choose_first
        self.model_failed = self._models.failed
        self.model_failure_is_over = self._models.failure_is_over
        self.remember_model = self._models.remember
        self.draw_cockpit = self._models.draw_cockpit
        self.welcome = self._models.welcome
        self._table: dict[str, Doing] = {
            **self._list.table(),
            **self._models.table(),
            "stop": self._stop,
            "regenerate": self._regenerate,
            "continue": self._continue,
            "edit": self._edit,
            "branch": self._branch,
            "copy": self._copy,
            "attach": self._attach,
            "editor": self._editor,
            "prompt": self._prompt,
            "tint": self._tint,
            "theme": self._theme,
            "help": self._help,
            "quit": self._quit,
        }

    async def do(self, name: str, argument: str = "") -> None:
        await self._table[name](argument)

    def arguments(self, name: str) -> Iterable[tuple[str, str]]:
        """What may follow a command, each with a note."""
        match name:
            case "theme":
                return [(theme, "") for theme in THEMES]
            case "think":
                return [("auto", "as the model likes"), ("on", ""), ("off", ""), ("1000", "tokens")]
            case "set":
                return [(field, "") for field in ChatSettings.__annotations__]
            case "prompt":
                return [
                    (each.name, each.description) for each in self._screen.desk.prompts.prompts()
                ]
            case "model":
                return self._models.known
            case _:
                return ()

    # --- turns ----------------------------------------------------------------------------------

    def _chosen(self, role: str) -> Turn | None:
        """The turn that is marked in the transcript, or else the last of a role."""
        turns = self._screen.talk.turns
        transcript = self._screen.transcript
        if transcript.has_focus:
            return next((turn for turn in turns if turn.id == transcript.selected), None)
        return next((turn for turn in reversed(turns) if turn.role == role), None)

    async def _stop(self, _: str) -> None:
        await self._screen.talk.stop()

    async def _regenerate(self, _: str) -> None:
        if self._screen.talk.is_answering:
            self._screen.note(STILL_ANSWERING)
            return
        chosen = self._chosen("assistant")
        last = self._screen.talk.turns[-1:]
        if last and last[0].role != "assistant":
            chosen = last[0]
        await self._screen.talk.regenerate(None if chosen is None else chosen.id)

    async def _continue(self, _: str) -> None:
        await self._screen.talk.go_on()

    async def _edit(self, _: str) -> None:
        screen = self._screen
        turn = self._chosen("user")
        if turn is None or turn.role == "system" or screen.talk.is_answering:
            screen.note(STILL_ANSWERING if screen.talk.is_answering else "nothing to edit")
            return
        if screen.editing is None:
            await keep_written(screen)
        screen.editing = turn.id
        screen.composer.put(turn.text)
        screen.composer.focus()
        what = "question: enter asks it as another branch" if turn.role == "user" else "answer"
        screen.say(f"Editing {'your' if turn.role == 'user' else 'the'} {what}, esc leaves it.")

    def leave_edit(self) -> bool:
        """Whether something was being edited."""
        screen = self._screen
        if screen.editing is None:
            return False
        screen.editing = None
        screen.composer.put(screen.talk.draft)
        screen.notice.dismiss()
        return True

    async def _branch(self, argument: str) -> None:
        """Of the last turn that has branches, or the one that is marked."""
        talk, transcript = self._screen.talk, self._screen.transcript
        branching = [turn.id for turn in talk.turns if talk.tree.place(turn.id)[1] > 1]
        chosen = transcript.selected if transcript.selected in branching else None
        if not branching:
            self._screen.note("this chat has one branch: ctrl+r or /edit makes another")
            return
        await self.step_branch(chosen or branching[-1], -1 if argument.startswith("-") else 1)

    async def step_branch(self, turn_id: str, step: int) -> None:
        """Shows the branch beside it, and what going on there would cost."""
        talk = self._screen.talk
        await talk.step_branch(turn_id, step)
        beside = {turn.id for turn in talk.tree.siblings(turn_id)}
        now = next((turn.id for turn in talk.turns if turn.id in beside), None)
        if now is not None and self._screen.transcript.has_focus:
            self._screen.transcript.select(now)
        if (found := await talk.cost()) is not None:
            self._screen.note(cost(found, self._screen.signs, what="this branch"))

    async def ask_for_room(self, room: Room) -> None:
        """The context is full: what shall go is the user's to say."""
        from edgeserve.tui.screens.dialogs import ChoiceDialog, Offer

        offers = [
            Offer("drop", "Leave out the oldest messages", _leaving(room)),
            Offer("summarise", "Summarise them first", "the summary stays in the context"),
            Offer("new chat", "Ask in a new chat", "this one stays as it is"),
        ]
        title = "The context is full"
        text = (
            f"Your question and an answer need {room.needed_tokens:,} tokens; the model has "
            f"{room.context_tokens:,}. Nothing is dropped without you."
        )
        if not room.oldest:
            await self._ask_for_less(room)
            return
        choice = await self._screen.ask_user(ChoiceDialog(title, text, offers))
        match choice:
            case "drop" | "summarise" | "new chat":
                await self._screen.talk.decide(choice)
            case _:
                await self._screen.talk.decide("cancel")

    async def _ask_for_less(self, room: Room) -> None:
        """Whatever is left out, the question does not fit: it goes back to where it came from."""
        from edgeserve.tui.screens.dialogs import ChoiceDialog, Offer

        screen = self._screen
        text = (
            f"Alone with its answer it needs {room.needed_tokens:,} tokens; the model has "
            f"{room.context_tokens:,}. Shorten it, attach less, or choose a model with more (f4)."
        )
        offers = [Offer("back", "Take it back", "into the composer, with what is attached")]
        choice = await screen.ask_user(ChoiceDialog("The question is too long", text, offers))
        asked = await screen.talk.take_back(is_shown=choice is None)
        if choice is None or asked is None:
            return
        screen.writing.attached = list(asked.attachments)
        screen.writing.show_attached()
        screen.composer.put(asked.text)

    # --- copying --------------------------------------------------------------------------------

    async def _copy(self, argument: str) -> None:
        """An answer, or one of its code blocks."""
        turn = self._chosen("assistant")
        if turn is None:
            self._screen.note("nothing to copy yet")
            return
        words = argument.split()
        if words[:1] != ["code"]:
            await self.copy_text(turn.text)
            return
        blocks = self._screen.transcript.code_blocks(turn.id)
        number = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 1
        if not 1 <= number <= len(blocks):
            self._screen.note(f"this answer has {len(blocks)} code blocks")
            return
        await self.copy_text(blocks[number - 1])

    async def copy_text(self, text: str) -> None:
        """To the clipboard, and says what became of it."""
        desk = self._screen.desk
        clipboard = Clipboard(
            desk.terminal, self._screen.write_raw, folder=desk.data_dir, find=desk.find_program
        )
        self._screen.note(await clipboard.copy(text))

    # --- writing --------------------------------------------------------------------------------

    async def _attach(self, argument: str) -> None:
        from edgeserve.tui.screens.dialogs import LineDialog

        screen = self._screen
        path = argument or await screen.ask_user(LineDialog("Attach a text file"))
        if path:
            screen.writing.attached.append(
                await asyncio.to_thread(read_attachment, path, screen.desk.folder)
            )
            screen.writing.show_attached()

    async def _editor(self, _: str) -> None:
        """The screen is the editor's as long as it runs; answers go on."""
        screen = self._screen
        try:
            with screen.given_up():
                text = await asyncio.to_thread(
                    edited, screen.desk.terminal.editor, screen.composer.text
                )
        except SuspendNotSupported:
            screen.note("no editor can be opened from here")
            return
        screen.composer.put(text)
        screen.composer.focus()

    async def _prompt(self, argument: str) -> None:
        """Puts a prompt of the library into the composer, its variables filled in."""
        from edgeserve.tui.screens.dialogs import ChoiceDialog, LineDialog, Offer

        screen, library = self._screen, self._screen.desk.prompts
        name = argument
        if not name:
            found = await asyncio.to_thread(library.prompts)
            offers = [Offer(each.name, each.name, each.description) for each in found]
            if not offers:
                screen.say(
                    f"No prompts yet. Write one into {library.folder / 'NAME.md'}, as Markdown; "
                    "{{variables}} in it are asked for."
                )
                return
            name = await screen.ask_user(ChoiceDialog("Prompts", "", offers)) or ""
        if not name:
            return
        prompt = await asyncio.to_thread(library.prompt, name)
        values: dict[str, str] = {}
        for variable in prompt.variables:
            dialog = LineDialog(f"{prompt.name}: {variable}", prompt.description)
            value = await screen.ask_user(dialog)
            if value is None:
                return
            values[variable] = value
        screen.composer.put(prompt.filled(values))
        screen.composer.focus()

    # --- the screen -----------------------------------------------------------------------------

    async def _tint(self, _: str) -> None:
        screen = self._screen
        screen.transcript.toggle_tint()
        is_on = screen.transcript.is_tinted
        screen.note("tokens: tinted ones were drafted, left and right point" if is_on else "")
        if is_on:
            screen.transcript.focus()

    async def _theme(self, argument: str) -> None:
        if self._screen.desk.terminal.is_colourless:
            self._screen.note("NO_COLOR is set: there are no colours to choose")
            return
        names = list(THEMES)
        shown = self._screen.theme_name
        current = next((n for n in names if THEMES[n].name == shown), names[0])
        chosen = argument or names[(names.index(current) + 1) % len(names)]
        if chosen not in THEMES:
            self._screen.note(f"themes are {', '.join(names)}")
            return
        self._screen.use_theme(THEMES[chosen].name)
        folder = self._screen.desk.data_dir
        try:
            await asyncio.to_thread(keep_theme, folder, chosen)
        except OSError as error:
            reason = error.strerror or error
            self._screen.say(f"Until the end: {folder} does not take what you chose ({reason}).")
        else:
            self._screen.note(f"theme: {chosen}, also the next time")

    async def _help(self, _: str) -> None:
        from edgeserve.tui.screens.help import HelpScreen

        await self._screen.ask_user(HelpScreen())

    async def _quit(self, _: str) -> None:
        screen = self._screen
        screen.note("leaving: what was written is kept" if screen.talk.is_answering else "")
        await screen.leave()


def _leaving(room: Room) -> str:
    count = len(room.oldest)
    return f"{count} message{'s' * (count != 1)}, shown greyed from then on"
