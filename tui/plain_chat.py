"""The chat as lines of plain text: for pipes, screen readers and dumb terminals.

No cursor moves, no colours; a role's word before each turn; the same chats as the screens'.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TextIO

from edgeserve.chats.records import Turn, TurnState
from edgeserve.errors import EdgeServeError
from edgeserve.tui.chat_settings import NUMBERS, as_setting, auto, auto_explained, thinking
from edgeserve.tui.client import ChatClient, LoadProgress, PromptReading
from edgeserve.tui.commands import ALIASES, BY_NAME, is_unknown
from edgeserve.tui.conversation import Conversation
from edgeserve.tui.happenings import (
    AnswerOver,
    Happening,
    KeptAgain,
    NotKept,
    PromptRead,
    RoomAsked,
    TextCame,
)
from edgeserve.tui.keeper import ChatKeeper
from edgeserve.tui.model_switch import ModelSwitch
from edgeserve.tui.plain_lines import LineReader, without_keys
from edgeserve.tui.room import Room
from edgeserve.tui.terminal_text import shown, shown_line
from edgeserve.tui.wording import called

YOU, MODEL, THOUGHT, NOTE = "You: ", "Assistant: ", "Thinking: ", "Note: "
HELP = """\
Type a question and press Enter. A line that ends with \\ goes on in the next;
lines between two lines of \"\"\" are one question.
  /new             begin a new chat
  /retry           answer the last question again
  /continue        go on with the last answer where it was cut off
  /model NAME      let another model answer; without NAME, list those there are
  /set NAME VALUE  set a value for this chat, as temperature 0.2; without VALUE, as the model likes
  /system TEXT     set this chat's system prompt; without TEXT, none
  /think HOW       think first: on, off, auto, or a budget of tokens
  /settings        list how this chat is answered
  /help            print this
  /quit            leave; so does the end of input (Ctrl-D)
Ctrl-C stops an answer, and leaves where there is none. A line that begins with // is a question
that begins with /."""
_BLOCK = '"""'
_SECONDS_BETWEEN_NOTES = 5.0


