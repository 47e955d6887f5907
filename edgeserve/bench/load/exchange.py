"""One request and what came back, as times and counts: what figures are worked out from."""

from __future__ import annotations

from enum import Enum

from edgeserve.frozen import frozen


class FailureKind(str, Enum):
    """How a request went wrong, as a user would sort it."""

    UNREACHABLE = "unreachable"  # no connection
    REFUSED = "refused"  # an HTTP status that is no success; the status is in the detail
    TIMEOUT = "timeout"
    BROKEN = "broken"  # the connection went away before the stream's end
    MALFORMED = "malformed"  # an event that is no chunk of a chat completion
    ERROR_EVENT = "error event"  # the server said in the stream that it failed
    UNFINISHED = "unfinished"  # the stream ended without a finish_reason or [DONE]


@frozen
class Failure:
    """The kind, and what the server or the connection said."""

    kind: FailureKind
    detail: str

    @property
    def label(self) -> str:
        """What is counted together: a refusal by its status."""
        return (
            f"{self.kind.value} {self.detail.split()[0]}" if self._has_status else self.kind.value
        )

    @property
    def _has_status(self) -> bool:
        return self.kind is FailureKind.REFUSED and self.detail[:3].isdigit()


@frozen
class Usage:
    """Tokens as the server counted them. `cached` is None where it does not say."""

    prompt: int
    completion: int
    cached: int | None = None


@frozen
class Exchange:
    """Times are one clock's, in seconds. `pieces` are when events with text came.

    `due` is when it was to be sent, `sent` when it was.
    """

    chat: int
    turn: int
    due: float
    sent: float
    ended: float
    pieces: tuple[float, ...] = ()
    usage: Usage | None = None
    finish_reason: str | None = None
    failure: Failure | None = None

    @property
    def num_tokens(self) -> int:
        """Of the answer. A server that does not count is taken to send a token an event."""
        return len(self.pieces) if self.usage is None else self.usage.completion

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first text; None where there was none."""
        return self.pieces[0] - self.sent if self.pieces else None

    @property
    def tpot_s(self) -> float | None:
        """Seconds a token after the first; None for an answer of one token or none."""
        if self.num_tokens < 2 or len(self.pieces) < 2:
            return None
        return (self.pieces[-1] - self.pieces[0]) / (self.num_tokens - 1)

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """Between one event with text and the next: what a reader sees as a stall."""
        return tuple(b - a for a, b in zip(self.pieces, self.pieces[1:], strict=False))
