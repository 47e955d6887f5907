"""The chat that is shown: its branch, and what can be done with it. Draws nothing, needs no screen.

Answers go on when another chat is shown (answering.py). What happens is told as happenings.py has
it; every method returns once what it changed is on disk, and raises ChatsError where it cannot be.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal

from edgeserve.chats.messages import dropped_before, messages_of
from edgeserve.chats.records import Attachment, Chat, Turn, TurnState
from edgeserve.chats.records import Conversation as Whole
from edgeserve.chats.tree import TurnTree
from edgeserve.errors import AnswerUnderWayError, ChatNotFoundError
from edgeserve.tui.answering import Answering
from edgeserve.tui.asked import settings_of
from edgeserve.tui.client import ChatClient, PromptSize, Question
from edgeserve.tui.happenings import BranchShown, ChatsChanged, Happening, KeptAgain, NotKept
from edgeserve.tui.keeper import ChatKeeper
from edgeserve.tui.model_switch import ModelSwitch

NO_CHAT = Chat(id="")
"""A chat with nothing in it: it gets an id with its first question, or what is written for one."""


class Conversation:
    """`chat` is what is shown, with all its turns in `tree`; `draft` what stands in its composer,
    as this window found or kept it: another may have its own."""

    def __init__(
        self,
        client: ChatClient,
        keeper: ChatKeeper,
        switch: ModelSwitch,
        tell: Callable[[Happening], None],
        *,
        retry_s: float = 2.0,
    ) -> None:
        self.chat = NO_CHAT
        self.tree = TurnTree(())
        self.draft = ""
        self._place = object()  # another one for each chat that is shown
        self._asking = asyncio.Lock()
        self._beginning = asyncio.Lock()
        self._drafting = asyncio.Lock()
        self._client = client
        self._keeper = keeper
        self._tell = tell
        self.answering = Answering(
            client, keeper, switch, self._heard, self._changed, retry_s=retry_s
        )

    # --- what is shown --------------------------------------------------------------------------

    @property
    def turns(self) -> Sequence[Turn]:
        """The branch that is shown, with what has come of answers under way."""
        return tuple(map(self.answering.as_it_stands, self.tree.branch(self.chat.leaf_id)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is shown."""
        return self._last() is None

    @property
    def whole(self) -> Whole:
        """All branches, as they are known here."""
        return Whole(self.chat, tuple(map(self.answering.as_it_stands, self.tree.turns)))

    @property
    def dropped(self) -> tuple[str, ...]:
        """Ids of the turns that the model is not told any more."""
        return dropped_before(self.turns)

    @property
    def is_answering(self) -> bool:
        """Also while its question is being kept, or it waits for the model or a decision."""
        return self._asking.locked() or self.answering.stage(self.chat.id) is not None

    @property
    def is_answered_elsewhere(self) -> bool:
        """Whether another window writes the answer at the end."""
        last = self._last()
        if last is None or last.state is not TurnState.STREAMING:
            return False
        return not self.answering.is_writing(last.id)

    @property
    def used_tokens(self) -> int | None:
        """What the model holds of this branch after its newest answer."""
        for turn in map(self.answering.as_it_stands, self.tree.upwards(self.chat.leaf_id)):
            made = turn.generation
            if turn.role == "assistant" and made and made.prompt_tokens is not None:
                return made.prompt_tokens + (made.answer_tokens or 0)
        return 0 if self.is_empty else None

    @property
    def model_name(self) -> str:
        """What answers now; "" before there is one."""
        return "" if self._client.model is None else self._client.model.name

    # --- which chat -----------------------------------------------------------------------------

    async def open(self, chat_id: str, turn_id: str | None = None) -> None:
        """Shows a chat, and of it the branch through a turn. Raises ChatNotFoundError."""
        chat = await self._keeper.run(lambda store: store.chat(chat_id))
        tree = await self._keeper.run(lambda store: store.turns(chat_id))
        if turn_id is not None and turn_id in tree:
            leaf = tree.newest_leaf(turn_id)
            if turn_id not in {turn.id for turn in tree.branch(chat.leaf_id)}:
                chat = await self._keeper.run(lambda store: store.set_leaf(chat_id, leaf))
        self._show_chat(chat, tree)

    def start_new(self) -> None:
        """An empty chat; how it is to answer is taken from the one before."""
        settings, system_prompt = self.chat.settings, self.chat.system_prompt
        chat = replace(NO_CHAT, settings=settings, system_prompt=system_prompt)
        self._show_chat(chat, TurnTree(()))

    async def refresh(self) -> None:
        """After another window wrote, or an answer ended."""
        if not self.chat.id:
            return
        before, chat_id = self.chat, self.chat.id
        try:
            chat = await self._keeper.run(lambda store: store.chat(chat_id))
            tree = await self._keeper.run(lambda store: store.turns(chat_id))
        except ChatNotFoundError:  # another window has taken it away for good
            chat, tree = replace(self.chat, id="", title="", leaf_id=None), TurnTree(())
            self.draft = ""
        if self.chat is not before:  # something was changed meanwhile: what was read is old
            await self.refresh()
        else:
            self.chat, self.tree = replace(chat, leaf_id=self._leaf_in(tree, chat.leaf_id)), tree

    async def recover(self) -> bool:
        """Whether the answer that another window wrote here was broken off: that window is gone."""
        if self.is_answered_elsewhere:
            await self.refresh()  # an answer of this window may have ended since the tree was read
        if not self.is_answered_elsewhere:
            return False
        await self._keeper.run(lambda store: store.recover())
        await self.refresh()
        return not self.is_answered_elsewhere

    # --- asking ---------------------------------------------------------------------------------

    async def ask(self, text: str, attachments: Sequence[Attachment] = ()) -> None:
        """A new turn at the end of the branch, and its answer. Raises AnswerUnderWayError where
        another one is written there, and nothing is kept then."""
        async with self._answer_begun():
            if self.is_answered_elsewhere and not await self.recover():
                raise AnswerUnderWayError
            await self._say(self.chat.leaf_id, text, attachments)

    async def edit(
        self, turn_id: str, text: str, attachments: Sequence[Attachment] | None = None
    ) -> None:
        """Another turn beside this one: a question is answered anew, an answer is as it is given.
        Attachments stay where none are given. Raises AnswerUnderWayError as `ask` does."""
        async with self._answer_begun():
            await self._edit(turn_id, text, attachments)

    async def _edit(
        self, turn_id: str, text: str, attachments: Sequence[Attachment] | None
    ) -> None:
        turn = self.tree.turn(turn_id)
        kept = turn.attachments if attachments is None else attachments
        if turn.role == "user":
            await self._say(turn.parent_id, text, kept)
            return
        await self._show(
            await self._keeper.run(
                lambda store: store.add_turn(turn.chat_id, turn.parent_id, turn.role, text)
            )
        )

    async def regenerate(self, turn_id: str | None = None) -> None:
        """Another answer beside this one; of a question, or with none given, to the last one."""
        turn = self.tree.turn(turn_id) if turn_id else self._last()
        if turn is None:
            return
        asked = turn if turn.role == "user" else self._question_of(turn)
        if asked is None:
            return
        chat_id = self.chat.id
        self.chat = await self._keeper.run(lambda store: store.set_leaf(chat_id, asked.id))
        self._answer(asked)

    async def go_on(self) -> None:
        """Continues the last answer where it was cut off; an unanswered question is answered."""
        last = self._last()
        if last is None:
            return
        if self.is_answered_elsewhere and not await self.recover():
            raise AnswerUnderWayError
        asked = self._question_of(last) if last.role == "assistant" else last
        if last.role == "assistant" and last.text and asked is not None:
            self.answering.start(self.chat, asked, into=last)
        elif asked is not None:
            await self.regenerate(asked.id)

    async def stop(self) -> None:
        """The answer, also one whose question is being kept just now."""
        async with self._asking:
            await self.answering.stop(self.chat.id)

    async def decide(self, choice: Literal["drop", "summarise", "new chat", "cancel"]) -> None:
        """Answers RoomAsked. Cancelled, the question stays unanswered; for a new chat it moves."""
        if choice in ("drop", "summarise"):
            self.answering.decide(self.chat.id, choice)
            return
        await self.stop()
        asked = self._last()
        if choice == "new chat" and asked is not None:
            await self.show_leaf(asked.parent_id)
            self.start_new()
            await self.ask(asked.text, asked.attachments)

    async def take_back(self, *, is_shown: bool) -> Turn | None:
        """Gives the question up that waits for room; what it was, to be written anew. It stays in
        its place where it `is_shown`, or else as a branch beside what comes there next."""
        await self.stop()
        asked = self._last()
        if asked is not None and not is_shown:
            await self.show_leaf(asked.parent_id)
        return asked

    async def step_branch(self, turn_id: str, step: int) -> None:
        """Shows the branch beside this turn."""
        siblings = [turn.id for turn in self.tree.siblings(turn_id)]
        at = siblings.index(turn_id) + step
        if 0 <= at < len(siblings):
            await self.show_leaf(self.tree.newest_leaf(siblings[at]))

    async def show_leaf(self, turn_id: str | None) -> None:
        chat_id = self.chat.id
        self.chat = await self._keeper.run(lambda store: store.set_leaf(chat_id, turn_id))
        self._tell(BranchShown())

    # --- how it answers, what it costs ----------------------------------------------------------

    async def change(
        self, *, system_prompt: str | None = None, settings: Mapping[str, object] | None = None
    ) -> None:
        """How this chat is answered from now on; a None among `settings` takes one away."""
        if self.chat.id:
            chat_id = self.chat.id
            self.chat = await self._keeper.run(
                lambda store: store.change(chat_id, system_prompt=system_prompt, settings=settings)
            )
        else:
            merged = {**self.chat.settings, **(settings or {})}
            self.chat = replace(
                self.chat,
                settings={name: value for name, value in merged.items() if value is not None},
                system_prompt=self.chat.system_prompt if system_prompt is None else system_prompt,
            )
        self._tell(BranchShown())

    async def keep_draft(self, text: str) -> None:
        """What stands in the composer, for the next time this chat is opened. A chat that has no
        more than that is kept for as long as it has it."""
        place = self._place
        async with self._drafting:
            if place is not self._place or text == self.draft:
                return  # whoever left the chat has kept its draft
            if not self.chat.id and text.strip():
                await self._begin()
                self._tell(ChatsChanged())
            chat_id = self.chat.id
            if chat_id:
                await self._keep_draft(chat_id, text)
            if place is self._place:
                self.draft = text

    async def cost(self, draft: str = "") -> PromptSize | None:
        """What asking `draft` next would cost, with everything before it; without one, what is
        there."""
        turns = [*self.turns]
        if draft:
            said = Turn(id="", chat_id="", parent_id=None, role="user", text=draft)
            turns.append(said)
        messages = messages_of(turns, self.chat.system_prompt, self.dropped)
        if not messages or self._client.model is None:
            return None
        return await self._client.size(Question(messages, settings_of(self.chat)))

    async def close(self) -> None:
        """Stops what is under way, and keeps it."""
        await self.answering.close()

    # --- inside ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def _answer_begun(self) -> AsyncGenerator[None]:
        """Around what begins an answer: between its question and its start there is no other."""
        if self.is_answering:
            raise AnswerUnderWayError
        async with self._asking:
            yield

    def _show_chat(self, chat: Chat, tree: TurnTree) -> None:
        self.chat, self.tree = chat, tree
        self.draft, self._place = chat.draft, object()
        self._tell(BranchShown())

    def _leaf_in(self, tree: TurnTree, kept: str | None) -> str | None:
        """A window stays on its branch: it goes where another one has only from its own end on."""
        mine = self.chat.leaf_id
        if mine is None or mine not in tree:
            return kept if kept in tree else None
        if any(turn.id == mine for turn in tree.branch(kept)):
            return kept
        return tree.newest_leaf(mine)

    async def _keep_draft(self, chat_id: str, text: str) -> None:
        try:
            kept = await self._keeper.run(lambda store: store.keep_draft(chat_id, text))
        except ChatNotFoundError:
            kept = None
        if self.chat.id != chat_id:
            return
        if kept is not None:
            self.chat = replace(self.chat, draft=kept.draft)
            return
        self.chat = replace(self.chat, id="", draft="")
        self._tell(ChatsChanged())

    def _last(self) -> Turn | None:
        return next(self.tree.upwards(self.chat.leaf_id), None)

    def _question_of(self, turn: Turn) -> Turn | None:
        """What an answer answers: the question before it, or a summary in between."""
        return None if turn.parent_id is None else self.tree.turn(turn.parent_id)

    async def _say(
        self, parent_id: str | None, text: str, attachments: Sequence[Attachment]
    ) -> None:
        chat = await self._begin()
        turn = await self._keeper.run(
            lambda store: store.add_turn(chat.id, parent_id, "user", text, attachments=attachments)
        )
        if self.chat.id == chat.id:
            await self._show(turn)
        self._answer(turn)
        self._tell(ChatsChanged())

    async def _begin(self) -> Chat:
        """The chat that is shown, which has an id from now on."""
        async with self._beginning:
            shown, model, place = self.chat, self._client.model, self._place
            if shown.id:
                return shown
            begun = await self._keeper.run(
                lambda store: store.new_chat(
                    model="" if model is None else model.name,
                    system_prompt=shown.system_prompt,
                    settings=shown.settings,
                )
            )
            if place is self._place:
                self.chat = begun
            return begun

    def _answer(self, asked: Turn) -> None:
        self.answering.start(replace(self.chat, id=asked.chat_id), asked)

    async def _show(self, end: Turn | None = None) -> None:
        """The chat as it is on disk, to this turn where one is given."""
        if end is not None:
            self.chat = replace(self.chat, leaf_id=end.id)
        await self.refresh()
        self._tell(BranchShown())

    def _heard(self, chat_id: str, happening: Happening) -> None:
        """From an answer under way: of another chat only what concerns all."""
        if chat_id == self.chat.id or isinstance(happening, NotKept | KeptAgain):
            self._tell(happening)

    async def _changed(self, chat_id: str, end: Turn | None) -> None:
        if chat_id == self.chat.id:
            await self._show(end)
        self._tell(ChatsChanged())
