"""Why a prompt was not found in the cache: where it differs from the likest one before it."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence

from edgeserve.frozen import frozen
from edgeserve.types import PrefixMiss

_MOST_TIMELINES = 64
_MOST_TOKENS = 1 << 20  # of all together: 4 MB
_SHOWN_TOKENS = 8
_PROBE_TOKENS = 24
_PROBES_AT = (64, 256, 1024, 4096)  # tokens after two prompts begin to differ


@frozen
class Likeness:
    """How many tokens two prompts begin with alike, and how each goes on, if it does. `num_after`
    tokens follow in the earlier one, if this is the same conversation with something changed."""

    num_alike: int
    earlier: tuple[int, ...]
    now: tuple[int, ...]
    num_after: int = 0


class RecentPrompts:
    """The latest requests' tokens, prompts and answers, bounded in number and size."""

    def __init__(self) -> None:
        self._timelines: OrderedDict[str, array[int]] = OrderedDict()
        self._num_tokens = 0

    def remember(self, request_id: str, token_ids: Sequence[int]) -> None:
        """In place of what was known of this request; the oldest others are forgotten."""
        self.forget(request_id)
        self._timelines[request_id] = array("i", token_ids)
        self._num_tokens += len(token_ids)
        while self._num_tokens > _MOST_TOKENS or len(self._timelines) > _MOST_TIMELINES:
            self.forget(next(iter(self._timelines)))

    def forget(self, request_id: str) -> None:
        gone = self._timelines.pop(request_id, None)
        self._num_tokens -= len(gone or ())

    def likest(self, token_ids: Sequence[int]) -> Likeness | None:
        """The one that begins most like this prompt; of equals the latest. None of none."""
        now = array("i", token_ids)
        best, longest = None, -1
        for earlier in reversed(self._timelines.values()):
            alike = _num_alike(earlier, now, longest)
            if alike > longest:
                best, longest = earlier, alike
        if best is None:
            return None
        end = longest + _SHOWN_TOKENS
        after = len(best) - longest if _goes_on_alike(best[longest:], now[longest:]) else 0
        return Likeness(longest, tuple(best[longest:end]), tuple(now[longest:end]), after)


def prefix_miss(
    likeness: Likeness | None,
    *,
    num_prompt: int,
    num_cached: int,
    block_size: int,
    text_of: Callable[[Sequence[int]], str],
) -> PrefixMiss | None:
    """Why no more than `num_cached` tokens were found; None where all that could be were."""
    if likeness is None or likeness.num_alike == 0:
        return None
    alike = likeness.num_alike
    if num_cached > alike:  # of a prompt that is not remembered here: on disk, or long ago
        return None
    findable = min(alike, num_prompt - 1) // block_size * block_size
    if num_cached < findable:
        return PrefixMiss("evicted", num_cached, num_lost=findable - num_cached)
    if not likeness.earlier or not likeness.now:  # one simply goes on where the other ended
        return None
    num_lost = min(num_prompt - alike, likeness.num_after)
    earlier, now = text_of(likeness.earlier), text_of(likeness.now)
    return PrefixMiss("diverged", alike, earlier, now, num_lost)


def _goes_on_alike(earlier: array[int], now: array[int]) -> bool:
    """Whether, after what differs, a piece of the one stands in the other: a line changed, and not
    the conversation."""
    whole, size = now.tobytes(), now.itemsize
    for begin in _PROBES_AT:
        probe = earlier[begin : begin + _PROBE_TOKENS]
        if len(probe) < _PROBE_TOKENS:
            return False
        at = whole.find(probe.tobytes())
        while at >= 0 and at % size:  # within tokens, by chance
            at = whole.find(probe.tobytes(), at + 1)
        if at >= 0:
            return True
    return False


def _num_alike(a: array[int], b: array[int], least: int) -> int:
    """How many tokens both begin with; -1 if not even more than `least`."""
    if least >= 0 and a[: least + 1] != b[: least + 1]:
        return -1
    low, high = max(0, least), min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
