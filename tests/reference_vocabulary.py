"""The reference's own tokenizer on one model file, by its C interface."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import ModuleType

_MAX_PIECE_BYTES = 4096


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def _IGNORED(_level: int, _text: bytes, _data: object) -> None:
    """Where the reference's log goes, for as long as the process lives: it calls this whenever it
    has something to say, whoever asked for silence."""


class ReferenceVocabulary:
    """llama.cpp's vocabulary of a file. The bytes of a text go in with their length, NULs too."""

    def __init__(self, llama_cpp: ModuleType, path: Path) -> None:
        self._llama_cpp = llama_cpp
        llama_cpp.llama_log_set(_IGNORED, ctypes.c_void_p(0))
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        self._model = llama_cpp.llama_model_load_from_file(bytes(path), parameters)
        assert self._model, f"the reference cannot load {path}"
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.vocab_size: int = llama_cpp.llama_vocab_n_tokens(self._vocab)

    @property
    def handle(self) -> object:
        """llama.cpp's own, for its samplers."""
        return self._vocab

    def close(self) -> None:
        self._llama_cpp.llama_model_free(self._model)

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode()
        room = len(data) + 16
        ids = (self._llama_cpp.llama_token * room)()
        count = self._llama_cpp.llama_tokenize(
            self._vocab, data, len(data), ids, room, add_special, parse_special
        )
        assert count >= 0
        return list(ids[:count])

    def piece(self, token_id: int) -> bytes:
        """The bytes of one token, control tokens' names included."""
        room = ctypes.create_string_buffer(_MAX_PIECE_BYTES)
        count = self._llama_cpp.llama_token_to_piece(
            self._vocab, token_id, room, _MAX_PIECE_BYTES, 0, True
        )
        assert count >= 0
        return room.raw[:count]

    def decode(self, ids: list[int], *, skip_special: bool) -> bytes:
        """The reference's detokenizing, with everything it does to the spaces."""
        array = (self._llama_cpp.llama_token * len(ids))(*ids)
        room = 0
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = self._llama_cpp.llama_detokenize(
                self._vocab, array, len(ids), buffer, room, False, not skip_special
            )
            if count >= 0:
                return buffer.raw[:count]
            room = -count

    def ends_generation(self, token_id: int) -> bool:
        return bool(self._llama_cpp.llama_vocab_is_eog(self._vocab, token_id))

    def is_control(self, token_id: int) -> bool:
        return bool(self._llama_cpp.llama_vocab_is_control(self._vocab, token_id))

    def special_ids(self) -> tuple[int | None, int | None]:
        """BOS and EOS."""
        found = (
            self._llama_cpp.llama_vocab_bos(self._vocab),
            self._llama_cpp.llama_vocab_eos(self._vocab),
        )
        bos_id, eos_id = (None if token_id < 0 else token_id for token_id in found)
        return bos_id, eos_id
