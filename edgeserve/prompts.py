"""What callers give as prompts, one or many, as lists. Faults are named by their place."""

from __future__ import annotations

import operator
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import SupportsIndex, cast

from edgeserve.errors import EdgeServeError, InvalidRequestError

Prompt = str | Mapping[str, object]
"""A raw prompt: text, {"prompt": text} or {"prompt_token_ids": ids}."""

Embeddable = str | Sequence[int]
"""What becomes one vector: a text, or token ids."""


def prompts_of(prompts: object) -> list[Prompt]:
    """One prompt or many; each is looked at when its turn comes."""
    if isinstance(prompts, (str, Mapping)):
        return [cast(Prompt, prompts)]
    if not isinstance(prompts, Iterable) or isinstance(prompts, (bytes, bytearray)):
        raise InvalidRequestError("prompts", cast(object, prompts), "a prompt, or a list of them")
    return list(cast(Iterable[Prompt], prompts))


def embeddables_of(inputs: object) -> list[object]:
    """One text or many, or token ids; each is looked at when its turn comes."""
    if isinstance(inputs, str | Mapping):
        return [cast(object, inputs)]
    if not isinstance(inputs, Iterable) or isinstance(inputs, (bytes, bytearray)):
        allowed = "a text, or a list of texts or of lists of token ids"
        raise InvalidRequestError("inputs", cast(object, inputs), allowed)
    found = list(cast(Iterable[object], inputs))
    if found and isinstance(found[0], SupportsIndex) and not isinstance(found[0], Iterable):
        return [found]
    return found


@contextmanager
def naming_prompt(index: int, of: str = "prompts") -> Generator[None]:
    """Says which of many prompts an error is about."""
    try:
        yield
    except EdgeServeError as error:
        error.add_note(f"in {of}[{index}]")
        raise


def token_ids_of(ids: object) -> list[int]:
    """A prompt's ids. Raises InvalidRequestError with the place of what is none."""
    if not isinstance(ids, Iterable) or isinstance(ids, (str, bytes, Mapping)):
        raise InvalidRequestError("prompt_token_ids", cast(object, ids), "a list of token ids")
    found = list(cast(Iterable[object], ids))
    # One of each kind tells of all: of a long list there are a hundred thousand, and one kind.
    examples = dict(zip(map(type, found), found, strict=True))
    fits = {kind: _is_index(example) for kind, example in examples.items()}
    if not all(fits.values()):
        index = next(at for at, token_id in enumerate(found) if not fits[type(token_id)])
        raise InvalidRequestError(f"prompt_token_ids[{index}]", found[index], "an integer")
    return list(map(operator.index, cast("list[SupportsIndex]", found)))


def _is_index(value: object) -> bool:
    # An array of several numbers has an index too, if only to refuse it.
    return isinstance(value, SupportsIndex) and not isinstance(value, bool | Iterable)
