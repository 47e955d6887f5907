"""Which tokens end a generation, and which tokens are for control although the file denies it.

Published files often mark neither, so the reference goes by the tokens' texts, and so does this.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from itertools import chain

# What a token is for, as bits: one token can be both normal and, by its text, for control.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = (1 << n for n in range(6))

# Texts that stand for a role where the file names no token for it; the first that exists does.
_TEXTS_OF_ROLE = {
    "eot": (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
ROLES = ("eos", *_TEXTS_OF_ROLE)
_STOPPING_ROLES = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")

_STOP_TEXTS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
)

# OpenAI's harmony format: these shape a message and are shown, never hidden.
_SHOWN_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")

NAMED_TEXTS = frozenset(chain(*_TEXTS_OF_ROLE.values(), _STOP_TEXTS, _SHOWN_TEXTS))


def find_stop_ids(
    tokens: Sequence[str],
    ids: Mapping[str, int],
    roles: MutableMapping[str, int],
    kinds: bytearray,
) -> frozenset[int]:
    """The ids that end a generation.

    `ids` has the ids of those NAMED_TEXTS that are tokens. `roles` (role -> id, as far as the
    file names any) gains the roles found by text; `kinds`
    (a byte of bits per token) gains CONTROL for tokens that are for control by their text.
    """
    for role, texts in _TEXTS_OF_ROLE.items():
        found = next((ids[text] for text in texts if text in ids), None)
        if role not in roles and found is not None:
            roles[role] = found
            kinds[found] |= CONTROL
    stop_ids = {roles[role] for role in _STOPPING_ROLES if role in roles}
    for token_id in (ids[text] for text in _STOP_TEXTS if text in ids):
        stop_ids.add(token_id)
        kinds[token_id] |= CONTROL
    for token_id in (ids[text] for text in _SHOWN_TEXTS if text in ids):
        kinds[token_id] = USER_DEFINED
    _drop_false_stops(tokens, ids, stop_ids, kinds)
    return frozenset(stop_ids)


def _drop_false_stops(
    tokens: Sequence[str], ids: Mapping[str, int], stop_ids: set[int], kinds: bytearray
) -> None:
    texts = {tokens[token_id] for token_id in stop_ids}
    calls = texts & {"<|call|>", "<|calls|>"}
    if "<|end|>" in texts and calls and texts & {"<|return|>", "<|flush|>"}:
        stop_ids.discard(ids["<|end|>"])  # harmony and Solar: it ends one message of several
        kinds[ids["<|end|>"]] = USER_DEFINED
    if "</s>" in texts and texts & {"<|tool_response>", "<|plamo:eos|>"}:
        stop_ids.discard(ids["</s>"])  # Gemma 4 and PLaMo: the HTML tag
        kinds[ids["</s>"]] = NORMAL
