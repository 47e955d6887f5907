"""What an answer is held to, compiled for one model's tokens: llguidance over the GGUF's own bytes.

Everything that cannot be enforced is refused here, before a request is queued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING

from edgeserve.errors import ConstraintError
from edgeserve.frozen import frozen
from edgeserve.text.tokenizer import Tokenizer
from edgeserve.types import Constraint, Relaxed

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from edgeserve.text.matcher import Matcher

_NUM_KEPT = 32
_SLICES = [r'[^"\\\x00-\x1F\x7F]{1,30}']
"""Tokens for which one look answers within a text: nearly all. Of llguidance's own four slices this
one saves the time (masks of texts with a short `maxLength` but a half), and building it a third."""
_SPECIAL_MARK = b"\xff"  # llguidance's: no text holds this byte, so no grammar of text matches it


@frozen
class CompiledConstraint:
    """A constraint that can be followed, and what of it was `relaxed`. Safe for several threads."""

    constraint: Constraint
    relaxed: tuple[Relaxed, ...]
    start: Matcher

    def matcher(self) -> Matcher:
        """At its beginning, for one sequence."""
        return self.start.fork()


class ConstraintCompiler:
    """Compiles constraints for one vocabulary. Safe for several threads.

    llguidance's view of the vocabulary is built when it is first needed, or by `prepare`: about a
    second for a quarter of a million tokens, during which Python stands still. The last constraints
    are kept. `used` is told when the first is compiled.
    """

    def __init__(self, tokenizer: Tokenizer, used: Callable[[], None] | None = None) -> None:
        self._vocabulary = _LateVocabulary(tokenizer, used)
        # Not of a method of ours: what keeps itself alive stays long after its model is closed.
        self.compile = lru_cache(maxsize=_NUM_KEPT)(partial(_compile, self._vocabulary))
        """Of a Constraint, a CompiledConstraint. Raises ConstraintError."""

    def prepare(self) -> LLTokenizer:
        """Builds what every constraint needs. Raises ConstraintError for a model without an end."""
        return self._vocabulary.built()


class _LateVocabulary:
    """Builds it once."""

    def __init__(self, tokenizer: Tokenizer, used: Callable[[], None] | None) -> None:
        self.tokenizer = tokenizer
        self._used = used
        self._building = Lock()
        self._built: LLTokenizer | None = None

    def use(self) -> LLTokenizer:
        """For a constraint."""
        used, self._used = self._used, None
        if used is not None:
            used()
        return self.built()

    def built(self) -> LLTokenizer:
        with self._building:
            if self._built is None:
                self._built = _build(self.tokenizer)
            return self._built


def _compile(vocabulary: _LateVocabulary, constraint: Constraint) -> CompiledConstraint:
    from edgeserve.text.grammars import grammar_of  # with llguidance, which takes long to load
    from edgeserve.text.matcher import first_matcher

    grammar, relaxed = grammar_of(constraint)
    end_ids = vocabulary.tokenizer.stop_ids
    start = first_matcher(constraint.kind, vocabulary.use(), grammar, end_ids)
    return CompiledConstraint(constraint, relaxed, start)


def _build(tokenizer: Tokenizer) -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    if not tokenizer.stop_ids:
        reason = "this model has no token that ends an answer, which every constraint needs"
        raise ConstraintError("constraint", reason)
    wrapper = TokenizerWrapper(_Vocabulary(tokenizer))
    return LLTokenizer(wrapper, tokenizer.vocab_size, sorted(tokenizer.stop_ids), _SLICES)


class _Vocabulary:
    """A tokenizer as llguidance reads one. Control tokens are marked: they are no text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = min(tokenizer.stop_ids)
        self.bos_token_id = tokenizer.bos_id
        self.tokens = _marked(tokenizer)
        self.special_token_ids: Sequence[int] = ()

    def __call__(self, text: str | bytes) -> list[int]:
        """How forced text is cut into tokens: as it would be in the middle of an answer."""
        plain = text if isinstance(text, str) else text.decode(errors="replace")
        return self._tokenizer.encode_continuation(plain)


def _marked(tokenizer: Tokenizer) -> list[bytes]:
    found = [b"" if token == _SPECIAL_MARK else token for token in tokenizer.all_bytes()]
    for token_id in tokenizer.control_ids():
        found[token_id] = _SPECIAL_MARK + found[token_id]
    return found
