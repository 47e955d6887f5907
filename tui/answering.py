"""Answers under way, at most one in a chat, and what came of them until it is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from edgeserve.chats.records import Chat, Turn, TurnState
from edgeserve.errors import AnswerFailedError, ChatNotFoundError, ChatsError, EdgeServeError
from edgeserve.tui.answer_run import AnswerRun
from edgeserve.tui.client import ChatClient, TokenFact
from edgeserve.tui.happenings import AnswerOver, Happening, KeptAgain, NotKept
from edgeserve.tui.keeper import ChatKeeper
from edgeserve.tui.model_switch import ModelSwitch
from edgeserve.tui.one_answer import Choice, OneAnswer, Stage

_CLOSING_S = 3.0


class Answering:
    """`tell` hears what happens, with the chat's id; `changed` is awaited after a chat's turns are
    others than before, with the turn that is its end now where that is known. What cannot be
    written is tried again every `retry_s`."""

    def __init__(
        self,
        client: ChatClient,
        keeper: ChatKeeper,
        switch: ModelSwitch,
        tell: Callable[[str, Happening], None],
        changed: Callable[[str, Turn | None], Awaitable[None]],
        *,
        retry_s: float = 2.0,
    ) -> None:
        self._told = tell
        self._changed = changed
        self._client = client
        self._keeper = keeper
        self._switch = switch
        self._retry_s = retry_s
        self._under_way: dict[str, OneAnswer] = {}
        self._runs: dict[str, AnswerRun] = {}
        self._tokens: dict[str, tuple[TokenFact, ...]] = {}
        self._drafts: dict[str, tuple[int, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- what stands ----------------------------------------------------------------------------

    def stage(self, chat_id: str) -> Stage | None:
        """What a chat's answer is at; None where none is under way."""
        found = self._under_way.get(chat_id)
        return None if found is None else found.stage

    def run(self, chat_id: str) -> AnswerRun | None:
        """What streams into a chat now."""
        found = self._under_way.get(chat_id)
        return None if found is None else found.run

    def is_writing(self, turn_id: str) -> bool:
        """Whether an answer of this window goes into the turn, or is still to be kept."""
        return turn_id in self._runs

    def as_it_stands(self, turn: Turn) -> Turn:
        """The turn with what has come of it and is not on disk yet."""
        run = self._runs.get(turn.id)
        if run is None:
            return turn
        if run.turn.state is not TurnState.STREAMING:
            return run.turn
        return replace(run.turn, text=run.text, reasoning=run.reasoning)

    def tokens(self, turn_id: str) -> tuple[TokenFact, ...]:
        """Of an answer that came since the start."""
        run = self._runs.get(turn_id)
        return self._tokens.get(turn_id, ()) if run is None else tuple(run.tokens)

    def drafts(self, turn_id: str) -> tuple[int, int] | None:
        """Of an answer that came since the start: tokens that were guessed, and guessed right."""
        return self._drafts.get(turn_id)

    # --- what is done ---------------------------------------------------------------------------

    def start(self, chat: Chat, parent: Turn, *, into: Turn | None = None) -> None:
        """Answers the branch that ends with `parent`, in a new turn; or goes on with `into`, its
        child. Nothing where the chat has an answer under way."""
        if chat.id not in self._under_way:
            answer = OneAnswer(self._client, self._keeper, self, chat, parent, into)
            self._under_way[chat.id] = answer
            answer.begin(self._switch)
            self._in_background(self._whole(answer))

    async def stop(self, chat_id: str) -> None:
        """What streams ends within a step and stays; what waits is given up."""
        answer = self._under_way.get(chat_id)
        if answer is not None:
            await answer.stop()

    def decide(self, chat_id: str, choice: Choice) -> None:
        """Answers RoomAsked."""
        answer = self._under_way.get(chat_id)
        if answer is not None:
            answer.decide(choice)

    async def close(self) -> None:
        """Stops everything; returns once it is kept, or cannot be."""
        for chat_id in list(self._under_way):
            await self.stop(chat_id)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_CLOSING_S)
            for task in late:
                task.cancel()
        for run in list(self._runs.values()):
            with suppress(ChatsError):
                await run.keep()

    # --- what an answer tells -------------------------------------------------------------------

    def tell(self, chat_id: str, happening: Happening, /) -> None:
        self._told(chat_id, happening)

    async def changed(self, chat_id: str, end: Turn | None = None, /) -> None:
        await self._changed(chat_id, end)

    def began(self, run: AnswerRun) -> None:
        self._runs[run.turn.id] = run

    async def ended(self, run: AnswerRun) -> None:
        try:
            await run.keep()
        except ChatsError as error:
            self.tell(run.turn.chat_id, NotKept(error))
            self._in_background(self._keep(run))
        else:
            self._forget(run)

    # --- inside ---------------------------------------------------------------------------------

    async def _whole(self, answer: OneAnswer) -> None:
        turn, failure = None, None
        try:
            turn = await answer.over()
        except EdgeServeError as error:
            failure = error
        except Exception as error:  # else the chat would wait for an end that nobody tells
            failure = AnswerFailedError(error)
        finally:
            del self._under_way[answer.chat.id]
        run = answer.run
        if failure is not None and run is not None and run.turn.state is TurnState.STREAMING:
            run.fail(failure)
            await self.ended(run)
        try:
            await self.changed(answer.chat.id)
        except ChatsError as error:  # the answer is there, and its chat cannot be read now
            failure = failure or error
        except Exception as error:
            failure = failure or AnswerFailedError(error)
        self.tell(answer.chat.id, AnswerOver(turn, failure))

    async def _keep(self, run: AnswerRun) -> None:
        while run.turn.id in self._runs:
            await asyncio.sleep(self._retry_s)
            try:
                await run.keep()
            except ChatNotFoundError:
                self._forget(run)  # another window deleted the chat for good
            except ChatsError:
                continue
            else:
                self._forget(run)
                self.tell(run.turn.chat_id, KeptAgain())

    def _forget(self, run: AnswerRun) -> None:
        self._runs.pop(run.turn.id, None)
        self._tokens[run.turn.id] = tuple(run.tokens)
        if run.end is not None:
            self._drafts[run.turn.id] = (run.end.num_draft_tokens, run.end.num_accepted_tokens)

    def _in_background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
