"""What talking to a server ends with."""

from __future__ import annotations

from edgeserve.errors.base import EdgeServeError


class ServerUnreachableError(EdgeServeError):
    """Nothing answers at a URL."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"no server answers at {url} ({reason}); is it running?")


class ServerRefusedError(EdgeServeError):
    """A server answered, but not with what was asked for. `retry_after` is what it said of when to
    come again, in seconds or as a date; empty where it did not."""

    def __init__(self, url: str, status: int, message: str, retry_after: str = "") -> None:
        self.url = url
        self.status = status
        self.message = message
        self.retry_after = retry_after
        hint = ""
        if status in (401, 403):
            hint = "; pass its key with --api-key or --key"
        elif status in (429, 503):
            unit = " seconds" if retry_after.isdecimal() else ""
            hint = f"; wait {retry_after or 'a moment'}{unit}, then ask again"
        super().__init__(f"the server at {url} answered {status}: {message}{hint}")


class EventTooLongError(EdgeServeError):
    """A stream of events has one that does not end."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        super().__init__(f"an event of more than {limit_bytes:,} bytes, which no answer has")


class AnswerBrokenError(EdgeServeError):
    """A server's answer broke off: it went away, failed, or sent what nobody understands."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(
            f"the answer of the server at {url} broke off: {reason}; what came so far is kept. "
            "See whether the server still runs, then ask again or have the answer continued"
        )


class NoAnswerError(EdgeServeError):
    """Every request of a load failed: there is nothing to give figures of."""

    def __init__(self, url: str, num_requests: int, first: str) -> None:
        self.url = url
        self.num_requests = num_requests
        self.first = first
        super().__init__(f"none of {num_requests:,} requests to {url} was answered: {first}")
