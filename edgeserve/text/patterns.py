"""Whether a regular expression can be followed token by token: before a library is asked.

llguidance takes any count of repetitions, and then minutes for a mask; the bounds are ours.
"""

from __future__ import annotations

import re

_MAX_COPIES = 10_000
_MAX_NESTING = 100
_MAX_CHARS = 20_000
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")


def refused_pattern(pattern: str) -> str | None:
    """Why a pattern is refused, None where nothing speaks against it. What is no regular
    expression at all the library says."""
    if len(pattern) > _MAX_CHARS:
        return f"is {len(pattern):,} characters long; at most {_MAX_CHARS:,} are read"
    sizes = [0]  # copies of characters that each open group stands for
    last = at = 0
    while at < len(pattern):
        char = pattern[at]
        if char in "([":
            at += 1
            if char == "[":
                at, last = _class_end(pattern, at), 1
                sizes[-1] += last
            else:
                sizes.append(0)
                if len(sizes) > _MAX_NESTING:
                    return f"has groups nested deeper than {_MAX_NESTING}"
            continue
        if char == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif char == "{" and (count := _COUNT.match(pattern, at)):
            times = max(int(digits[:9]) for digits in count.groups() if digits)
            sizes[-1] += last * max(0, times - 1)
            last *= times
            at = count.end() - 1
        elif char not in "*+?|^$":
            at += char == "\\"
            if at == len(pattern):  # llguidance takes it as no pattern at all
                return "ends in a backslash, which must have something to escape"
            last = 1
            sizes[-1] += 1
        if sizes[-1] > _MAX_COPIES:
            return f"repeats more than {_MAX_COPIES:,} characters"
        at += 1
    return None


def _class_end(pattern: str, at: int) -> int:
    """Past the bracket that closes the class whose first character is at `at`."""
    depth = 1
    at += pattern.startswith("^", at)
    at += pattern.startswith("]", at)
    while at < len(pattern) and depth > 0:
        char = pattern[at]
        at += 2 if char == "\\" else 1
        depth += (char == "[") - (char == "]")
    return at
