"""The chat as lines of plain text: for pipes, screen readers and dumb terminals.

No cursor moves, no colours; a role's word before each turn; the same chats as the screens'.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TextIO

from edgeserve.chats.records import Turn, TurnState
from edgeserve.errors import EdgeServeError
from edgeserve.tui.client import ChatClient, LoadProgress, PromptReading
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
from edgeserve.tui.room import Room
from edgeserve.tui.terminal_text import shown, shown_line

YOU, MODEL, THOUGHT, NOTE = "You: ", "Assistant: ", "Thinking: ", "Note: "
HELP = """\
Type a question and press Enter. A line that ends with \\ goes on in the next;
lines between two lines of \"\"\" are one question.
  /new             begin a new chat
  /retry           answer the last question again
  /continue        go on with the last answer where it was cut off
  /model NAME      let another model answer; without NAME, list those there are
  /help            print this
  /quit            leave; so does the end of input (Ctrl-D)
Ctrl-C stops an answer, and leaves where there is none."""
_BLOCK = '"""'
_SECONDS_BETWEEN_NOTES = 5.0


class PlainChat:
    """Reads `lines` and writes to `out`. With `echoes`, what was read is written too, as a terminal
    does by itself. `clock` gives seconds."""

    def __init__(
        self,
        client: ChatClient,
        keeper: ChatKeeper,
        lines: LineReader,
        out: TextIO,
        *,
        echoes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._lines = lines
        self._out = out
        self._echoes = echoes
        self._clock = clock
        self._happened: asyncio.Queue[Happening] = asyncio.Queue()
        switch = ModelSwitch(client, self._happened.put_nowait)
        self.talk = Conversation(client, keeper, switch, self._happened.put_nowait)
        self.is_loading = False
        self._part = ""
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
        self._note("; ".join(filter(None, [f"{model.name} answers", model.note])))

    # --- what is read ---------------------------------------------------------------------------

    async def _read_message(self) -> str | None:
        """One question, of one line or several; None at the end."""
        self._begin(YOU)
        found: list[str] = []
        in_block = False
        while (line := await self._lines.next()) is not None:
            if self._echoes:
                self._write(f"{line}\n")
            self._at_line_start = True
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
        if not found:
            self._write("\n")
            return None
        return "\n".join(found)

    async def _do(self, text: str) -> bool:
        """False to leave."""
        command, _, argument = text.strip().partition(" ")
        match command:
            case "/quit" | "/exit":
                return False
            case "/help":
                self._note(HELP)
            case "/new":
                self.talk.start_new()
                self._note("a new chat")
            case "/retry":
                await self._answered(self.talk.regenerate())
            case "/continue":
                await self._answered(self.talk.go_on())
            case "/model" if argument.strip():
                await self.use(argument.strip())
            case "/model":
                await self._list_models()
            case _ if command.startswith("/") and command[1:].isalpha():
                self._note(f"there is no {command}; /help prints those there are")
            case _:
                await self._answered(self.talk.ask(text))
        return True

    async def _answered(self, asking: Awaitable[None]) -> None:
        """Writes an answer as it comes."""
        self._noted_at, self._part = self._clock(), ""
        await asking
        while self.talk.is_answering or not self._happened.empty():
            happening = await self._happened.get()
            if isinstance(happening, AnswerOver):
                self._over(happening)
                break
            await self._hear(happening)

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
        self._begin(YOU)
        said = (await self._lines.next() or "cancel").strip().lower()
        self._at_line_start = True
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
        lines = shown(text).split("\n")
        self._begin(NOTE)
        self._write("\n".join(map(shown_line, lines)) + "\n")
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


class LineReader:
    """Lines of a file that blocks, for an event loop. Read on a thread that ends with the process,
    for nothing can be done about a read that waits."""

    def __init__(self, source: Iterable[str]) -> None:
        self._source = source
        self._lines: asyncio.Queue[str | BaseException | None] = asyncio.Queue()
        self._wanted = threading.Semaphore(0)
        self._is_over = False
        self._thread: threading.Thread | None = None

    async def next(self) -> str | None:
        """Without its end; None at the end of the file. Raises what reading raises."""
        if self._is_over:
            return None
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._read, args=(loop,), daemon=True)
            self._thread.start()
        self._wanted.release()
        found = await self._lines.get()
        if isinstance(found, BaseException):
            raise found
        self._is_over = self._is_over or found is None
        return None if self._is_over or found is None else found.rstrip("\r\n")

    def end(self) -> None:
        """As if the file ended here."""
        self._is_over = True
        self._lines.put_nowait(None)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """A line at a time, as it is wanted: what follows may be for somebody else."""
        lines = iter(self._source)
        found: str | BaseException | None = ""
        while isinstance(found, str):
            self._wanted.acquire()
            try:
                found = next(lines, None)
            except Exception as error:
                found = error
            try:
                loop.call_soon_threadsafe(self._lines.put_nowait, found)
            except RuntimeError:  # the loop has ended
                return


def spoken(turns: Sequence[Turn]) -> str:
    """A branch as it would have been written, for who goes on with it."""
    roles = {"user": YOU, "assistant": MODEL, "system": NOTE}
    return "".join(f"{roles[turn.role]}{shown(turn.text)}\n" for turn in turns if turn.text)
