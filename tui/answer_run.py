"""One answer under way: from a client's events to a turn that is on disk and can be stopped.

Knows one turn, no branch and no screen. What has come is written at most every `pause_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from edgeserve.chats.records import Generation, Turn, TurnState
from edgeserve.errors import AnswerFailedError, ChatNotFoundError, ChatsError, EdgeServeError
from edgeserve.tui.client import (
    Answer,
    AnswerEnd,
    AnswerPiece,
    ChatClient,
    PromptReading,
    Question,
    TokenFact,
)
from edgeserve.tui.happenings import Happening, KeptAgain, NotKept, PromptRead, TextCame
from edgeserve.tui.keeper import ChatKeeper

_PAUSE_S = 0.5


class AnswerRun:
    """Streams into `turn`, which is STREAMING in the store and may have text already.

    `error` is why it failed, `num_events` how often anything came. `asked_for` says how the turn
    came about but for what the end tells.
    """

    def __init__(
        self,
        client: ChatClient,
        keeper: ChatKeeper,
        turn: Turn,
        asked_for: Generation,
        tell: Callable[[Happening], None],
        *,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self.turn = turn
        self.reading: PromptReading | None = None
        self.end: AnswerEnd | None = None
        self.error: EdgeServeError | None = None
        self.tokens: list[TokenFact] = []
        self.num_events = 0
        self._client = client
        self._keeper = keeper
        self._asked_for = asked_for
        self._tell = tell
        self._pause_s = pause_s
        self._text = [turn.text]
        self._reasoning = [turn.reasoning]
        self._answer: Answer | None = None
        self._is_stopped = False
        self._dirty = asyncio.Event()
        self._is_behind = False

    @property
    def text(self) -> str:
        return _joined(self._text)

    @property
    def reasoning(self) -> str:
        return _joined(self._reasoning)

    @property
    def has_text(self) -> bool:
        """Whether anything has come."""
        return any(self._text) or any(self._reasoning)

    async def stop(self) -> None:
        """Within a step; what has come stays."""
        self._is_stopped = True
        if self._answer is not None:
            await self._answer.stop()

    async def run(self, question: Question) -> None:
        """Returns once the answer has ended and is kept, or is left to `keep`."""
        writer = asyncio.create_task(self._write_on())
        try:
            self._answer = self._client.ask(question)
            if self._is_stopped:
                await self._answer.stop()
            async for event in self._answer:
                self._take(event)
        except EdgeServeError as error:
            self.error = error
        except Exception as error:  # whoever waits for the end has to hear of it
            self.error = AnswerFailedError(error)
            await self._give_up()
        finally:
            writer.cancel()
            with suppress(asyncio.CancelledError):
                await writer
        self.turn = self._ended()

    def fail(self, error: EdgeServeError) -> None:
        """Ends what did not begin to run."""
        self.error = error
        self.turn = self._ended()

    async def _give_up(self) -> None:
        """Nobody takes what the client would still send."""
        if self._answer is not None:
            with suppress(Exception):  # it may be the client's mistake, and its end was told
                await self._answer.stop()

    async def keep(self) -> None:
        """Writes the end. Raises ChatsError where that fails; it may be called again."""
        turn = self.turn
        self.turn = await self._keeper.run(
            lambda store: store.finish(
                turn.id,
                turn.state,
                text=turn.text,
                reasoning=turn.reasoning,
                generation=turn.generation,
                error=turn.error,
            )
        )

    # --- events ---------------------------------------------------------------------------------

    def _take(self, event: PromptReading | AnswerPiece | AnswerEnd) -> None:
        self.num_events += 1
        match event:
            case PromptReading():
                self.reading = event
                self._tell(PromptRead(event))
            case AnswerPiece():
                (self._reasoning if event.is_reasoning else self._text).append(event.text)
                self.tokens += event.tokens
                self._dirty.set()
                came = TextCame(self.turn.id, event.text, event.is_reasoning, event.tokens)
                self._tell(came)
            case AnswerEnd():
                self.end = event

    def _ended(self) -> Turn:
        end = self.end
        if end is None:
            state = TurnState.FAILED if self.error else TurnState.INTERRUPTED
            generation = self._asked_for
        else:
            state = TurnState.STOPPED if end.finish_reason == "stopped" else TurnState.COMPLETE
            generation = _with_end(self._asked_for, end)
        return replace(
            self.turn,
            text=self.text,
            reasoning=self.reasoning,
            state=state,
            generation=generation,
            error=str(self.error or ""),
        )

    # --- disk -----------------------------------------------------------------------------------

    async def _write_on(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            text, reasoning = self.text, self.reasoning
            try:
                await asyncio.shield(
                    self._keeper.run(lambda store: store.write(self.turn.id, text, reasoning))  # noqa: B023
                )
            except ChatNotFoundError:
                pass  # the chat was purged by another window: `keep` will say so
            except ChatsError as error:
                self._dirty.set()
                if not self._is_behind:
                    self._tell(NotKept(error))
                self._is_behind = True
            else:
                if self._is_behind:
                    self._tell(KeptAgain())
                self._is_behind = False
            await asyncio.sleep(self._pause_s)


def _joined(parts: list[str]) -> str:
    """Joins in place: what has been joined once is one part from then on."""
    if len(parts) > 1:
        parts[:] = ["".join(parts)]
    return parts[0]


def _with_end(generation: Generation, end: AnswerEnd) -> Generation:
    return replace(
        generation,
        seed=end.seed,
        token_ids=end.token_ids,
        finish_reason=end.finish_reason,
        prompt_tokens=end.prompt_tokens,
        cached_tokens=end.cached_tokens,
        answer_tokens=end.answer_tokens,
        reasoning_tokens=end.reasoning_tokens,
        first_token_ms=end.first_token_ms,
        tokens_per_s=end.tokens_per_s,
        miss=end.miss,
    )
