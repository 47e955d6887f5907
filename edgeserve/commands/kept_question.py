"""A question of `edgeserve run` that is kept among the chats, which `edgeserve chat` shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from edgeserve.chats.messages import dropped_before, messages_of
from edgeserve.chats.records import Chat, Generation, Turn, TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.errors import ChatsError, EdgeServeError
from edgeserve.types import Message, RequestOutput

_PAUSE_S = 0.5


class KeptQuestion:
    """The newest turn of `chat` and its answer, which is on disk at most half a second later.

    Where it cannot be written the answer still comes, and `warn` hears why. `clock` gives seconds.
    """

    def __init__(
        self,
        store: ChatStore,
        chat: Chat,
        text: str,
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ChatsError."""
        self._store = store
        self._chat = chat
        self._warn = warn
        self._clock = clock
        branch = store.branch(chat.leaf_id)
        self._dropped = dropped_before(branch)
        self._asked = store.add_turn(chat.id, chat.leaf_id, "user", text)
        self._branch = [*branch, self._asked]
        self._answer: Turn | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._written_at = clock()

    @property
    def messages(self) -> Sequence[Message]:
        return messages_of(self._branch, self._chat.system_prompt, self._dropped)

    def came(self, text: str, reasoning: str) -> None:
        """More of the answer."""
        self._text.append(text)
        self._reasoning.append(reasoning)
        if self._answer is None or self._clock() - self._written_at >= _PAUSE_S:
            self._written_at = self._clock()
            self._guarded(self._write)

    def ended(
        self, output: RequestOutput, model: str, fingerprint: str, settings: Mapping[str, object]
    ) -> None:
        answer, usage, timings = output.outputs[0], output.usage, output.timings
        generation = Generation(
            model=model,
            fingerprint=fingerprint,
            settings=dict(settings),
            system_prompt=self._chat.system_prompt,
            seed=answer.seed,
            token_ids=answer.token_ids,
            finish_reason=answer.finish_reason or "",
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            answer_tokens=usage.completion_tokens,
            reasoning_tokens=answer.num_reasoning_tokens,
            first_token_ms=timings.first_token_ms,
            tokens_per_s=timings.decode_tokens_per_s,
            miss="" if output.prefix_miss is None else str(output.prefix_miss),
            dropped=self._dropped,
        )
        self._guarded(
            lambda: self._finish(TurnState.COMPLETE, answer.text, answer.reasoning, generation)
        )
        self._guarded(lambda: self._store.remember_model(model))

    def broken_off(self, error: BaseException) -> None:
        """By Ctrl-C, or because it failed."""
        failed = isinstance(error, EdgeServeError)
        state = TurnState.FAILED if failed else TurnState.STOPPED
        said = str(error) if failed else ""
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        self._guarded(lambda: self._finish(state, text, reasoning, None, said))

    def _write(self) -> None:
        answer = self._begun()
        self._store.write(answer.id, "".join(self._text), "".join(self._reasoning))

    def _finish(
        self,
        state: TurnState,
        text: str,
        reasoning: str,
        generation: Generation | None,
        error: str = "",
    ) -> None:
        answer = self._begun()
        self._store.finish(
            answer.id, state, text=text, reasoning=reasoning, generation=generation, error=error
        )

    def _begun(self) -> Turn:
        if self._answer is None:
            self._answer = self._store.add_turn(
                self._chat.id, self._asked.id, "assistant", state=TurnState.STREAMING
            )
        return self._answer

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except ChatsError as error:
            self._warn(f"not kept: {error}")
            self._guarded = _not_again  # one line is enough


def _not_again(work: Callable[[], object]) -> None:
    with suppress(ChatsError):
        work()
