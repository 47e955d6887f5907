"""How long a prompt will still be read, from how long its parts took so far."""

from __future__ import annotations

_FIRST_STEPS = 8
"""So few tell the mean, and not yet how steps get longer."""


class ReadingPace:
    """Fits seconds = a · tokens + b · (tokens before each of them), what attention costs, to the
    steps so far (least squares, neither below 0). Takes reports in order."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        self._num_steps = 0
        self._tokens = 0.0  # of the normal equations: sums over steps of products
        self._mixed = 0.0
        self._keys = 0.0
        self._tokens_s = 0.0
        self._keys_s = 0.0

    def note(self, done: int, seconds: float) -> None:
        """`seconds` from the beginning so many tokens are done. The first report only begins."""
        if self._last is not None:
            before, at = self._last
            tokens, keys = done - before, _keys(before, done)
            if tokens <= 0:
                return
            self._num_steps += 1
            self._tokens += tokens * tokens
            self._mixed += tokens * keys
            self._keys += keys * keys
            self._tokens_s += tokens * (seconds - at)
            self._keys_s += keys * (seconds - at)
        self._last = (done, seconds)

    def seconds_left(self, total: int) -> float | None:
        """To the end of `total` tokens; None before a step has told."""
        if self._last is None or self._num_steps == 0:
            return None
        done = self._last[0]
        per_token, per_key = self._fit()
        return per_token * (total - done) + per_key * _keys(done, total)

    def _fit(self) -> tuple[float, float]:
        determinant = self._tokens * self._keys - self._mixed * self._mixed
        if self._num_steps > _FIRST_STEPS and determinant > 1e-9 * self._tokens * self._keys:
            per_token = self._tokens_s * self._keys - self._keys_s * self._mixed
            per_key = self._keys_s * self._tokens - self._tokens_s * self._mixed
            if per_token >= 0.0 and per_key >= 0.0:
                return per_token / determinant, per_key / determinant
            if per_token < 0.0:
                return 0.0, self._keys_s / self._keys
        return self._tokens_s / self._tokens, 0.0


def _keys(first: int, end: int) -> float:
    """Tokens before each of those from `first` to `end`, all together."""
    return (end * end - first * first) / 2
