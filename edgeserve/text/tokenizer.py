"""Text to token ids and back, exactly as the reference (llama.cpp) does it.

The one public face of two engines (bpe.py, sentencepiece_model.py): what is special is found
here, what is plain text goes to the engine. Knows nothing of chat templates or streams.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from edgeserve.errors import InvalidRequestError
from edgeserve.text.bpe import BytePairEngine
from edgeserve.text.pretokenizer_styles import PRE_TOKENIZER_STYLES
from edgeserve.text.sentencepiece_model import SentencePieceEngine
from edgeserve.text.special_tokens import SpecialTokens
from edgeserve.text.stop_tokens import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from edgeserve.text.tokenizer_fields import TokenizerFields
from edgeserve.text.vocabulary import Vocabulary, VocabularyDefaults, read_vocabulary
from edgeserve.types import Metadata

_OTHER_MODELS = {
    "bert": "WordPiece",
    "t5": "Unigram",
    "rwkv": "RWKV's greedy trie",
    "plamo2": "PLaMo-2's table",
    "hybriddna": "byte-pair encoding with DNA k-mers",
    "whitespace": "words without spaces",
    "no_vocab": "none at all",
    "none": "none at all",
}


_MOST_SPELT = 8192
"""Tokens whose bytes are kept: texts repeat theirs, and a whole vocabulary would take megabytes."""


class _Engine(Protocol):
    def encode(self, text: str) -> list[int]: ...

    def spelling(self, token: str) -> bytes: ...


class Tokenizer:
    """A model's vocabulary at work. To its users immutable; safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary, engine: _Engine) -> None:
        self._vocabulary = vocabulary
        self._engine = engine
        self._special = SpecialTokens(vocabulary)
        self.vocab_size = len(vocabulary.tokens)
        self.bos_id = vocabulary.bos_id
        self.eos_id = vocabulary.eos_id
        self.eot_id = vocabulary.eot_id
        self.stop_ids = vocabulary.stop_ids
        self.adds_bos = vocabulary.adds_bos
        self.adds_eos = vocabulary.adds_eos
        self.control_texts: Sequence[str] = self._special.control_texts
        self._spelt: dict[int, bytes] = {}

    def encode(
        self,
        text: str,
        *,
        parse_special: bool = False,
        add_special: bool = True,
        guard: str | None = None,
    ) -> list[int]:
        """The ids of `text`, with BOS and EOS where the model asks for them (`add_special`).

        `parse_special` reads control tokens written out in the text as such; user-defined tokens
        always are. `guard` is a character that keeps the control text it stands in from being
        read so (after its first character, say); it is taken out again. Raises
        InvalidRequestError for a lone surrogate.
        """
        vocabulary = self._vocabulary
        _refuse_surrogates(text)
        ids: list[int] = []
        if add_special and vocabulary.adds_bos and vocabulary.bos_id is not None:
            ids.append(vocabulary.bos_id)
        starts = True
        for part in self._special.split(text, parse_special=parse_special, guard=guard):
            if isinstance(part, int):
                ids.append(part)
            else:
                prefix = " " if starts and vocabulary.adds_space_prefix else ""
                ids += self._engine.encode(prefix + part)
            starts = isinstance(part, int)
        if add_special and vocabulary.adds_eos and vocabulary.eos_id is not None:
            ids.append(vocabulary.eos_id)
        return ids

    def encode_continuation(self, text: str) -> list[int]:
        """The ids of plain text that goes on from other text: nothing comes before it."""
        _refuse_surrogates(text)
        ids: list[int] = []
        for part in self._special.split(text, parse_special=False, guard=None):
            ids += [part] if isinstance(part, int) else self._engine.encode(part)
        return ids

    def encode_infill(self, prefix: str, suffix: str, middle: str = "") -> list[int] | None:
        """What asks for the text between `prefix` and `suffix` that begins with `middle`; None
        for a model that fills nothing in. Control tokens in the texts are text."""
        ids = self._vocabulary.infill_ids
        if ids is None:
            return None
        bos = self._vocabulary.bos_id if self._vocabulary.adds_bos else None
        found = [] if bos is None else [bos]
        for token_id, text in zip(ids, (prefix, suffix, middle), strict=True):
            found += [token_id, *self.encode_continuation(text)]
        return found

    def is_control(self, token_id: int) -> bool:
        """Whether the token is for control, and so not part of the text by default."""
        return bool(self._kind(token_id) & (CONTROL | UNKNOWN))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token adds to a text; a control token's are its name.

        Tokens that the file marks as unused add nothing. A space that only stands for the
        beginning of a text is kept: `decode` takes it off.
        """
        spelt = self._spelt.get(token_id)
        if spelt is None:
            spelt = self._spelling(token_id)
            if len(self._spelt) >= _MOST_SPELT:
                self._spelt.clear()
            self._spelt[token_id] = spelt
        return spelt

    def all_bytes(self) -> list[bytes]:
        """Of each token, as `token_bytes` has them: all at once, in a tenth of the time."""
        vocabulary = self._vocabulary
        found = list(map(self._engine.spelling, vocabulary.tokens))
        for match in re.finditer(b"[^%c]" % NORMAL, vocabulary.kinds, re.DOTALL):
            found[match.start()] = self._spelling(match.start())
        return found

    def control_ids(self) -> list[int]:
        """Those of which `is_control` holds."""
        return self._vocabulary.ids_of_kind(CONTROL | UNKNOWN)

    def _spelling(self, token_id: int) -> bytes:
        kind = self._kind(token_id)
        token = self._vocabulary.tokens[token_id]
        if kind & (CONTROL | UNKNOWN | USER_DEFINED):
            return token.encode()
        if kind & NORMAL:
            return self._engine.spelling(token)
        return bytes.fromhex(token[3:5]) if kind & BYTE else b""

    def token_text(self, token_id: int) -> str:
        """The token for display: bytes that are no text of their own become U+FFFD."""
        return self.token_bytes(token_id).decode(errors="replace")

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of a whole encoded text: without the space that encoding put before it.

        What the reference calls clean-up (removing spaces before punctuation) is left out, so
        that decoding inverts encoding and a stream equals the whole.
        """
        kept = [i for i in ids if not (skip_special and self.is_control(i))]
        parts = [self.token_bytes(token_id) for token_id in kept]
        if self._vocabulary.adds_space_prefix:
            first = next((n for n, i in enumerate(kept) if not self.is_control(i)), None)
            if first is not None:
                parts[first] = parts[first].removeprefix(b" ")
        return b"".join(parts).decode(errors="replace")

    def decode_continuation(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of ids that go on from others, such as generated ones: every space is kept."""
        kept = (i for i in ids if not (skip_special and self.is_control(i)))
        return b"".join(map(self.token_bytes, kept)).decode(errors="replace")

    def _kind(self, token_id: int) -> int:
        if not 0 <= token_id < self.vocab_size:
            raise InvalidRequestError("token id", token_id, f"from 0 to {self.vocab_size - 1}")
        return self._vocabulary.kinds[token_id]


def build_tokenizer(metadata: Metadata) -> Tokenizer:
    """The tokenizer of a model file. Raises TokenizerError naming the field that is wrong."""
    fields = TokenizerFields(metadata)
    model = fields.text("model")
    if model == "llama":
        defaults = VocabularyDefaults(bos_id=1, eos_id=2, adds_bos=True, adds_space_prefix=True)
        vocabulary = read_vocabulary(metadata, defaults)
        return Tokenizer(vocabulary, SentencePieceEngine(vocabulary, fields))
    if model in ("gpt2", "gemma4"):
        return _build_byte_pair(metadata, fields, model)
    if model is None:
        raise fields.error("model", "is missing: the file names no kind of vocabulary")
    kind = f" ({_OTHER_MODELS[model]})" if model in _OTHER_MODELS else ""
    raise fields.error("model", f"is {model!r}{kind}; this version reads gpt2, llama and gemma4")


def _build_byte_pair(metadata: Metadata, fields: TokenizerFields, model: str) -> Tokenizer:
    pre = "gemma4" if model == "gemma4" else fields.text("pre")
    if not pre:  # files older than the field; newer ones of the same models cut text better
        import logging  # takes long, and this is rare

        logging.getLogger(__name__).warning(
            "tokenizer.ggml.pre is missing: cutting text the default way"
        )
        pre = "default"
    style = PRE_TOKENIZER_STYLES.get(pre)
    if style is None:
        raise fields.error("pre", f"is {pre!r}, a pre-tokenizer that this version does not know")
    default_id = 11 if model == "gpt2" else None
    vocabulary = read_vocabulary(
        metadata,
        VocabularyDefaults(
            bos_id=default_id if style.has_default_bos else None,
            eos_id=default_id,
            adds_bos=style.adds_bos,
            forces_bos=style.forces_bos,
        ),
    )
    return Tokenizer(vocabulary, BytePairEngine(vocabulary, style, fields))


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            "text",
            f"{text[error.start]!r} at character {error.start}",
            "Unicode text, without lone surrogates",
        ) from None
