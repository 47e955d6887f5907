"""Turns of a chat asked again, and compared with what was answered then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TextIO

from edgeserve.chats.messages import messages_of
from edgeserve.chats.records import Chat, Conversation, Generation, Turn, TurnState
from edgeserve.chats.tree import TurnTree
from edgeserve.errors import EdgeServeError
from edgeserve.frozen import frozen
from edgeserve.tui.asked import settings_of
from edgeserve.tui.client import AnswerEnd, AnswerPiece, ChatClient, Question
from edgeserve.tui.terminal_text import shown_line

_SHOWN = 60
"""Characters of both texts, where they differ."""


@frozen
class _Said:
    text: str
    reasoning: str
    token_ids: tuple[int, ...]


class Replayer:
    """Writes a line for each answer to `out`. With `model` that one answers, whatever answered."""

    def __init__(self, client: ChatClient, out: TextIO, model: str | None) -> None:
        self._client = client
        self._out = out
        self._model = model
        self._num_identical = 0
        self._num_different = 0
        self._num_left_out = 0
        self._num_tokens = 0

    @property
    def exit_code(self) -> int:
        """1 where something differs, or nothing could be compared."""
        return 0 if self._num_identical and not self._num_different else 1

    def summary(self) -> str:
        left_out = f"; {self._num_left_out} left out" if self._num_left_out else ""
        if self._num_different:
            total = self._num_identical + self._num_different
            return f"{self._num_different} of {total} answers differ{left_out}"
        if not self._num_identical:
            return f"nothing could be compared{left_out}"
        return f"identical, {self._num_tokens:,} tokens{left_out}"

    async def replay(self, conversation: Conversation) -> None:
        """All answers of all branches, in the order in which they were given."""
        tree = TurnTree(conversation.turns)
        for number, turn in enumerate(tree.turns, 1):
            if turn.role != "assistant":
                continue
            name = f"turn {number}"
            try:
                said = await self._compared(conversation.chat, tree, turn)
            except EdgeServeError as error:
                said = self._left_out(str(error))
            print(f"{name}: {said}", file=self._out, flush=True)

    async def _compared(self, chat: Chat, tree: TurnTree, turn: Turn) -> str:
        made = turn.generation
        if made is None or made.seed is None:
            return self._left_out("how it was made is not known: no seed")
        if turn.state is not TurnState.COMPLETE and not made.token_ids:
            return self._left_out("it broke off, and its tokens are not known")
        name = self._model or made.model
        if self._client.model is None or self._client.model.name != name:
            await self._client.use(name, lambda _: None)
        model = self._client.model
        fingerprint = "" if model is None else model.fingerprint
        if self._model is None and made.fingerprint and fingerprint != made.fingerprint:
            return self._left_out(f"{name} is another file than the one that answered then")
        question = self._question(chat, tree, turn, made)
        size = await self._client.size(question)
        then, now = made.prompt_tokens, None if size is None else size.tokens
        if self._model is None and None not in (then, now) and then != now:
            return self._left_out(
                f"its prompt had {then:,} tokens and has {now:,} now: the answer was continued "
                "after a cut, or the chat's template is another"
            )
        return self._verdict(turn, made, await self._said(question))

    def _question(self, chat: Chat, tree: TurnTree, turn: Turn, made: Generation) -> Question:
        messages = messages_of(tree.branch(turn.parent_id), made.system_prompt, made.dropped)
        settings = settings_of(replace(chat, settings=made.settings))
        settings = replace(settings, seed=made.seed)
        if made.token_ids:  # as many as came then, however much room there is now
            settings = replace(settings, max_tokens=len(made.token_ids))
        return Question(messages, settings)

    async def _said(self, question: Question) -> _Said:
        text, reasoning = list[str](), list[str]()
        end: AnswerEnd | None = None
        async for event in self._client.ask(question):
            match event:
                case AnswerPiece():
                    (reasoning if event.is_reasoning else text).append(event.text)
                case AnswerEnd():
                    end = event
                case _:
                    pass
        ids = () if end is None else end.token_ids
        return _Said("".join(text), "".join(reasoning), ids)

    def _verdict(self, turn: Turn, made: Generation, said: _Said) -> str:
        if made.token_ids and said.token_ids:
            same = made.token_ids == said.token_ids
        else:
            same = (turn.text, turn.reasoning) == (said.text, said.reasoning)
        num_tokens = len(made.token_ids) or made.answer_tokens or 0
        if same:
            self._num_identical += 1
            self._num_tokens += num_tokens
            return f"identical, {num_tokens:,} tokens"
        self._num_different += 1
        before, now = turn.reasoning + turn.text, said.reasoning + said.text
        at = _first_difference(before, now)
        where = f"character {at + 1:,}"
        if made.token_ids and said.token_ids:
            where = f"token {_first_difference(made.token_ids, said.token_ids) + 1:,}"
        return f"differs from {where} on: then {_shown(before, at)}, now {_shown(now, at)}"

    def _left_out(self, why: str) -> str:
        self._num_left_out += 1
        return f"left out: {why}"


def _first_difference(a: Sequence[object], b: Sequence[object]) -> int:
    both = zip(a, b, strict=False)
    return next((at for at, (x, y) in enumerate(both) if x != y), min(len(a), len(b)))


def _shown(text: str, at: int) -> str:
    if at >= len(text):
        return "the end"
    return repr(shown_line(text[at : at + _SHOWN]))
