"""A tiny model that says the alphabet, again and again, whatever it is asked.

Each letter calls the next, so a test can tell whether an answer that was stopped, cut off or
continued has lost a letter. It ends only where it is stopped, or told how much to say.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

import numpy as np

from .tiny_models import DEFAULTS, tiny_weights, vocabulary_of, write_weights

SAID = ascii_lowercase + " "

_CERTAIN = 8.0
"""Nothing but the next letter is ever drawn, at any temperature."""


def write_reciting_model(path: Path, *, context: int = 32768, feed_forward: int = 96) -> Path:
    """Its stream is a token a letter; the larger `feed_forward`, the slower."""
    model = replace(DEFAULTS["llama"], context=context, feed_forward=feed_forward)
    vocabulary = vocabulary_of(model)
    assert vocabulary is not None
    weights = tiny_weights(model, 0)
    for layer in range(model.layers):
        for name in ("attn_output", "ffn_down"):  # then a token is all that the next depends on
            weights[f"blk.{layer}.{name}.weight"][:] = 0.0
    weights["output_norm.weight"][:] = 1.0
    embedding, output = weights["token_embd.weight"], weights["output.weight"]
    embedding[:], output[:] = 0.0, 0.0
    for number, token in enumerate(vocabulary.tokens):
        letter = token[-1].replace("Ġ", " ")
        follows = (SAID.find(letter) + 1) % len(SAID)
        embedding[number, follows] = 1.0
        if len(token) == 1 and letter in SAID:
            output[number, SAID.find(letter)] = _CERTAIN
    assert np.count_nonzero(output) == len(SAID)
    return write_weights(path, model, weights)
