"""Why a prompt had to be read again, in plain words that name the message: a line of the log.

Names places, never texts. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from edgeserve.types import Message, PrefixMiss, RequestOutput

_WORTH_SAYING = 256  # tokens that had to be computed once more
_COMMON = 16  # tokens that any two prompts of a template may begin with
_SPEAKERS = {
    "system": "a system message",
    "user": "a user's",
    "assistant": "an answer",
    "tool": "a tool's result",
}


def miss_in_words(
    output: RequestOutput | None,
    messages: Sequence[Message],
    text_of: Callable[[Sequence[int]], str],
) -> str | None:
    """None where little was lost, or nothing was alike. `messages` are those of the prompt,
    `text_of` gives the text of tokens that begin it, control tokens included."""
    miss = None if output is None else output.prefix_miss
    if output is None or miss is None or miss.num_lost < _WORTH_SAYING or miss.position < _COMMON:
        return None
    usage = output.usage
    found = f"{usage.cached_tokens:,} of {usage.prompt_tokens:,} prompt tokens found in the cache"
    if miss.reason == "evicted":
        return (
            f"{found}; {miss.num_lost:,} more were there before and are gone: memory was needed "
            "for others (--kv-cache-memory gives it more)"
        )
    place = _place(output, miss, messages, text_of)
    return (
        f"{found}; {miss.num_lost:,} were read again because, from token {miss.position:,} on, "
        f"this prompt is another than the one before: it changed in {place}. What changes with "
        "every request costs least at the end"
    )


def _place(
    output: RequestOutput,
    miss: PrefixMiss,
    messages: Sequence[Message],
    text_of: Callable[[Sequence[int]], str],
) -> str:
    """The message that the first other token is of, and the line of it."""
    prompt, ids = output.prompt or "", output.prompt_token_ids
    not_rendered = len(text_of(ids)) - len(prompt)  # a BOS that the template does not write
    at = len(text_of(ids[: miss.position])) - not_rendered
    end = 0
    for number, message in enumerate(messages, 1):
        said = _text(message)
        begin = prompt.find(said, end) if said else -1
        if begin < 0:  # a template may leave out, or rewrite, what it is given
            continue
        if at < begin:
            return f"what precedes {_named(number, messages)}: tools, calls, or roles"
        end = begin + len(said)
        if at < end:
            line = prompt.count("\n", begin, at) + 1
            return f"{_named(number, messages)}, line {line:,}"
    return "what follows the last message"


def _named(number: int, messages: Sequence[Message]) -> str:
    role = str(cast("dict[str, object]", messages[number - 1])["role"])
    return f"message {number:,} of {len(messages):,} ({_SPEAKERS.get(role, role)})"


def _text(message: Message) -> str:
    """As a template that trims has it."""
    content = cast("dict[str, object]", message).get("content")
    return content.strip() if isinstance(content, str) else ""