class PlainChat:
    """Reads `lines` and writes to `out`, and notes to `notes`, where that is elsewhere. With
    `echoes`, what was read is written too, as a terminal does by itself. `clock` gives seconds."""

    def __init__(
        self,
        client: ChatClient,
        keeper: ChatKeeper,
        lines: LineReader,
        out: TextIO,
        *,
        notes: TextIO | None = None,
        echoes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._lines = lines
        self._out = out
        self._notes = notes
        self._echoes = echoes
        self._clock = clock
        self._happened: asyncio.Queue[Happening] = asyncio.Queue()
        switch = ModelSwitch(client, self._happened.put_nowait)
        self.talk = Conversation(client, keeper, switch, self._happened.put_nowait)
        self.is_loading = False
        self._part = ""
        self._said_next: str | None = None
        self._at_line_start = True
        self._noted_at = clock()

    async def run(self) -> None:
        """To the end of input, or /quit."""
        while (text := await self._read_message()) is not None:
            if not text.strip():
                continue
            try:
                if not await self._do(text):
                    break
            except EdgeServeError as error:
                self._note(str(error))
        await self.talk.close()

    async def go_on_with(self, chat_id: str) -> None:
        """Shows a chat that was, as it would have been written here. Raises ChatNotFoundError."""
        await self.talk.open(chat_id)
        title = shown_line(self.talk.chat.title)
        self._write(spoken(self.talk.turns))
        self._note(f'going on with "{title}"; /new begins a new chat')

    async def interrupt(self) -> None:
        """Ctrl-C: stops the answer under way, or else the input."""
        if self.talk.is_answering:
            await self.talk.stop()
        else:
            self._lines.end()

    async def use(self, name: str) -> None:
        """Raises EdgeServeError."""
        self._note(f"loading {name}")
        self.is_loading = True
        try:
            model = await self._client.use(name, self._loading)
        finally:
            self.is_loading = False
        self._note("; ".join(filter(None, [f"{called(model.name)} answers", model.note])))

    # --- what is read ---------------------------------------------------------------------------

    async def _read_message(self) -> str | None:
        """One question, of one line or several; None at the end."""
        found: list[str] = []
        in_block = False
        prompt = YOU
        while (line := await self._next_line(prompt)) is not None:
            prompt = ""
            if line.strip() == _BLOCK:
                if in_block:
                    return "\n".join(found)
                in_block = True
            elif not in_block and line.endswith("\\"):
                found.append(line[:-1])
            else:
                found.append(line)
                if not in_block:
                    return "\n".join(found)
        return "\n".join(found) if found else None

    async def _next_line(self, prompt: str) -> str | None:
        """The prompt stands before it: at once where somebody types, else once there is a line."""
        if self._said_next is not None:
            line, self._said_next = self._said_next, None
            return line
        is_edited = self._lines.is_edited
        if prompt and not self._echoes:
            self._begin("" if is_edited else prompt)
        line = await self._lines.next(prompt)
        if self._echoes and line is not None:
            self._begin(prompt)
            self._write(f"{line}\n")
        elif line is None and prompt and not self._echoes:
            self._write("\n")
        self._at_line_start = True
        return line if line is None or self._echoes else without_keys(line)

    async def _do(self, text: str) -> bool:
        """False to leave."""
        command, _, argument = text.strip().partition(" ")
        if command.startswith("/"):
            command = f"/{ALIASES.get(command[1:], command[1:])}"
        match command:
            case "/quit":
                return False
            case "/help":
                self._note(HELP)
            case "/new":
                self.talk.start_new()
                self._note("a new chat")
            case "/regenerate":
                await self._answered(self.talk.regenerate())
            case "/continue":
                await self._answered(self.talk.go_on())
            case "/model" if argument.strip():
                await self.use(argument.strip())
            case "/model" | "/models":
                await self._list_models()
            case "/set" | "/system" | "/think" | "/settings":
                await self._change(command, argument.strip())
            case _ if text.startswith("//"):
                await self._answered(self.talk.ask(text[1:]))
            case _ if is_unknown(text) and command[1:] in BY_NAME:
                self._note(f"{command} needs the screen: edgeserve chat without --plain")
            case _ if is_unknown(text):
                self._note(f"there is no {command}; /help prints those there are")
            case _:
                await self._answered(self.talk.ask(text))
        return True

    async def _change(self, command: str, argument: str) -> None:
        """How this chat is answered from now on, and how that is then."""
        if command == "/system":
            await self.talk.change(system_prompt=argument)
        elif command == "/think":
            await self.talk.change(settings=thinking(argument))
        elif command == "/set":
            name, _, value = argument.partition(" ")
            await self.talk.change(settings={name: as_setting(name, value)})
        chat = self.talk.chat
        values = [f"  {name} = {value}" for name, value in sorted(chat.settings.items())]
        prompt = [f"  system prompt: {shown_line(chat.system_prompt)}"] * bool(chat.system_prompt)
        model = self._client.model
        left = [f"  {n} = {auto(n, model)}" for n in NUMBERS if n not in chat.settings]
        rest = [*left, f"  {auto_explained(model)}"]
        self._note("\n".join(["this chat is answered with", *values, *prompt, *rest]))

    async def _answered(self, asking: Awaitable[None]) -> None:
        """Writes an answer as it comes."""
        self._noted_at, self._part = self._clock(), ""
        await asking
        is_begun = self.talk.is_answering  # then its end is told, however soon it is over
        while is_begun or not self._happened.empty():
            happening = await self._happened.get()
            if not isinstance(happening, AnswerOver):
                await self._hear(happening)
            elif not self.talk.is_answering:  # else it was asked in a new chat meanwhile
                self._over(happening)
                break

    # --- what is written ------------------------------------------------------------------------

    async def _hear(self, happening: Happening) -> None:
        match happening:
            case TextCame():
                part = THOUGHT if happening.is_reasoning else MODEL
                if part != self._part:
                    self._begin(part)
                    self._part = part
                self._write(happening.text)
            case PromptRead():
                self._reading(happening.reading)
            case RoomAsked():
                await self._make_room(happening.room)
            case NotKept():
                self._note(f"not kept: {happening.error}; trying again")
            case KeptAgain():
                self._note("all is kept again")
            case _:
                pass

    def _over(self, over: AnswerOver) -> None:
        turn = over.turn
        if over.error is not None:
            rest = "; /retry asks again" if turn is None else ""
            self._note(f"{over.error}{rest}")
        if turn is None:
            self._note("given up" if over.error is None else "nothing is lost")
        elif turn.state is TurnState.STOPPED:
            self._note("stopped; /continue goes on")
        elif turn.error:
            self._note(turn.error)
        elif turn.generation is not None and turn.generation.finish_reason == "length":
            self._note("cut off for length; /continue goes on")
        if not self._at_line_start:
            self._write("\n")

    async def _make_room(self, room: Room) -> None:
        needs = f"{room.needed_tokens:,} tokens are needed, {room.context_tokens:,} is the most"
        if not room.oldest:
            self._note(f"the question is too long: {needs}")
            await self.talk.decide("cancel")
            return
        self._note(
            f"the chat is too long for the model: {needs}. Type drop to leave out the oldest "
            f"{len(room.oldest)} turns, summarise to put a summary in their place, new to ask in a "
            "new chat, or cancel"
        )
        line = await self._next_line(YOU)
        if not self.talk.is_answering:  # given up by Ctrl-C: this is what is said next
            self._said_next = line
            return
        said = (line or "cancel").strip().lower()
        match said:
            case "drop" | "summarise" | "cancel":
                await self.talk.decide(said)
            case "new":
                await self.talk.decide("new chat")
            case _:
                await self._make_room(room)

    async def _list_models(self) -> None:
        models = await self._client.models()
        here = [f"  {each.name}" for each in models if each.here]
        others = [f"  {each.name} (to be fetched)" for each in models if not each.here]
        self._note("\n".join(["models:", *here, *others]))

    def _reading(self, reading: PromptReading) -> None:
        if reading.done < reading.total and self._is_time():
            left = reading.seconds_left
            end = "" if left is None else f", {left:.0f} s left"
            self._note(f"reading the prompt, {reading.done:,} of {reading.total:,} tokens{end}")

    def _loading(self, progress: LoadProgress) -> None:
        if progress.stage == "download" and self._is_time():
            total = progress.total_bytes
            share = f"{100 * progress.done_bytes // total} %" if total else "under way"
            self._note(f"{progress.label or 'download'}: {share}")

    def _is_time(self) -> bool:
        now = self._clock()
        if now - self._noted_at < _SECONDS_BETWEEN_NOTES:
            return False
        self._noted_at = now
        return True

    def _note(self, text: str) -> None:
        lines = "\n".join(map(shown_line, shown(text).split("\n")))
        if self._notes is not None:
            print(f"{NOTE}{lines}", file=self._notes, flush=True)
            return
        self._begin(NOTE)
        self._write(f"{lines}\n")
        self._part = ""

    def _begin(self, role: str) -> None:
        if not self._at_line_start:
            self._write("\n")
        self._write(role)

    def _write(self, text: str) -> None:
        if text:
            self._out.write(shown(text))
            self._out.flush()
            self._at_line_start = text.endswith("\n")


def spoken(turns: Sequence[Turn]) -> str:
    """A branch as it would have been written, for who goes on with it."""
    roles = {"user": YOU, "assistant": MODEL, "system": NOTE}
    return "".join(f"{roles[turn.role]}{shown(turn.text)}\n" for turn in turns if turn.text)
