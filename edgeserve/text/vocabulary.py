"""A model file's vocabulary: its tokens, what each is for, its special ids; read and checked.

Knows what the fields mean and how the reference fills their gaps; not how text is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import compress

from edgeserve.frozen import frozen
from edgeserve.text.stop_tokens import (
    BYTE,
    CONTROL,
    NAMED_TEXTS,
    NORMAL,
    ROLES,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    find_stop_ids,
)
from edgeserve.text.tokenizer_fields import TokenizerFields
from edgeserve.types import Metadata

# GGUF's token types 0 to 6 as bits; 0 is "undefined", and so is any other.
_KIND_OF_TYPE = bytes((0, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE)).ljust(256, b"\0")

_STRIPPING = ("<mask>", "[MASK]", "<unk>", "<s>", "<|endoftext|>")
_NAMED = NAMED_TEXTS.union(_STRIPPING)

_LEGACY_ROLE_KEYS = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}


@frozen(kw_only=True)
class VocabularyDefaults:
    """What a kind of vocabulary means where its file is silent; ids past its end mean none."""

    bos_id: int | None = None
    eos_id: int | None = None
    adds_bos: bool = False
    forces_bos: bool = False
    adds_space_prefix: bool = False


@frozen(kw_only=True)
class Vocabulary:
    """Tokens by id. `kinds` has a byte of bits per token (stop_tokens.py). Tokens among
    `left_strip_ids` and `right_strip_ids` swallow the white space before and after them.
    `infill_ids` stand before a prefix, a suffix, and what is to be filled in between."""

    tokens: Sequence[str]
    kinds: bytes
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    stop_ids: frozenset[int]
    adds_bos: bool
    adds_eos: bool
    adds_space_prefix: bool
    left_strip_ids: frozenset[int]
    right_strip_ids: frozenset[int]
    infill_ids: tuple[int, int, int] | None = None

    def ids_of_kind(self, kinds: int) -> list[int]:
        """The ids of tokens that have one of these bits, in order."""
        values = bytes(kind for kind in range(256) if kind & kinds)
        return [match.start() for match in re.finditer(b"[%b]" % re.escape(values), self.kinds)]


def read_vocabulary(metadata: Metadata, defaults: VocabularyDefaults) -> Vocabulary:
    """The vocabulary of a model file. Raises TokenizerError naming the field that is wrong."""
    fields = TokenizerFields(metadata)
    tokens = _read_tokens(fields)
    # Only these: a dict of a quarter of a million texts costs as much as all the rest.
    named = list(compress(range(len(tokens)), map(_NAMED.__contains__, tokens)))
    ids = {tokens[index]: index for index in named}
    kinds = _read_kinds(fields, tokens)
    bos_id = _special_id(fields, "bos", len(tokens), defaults.bos_id)
    roles = _read_roles(fields, len(tokens), defaults.eos_id)
    stop_ids = find_stop_ids(tokens, ids, roles, kinds)
    adds_bos = fields.flag("add_bos_token", defaults.adds_bos) or defaults.forces_bos
    adds_eos = fields.flag("add_eos_token", False)
    if adds_bos and bos_id is None:
        raise fields.error("bos_token_id", "is missing, and add_bos_token asks for it")
    if adds_eos and "eos" not in roles:
        raise fields.error("eos_token_id", "is missing, and add_eos_token asks for it")
    left_strip_ids, right_strip_ids = _strip_ids(metadata, ids, kinds)
    return Vocabulary(
        tokens=tokens,
        kinds=bytes(kinds),
        bos_id=bos_id,
        eos_id=roles.get("eos"),
        eot_id=roles.get("eot"),
        stop_ids=stop_ids,
        adds_bos=adds_bos,
        adds_eos=adds_eos,
        adds_space_prefix=fields.flag("add_space_prefix", defaults.adds_space_prefix),
        left_strip_ids=left_strip_ids,
        right_strip_ids=right_strip_ids,
        infill_ids=_infill_ids(roles),
    )


def _infill_ids(roles: Mapping[str, int]) -> tuple[int, int, int] | None:
    found = [roles.get(role) for role in ("fim_pre", "fim_suf", "fim_mid")]
    prefix, suffix, middle = found
    if prefix is None or suffix is None or middle is None:
        return None
    return prefix, suffix, middle


def _read_tokens(fields: TokenizerFields) -> Sequence[str]:
    tokens = fields.texts("tokens")
    if tokens is None:
        raise fields.error("tokens", "is missing: the file holds no vocabulary")
    if not tokens:
        raise fields.error("tokens", "is empty: the file holds no vocabulary")
    distinct = set(tokens)
    if "" in distinct:
        tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]
        distinct = set(tokens)
    if len(distinct) < len(tokens):
        first: dict[str, int] = {}
        index = next(i for i, token in enumerate(tokens) if first.setdefault(token, i) != i)
        token = tokens[index]
        raise fields.error("tokens", f"{token!r} is both token {first[token]} and token {index}")
    return tokens


def _read_kinds(fields: TokenizerFields, tokens: Sequence[str]) -> bytearray:
    types = fields.integers("token_type", len(tokens))
    if types is None:
        return bytearray([NORMAL]) * len(tokens)
    try:
        kinds = bytearray(types).translate(_KIND_OF_TYPE)
    except ValueError:
        kinds = bytearray(_KIND_OF_TYPE[t] if 0 <= t < 256 else 0 for t in types)
    for index in (match.start() for match in re.finditer(b"%c" % BYTE, kinds)):
        if byte_value(tokens[index]) is None:
            raise fields.error(
                "tokens", f"token {index}, {tokens[index]!r}, is a byte token, must be like <0x0A>"
            )
    return kinds


def byte_value(token: str) -> int | None:
    """The byte that a byte token such as `<0x0A>` stands for; None for any other text."""
    if len(token) != 6 or not token.startswith("<0x") or token[5] != ">":
        return None
    try:
        return bytes.fromhex(token[3:5])[0]
    except (ValueError, IndexError):
        return None


def _read_roles(
    fields: TokenizerFields, num_tokens: int, default_eos_id: int | None
) -> dict[str, int]:
    found = {
        role: _special_id(fields, role, num_tokens, default_eos_id if role == "eos" else None)
        for role in ROLES
    }
    for role, name in _LEGACY_ROLE_KEYS.items():
        found[role] = _special_id(fields, name, num_tokens, found[role])
    return {role: token_id for role, token_id in found.items() if token_id is not None}


def _special_id(
    fields: TokenizerFields, role: str, num_tokens: int, default: int | None
) -> int | None:
    token_id = fields.token_id(f"{role}_token_id", num_tokens)
    if token_id is None and default is not None and default < num_tokens:
        return default
    return token_id


def _strip_ids(
    metadata: Metadata, ids: Mapping[str, int], kinds: Sequence[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Tokens that swallow white space before, and after: no field says so, only names do."""
    nothing: frozenset[int] = frozenset()
    pre = str(metadata.values.get("tokenizer.ggml.pre", ""))
    architecture = str(metadata.values.get("general.architecture", ""))
    name = str(metadata.values.get("general.name", "")).lower()
    if "jina-v2-" in pre or architecture in ("nomic-bert-moe", "jina-bert-v3"):
        return frozenset({ids["<mask>"]} if "<mask>" in ids else nothing), nothing
    if "phi-3" in name or "phi3" in name:
        special = CONTROL | UNKNOWN | USER_DEFINED
        strips = {token_id for token_id, kind in enumerate(kinds) if kind & special}
        keep = {ids[text] for text in ("<unk>", "<s>", "<|endoftext|>") if text in ids}
        return nothing, frozenset(strips - keep)
    if "modern-bert" in name:
        return frozenset({ids["[MASK]"]} if "[MASK]" in ids else nothing), nothing
    return nothing, nothing
