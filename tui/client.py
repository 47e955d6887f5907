"""Who answers: the seam between the terminal chat and an engine, in this process or behind a URL.

Values and a Protocol; local_client.py and http_client.py are its two implementations.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from edgeserve.frozen import frozen

if TYPE_CHECKING:
    from edgeserve.types import Message, SamplingDefaults

HERE = "this machine"
"""Where it computes, of a client whose engine is in this process."""

FinishReason = Literal["stop", "length", "stopped"]
"""By itself, for want of room or at `max_tokens`, or because somebody stopped it."""


# --- models --------------------------------------------------------------------------------------


@frozen
class OfferedModel:
    """A model that may be chosen. `here` says whether it needs no download.

    `fits` is None where nobody knows, and `tokens_per_s` what this machine should reach with it.
    `owner` names another program whose file it is. `note` says why it cannot be run, or what else
    matters.
    """

    name: str
    title: str
    here: bool
    size_bytes: int | None = None
    fits: bool | None = None
    tokens_per_s: float | None = None
    owner: str = ""
    license: str = ""
    note: str = ""


@frozen
class LoadProgress:
    """How far a model is: bytes of `total_bytes`, which is None where it is not known. `label` says
    what is being done: a file that comes, one that is checked, waiting for another process."""

    stage: Literal["download", "load"]
    done_bytes: int
    total_bytes: int | None
    label: str = ""


@frozen
class ModelInUse:
    """The model that answers. `context_tokens` is what prompt and answer may have together, None
    where the other side does not say; `note` why it is less than the model was trained for.
    `fingerprint` is equal where the files are. `thinks` says whether it can reason first.
    `sampling` stands in for settings that are left to it, None where the other side does not say.
    """

    name: str
    context_tokens: int | None
    has_chat_template: bool = True
    thinks: bool = False
    fingerprint: str = ""
    note: str = ""
    sampling: SamplingDefaults | None = None


# --- what is asked -------------------------------------------------------------------------------


@frozen(kw_only=True)
class ChatSettings:
    """How to answer in one chat; None leaves it to the model. `thinking_budget` is in tokens, and
    0 means no reasoning at all."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    thinking: bool | None = None
    thinking_budget: int | None = None


@frozen
class Question:
    """One turn to be answered. `continues` the last message, which is an assistant's.

    `alternatives` asks for so many likely tokens beside each that was chosen.
    """

    messages: Sequence[Message]
    settings: ChatSettings = ChatSettings()
    continues: bool = False
    alternatives: int = 0


# --- what comes ----------------------------------------------------------------------------------


@frozen
class PromptReading:
    """How far the prompt is read, in tokens; `cached` of `total` need no reading. `seconds_left`
    is None until there is something to tell it from."""

    total: int
    cached: int
    done: int
    seconds_left: float | None = None


@frozen
class TokenFact:
    """A token of the answer: its text, its probability (0 to 1), the likeliest with theirs, and
    whether a draft had guessed it."""

    text: str
    probability: float | None = None
    alternatives: tuple[tuple[str, float], ...] = ()
    drafted: bool = False


@frozen
class AnswerPiece:
    """New text of the answer, or of the reasoning before it. `tokens` came with it, where known;
    their texts need not add up to `text`, which holds back half characters."""

    text: str
    is_reasoning: bool = False
    tokens: tuple[TokenFact, ...] = ()


@frozen
class AnswerEnd:
    """The last event. Counts are of tokens, None where the other side does not say.

    `miss` says in words why no more of the prompt was cached. `token_ids`, `seed` and the model's
    fingerprint are what a replay compares.
    """

    finish_reason: FinishReason
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    answer_tokens: int | None = None
    reasoning_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    first_token_ms: float | None = None
    tokens_per_s: float | None = None
    seed: int | None = None
    token_ids: tuple[int, ...] = ()
    miss: str = ""


AnswerEvent = PromptReading | AnswerPiece | AnswerEnd


@frozen
class PromptSize:
    """What a question costs: its tokens, those of them that are cached, and the seconds that
    reading the others should take. None where nobody knows."""

    tokens: int
    cached: int | None = None
    seconds: float | None = None


@frozen
class EngineFigures:
    """For the cockpit. `occupancy` is the held share of the KV blocks, 0 to 1; `hit_tokens` of
    `prompt_tokens` were found in memory or on disk since the start."""

    occupancy: float
    running: int
    waiting: int
    prompt_tokens: int
    hit_tokens: int
    disk_hit_tokens: int
    memory_bytes: int | None = None


# --- who answers ---------------------------------------------------------------------------------


class Answer(Protocol):
    """An answer under way. Iterate once; it ends with an AnswerEnd, or raises EdgeServeError."""

    def __aiter__(self) -> AsyncIterator[AnswerEvent]: ...

    async def stop(self) -> None:
        """Ends it within a step; what has come so far stays, and an AnswerEnd "stopped" follows.
        Twice is fine."""
        ...


class ChatClient(Protocol):
    """An engine in this process, or a server. One model at a time answers."""

    @property
    def place(self) -> str:
        """Where it computes, in words: "this machine", or the address."""
        ...

    @property
    def model(self) -> ModelInUse | None:
        """What answers now; None until `use` has returned once."""
        ...

    async def models(self) -> Sequence[OfferedModel]:
        """What may be given to `use`: models here first, then those that may be fetched."""
        ...

    def accept_license(self, name: str) -> None:
        """Somebody read a model's terms and accepts them: `use` may fetch it. Without, it raises
        LicenseNotAcceptedError, which names them."""
        ...

    async def use(self, name: str, progress: Callable[[LoadProgress], None]) -> ModelInUse:
        """Loads a model, fetching it where it must, and lets go of the one before. Cancelling the
        task stops it; a download is resumed the next time.

        `progress` is called on the event loop. Raises EdgeServeError; the model before stays then.
        """
        ...

    def ask(self, question: Question) -> Answer:
        """Begins an answer. Errors come from the iteration."""
        ...

    async def size(self, question: Question) -> PromptSize | None:
        """What the question would cost now; None where the other side cannot tell."""
        ...

    async def figures(self) -> EngineFigures | None:
        """None where the other side does not say."""
        ...

    async def aclose(self) -> None:
        """Ends what runs and gives memory back. Twice is fine."""
        ...
