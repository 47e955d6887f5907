"""One answer from its question to its end: waits for a model, for room, then streams.

That a full context is the user's to decide on is kept here. Knows one chat and no screen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol

from edgeserve.chats.messages import dropped_before
from edgeserve.chats.records import Chat, Generation, Turn, TurnState
from edgeserve.errors import ContextLengthError, SummaryError
from edgeserve.tui.answer_run import AnswerRun
from edgeserve.tui.asked import SizeWithout, estimate, question_of, settings_of, summary_question
from edgeserve.tui.client import ChatClient, Question
from edgeserve.tui.happenings import Happening, RoomAsked
from edgeserve.tui.keeper import ChatKeeper
from edgeserve.tui.model_switch import ModelSwitch
from edgeserve.tui.room import Room, least_answer, room_for

Choice = Literal["drop", "summarise"]
Stage = Literal["model", "room", "summary", "answer"]


class Around(Protocol):
    """Who holds the answers under way."""

    def tell(self, chat_id: str, happening: Happening, /) -> None: ...

    def began(self, run: AnswerRun) -> None:
        """A turn is being written."""
        ...

    async def ended(self, run: AnswerRun) -> None:
        """It is not any more, and is to be kept."""
        ...

    async def changed(self, chat_id: str, end: Turn | None = None, /) -> None:
        """The chat has turns that it had not, or ends with another."""
        ...


class OneAnswer:
    """Comes after `parent`, which a summary moves; or goes on in `into`, a child of it."""

    def __init__(
        self,
        client: ChatClient,
        keeper: ChatKeeper,
        around: Around,
        chat: Chat,
        parent: Turn,
        into: Turn | None = None,
    ) -> None:
        self.chat = chat
        self.stage: Stage = "model"
        self.run: AnswerRun | None = None
        self._client = client
        self._keeper = keeper
        self._around = around
        self._parent = parent
        self._into = into
        self._decision: asyncio.Future[Choice] | None = None
        self._task: asyncio.Task[Turn | None] | None = None

    def begin(self, switch: ModelSwitch) -> None:
        """Once."""
        self._task = asyncio.create_task(self._go(switch))

    async def over(self) -> Turn | None:
        """The answer as it ended; None where it was given up before it began.

        Raises ChatsError, or SummaryError where the turns before were to be summarised first.
        """
        assert self._task is not None
        await asyncio.wait([self._task])
        return None if self._task.cancelled() else self._task.result()

    async def stop(self) -> None:
        """What streams ends within a step and stays; what waits is given up."""
        if self.run is not None:
            await self.run.stop()
        elif self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def decide(self, choice: Choice) -> None:
        """Answers RoomAsked."""
        if self._decision is not None and not self._decision.done():
            self._decision.set_result(choice)

    # --- inside ---------------------------------------------------------------------------------

    async def _go(self, switch: ModelSwitch) -> Turn | None:
        await switch.ready()
        model = self._client.model
        context = None if model is None else model.context_tokens
        size: SizeWithout = self._size
        while True:
            branch = await self._branch()
            dropped = dropped_before(branch)
            room = await self._room(branch, dropped, context, size)
            if room is not None:
                choice, dropped = await self._decided(room), room.oldest
                if choice == "summarise":
                    if not await self._summarised(branch, dropped):
                        return None
                    branch = await self._branch()
            run = await self._streamed(branch, dropped)
            error = run.error
            if not isinstance(error, ContextLengthError) or run.text or size != self._size:
                return run.turn
            # Whoever cannot say what a prompt costs has just said it.
            context = error.max_model_len
            size = estimate(branch, self.chat.system_prompt, error.num_prompt_tokens)
            self._into = run.turn

    async def _branch(self) -> Sequence[Turn]:
        tree = await self._keeper.run(lambda store: store.turns(self.chat.id))
        return tree.branch((self._into or self._parent).id)

    async def _room(
        self,
        branch: Sequence[Turn],
        dropped: Sequence[str],
        context: int | None,
        size: SizeWithout,
    ) -> Room | None:
        if not context:
            return None
        least = least_answer(context, settings_of(self.chat).max_tokens)
        return await room_for(branch, dropped, context, least, size)

    async def _size(self, dropped: Sequence[str]) -> int | None:
        size = await self._client.size(self._question(await self._branch(), dropped))
        return None if size is None else size.tokens

    def _question(self, branch: Sequence[Turn], dropped: Sequence[str]) -> Question:
        continues = self._into is not None and bool(self._into.text)
        return question_of(self.chat, branch, dropped, continues=continues)

    async def _decided(self, room: Room) -> Choice:
        self.stage, self.run = "room", None
        self._decision = asyncio.get_running_loop().create_future()
        self._around.tell(self.chat.id, RoomAsked(room))
        return await self._decision

    async def _summarised(self, branch: Sequence[Turn], dropped: Sequence[str]) -> bool:
        """Puts a summary of the dropped turns after the question. False where it was stopped."""
        self.stage = "summary"
        turn = await self._added("system")
        gone = [turn for turn in branch if turn.id in dropped]
        await self._run(turn, dropped, summary_question(gone, dropped_before(branch)))
        assert self.run is not None
        summary, self.run = self.run.turn, None
        if summary.state is TurnState.COMPLETE and summary.text.strip():
            self._parent = summary
            return True
        parent = self._parent
        await self._keeper.run(lambda store: store.set_leaf(self.chat.id, parent.id))
        await self._around.changed(self.chat.id, parent)
        if summary.state is TurnState.STOPPED:
            return False
        raise SummaryError(summary.error or "the model wrote nothing")

    async def _streamed(self, branch: Sequence[Turn], dropped: Sequence[str]) -> AnswerRun:
        self.stage = "answer"
        into, question = self._into, self._question(branch, dropped)
        if into is None:
            turn = await self._added("assistant")
        else:
            turn = await self._keeper.run(lambda store: store.begin(into.id))
        return await self._run(turn, dropped, question)

    async def _added(self, role: Literal["assistant", "system"]) -> Turn:
        chat_id, parent = self.chat.id, self._parent
        return await self._keeper.run(
            lambda store: store.add_turn(chat_id, parent.id, role, state=TurnState.STREAMING)
        )

    async def _run(self, turn: Turn, dropped: Sequence[str], question: Question) -> AnswerRun:
        made = replace(self._generation(), dropped=tuple(dropped))
        chat_id, around = self.chat.id, self._around
        run = AnswerRun(
            self._client, self._keeper, turn, made, lambda what: around.tell(chat_id, what)
        )
        self.run = run
        around.began(run)
        await around.changed(chat_id)
        await run.run(question)
        await around.ended(run)
        return run

    def _generation(self) -> Generation:
        model = self._client.model
        return Generation(
            model="" if model is None else model.name,
            fingerprint="" if model is None else model.fingerprint,
            settings=dict(self.chat.settings),
            system_prompt=self.chat.system_prompt,
        )
