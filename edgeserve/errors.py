"""Every error a user of edgeserve can meet, as a type.

One line says what happened, where, and what to do. Values that code wants to read back
(the parameter, the limit, the byte offset) are attributes, never parsed out of the message.
"""

from __future__ import annotations

from pathlib import Path


class EdgeServeError(Exception):
    """Base of all errors raised on purpose. `exit_code` is what the command line ends with."""

    exit_code = 1


class InvalidRequestError(EdgeServeError):
    """A request's field is outside what is allowed: the caller's mistake, never the engine's."""

    exit_code = 2

    def __init__(self, parameter: str, value: object, allowed: str) -> None:
        self.parameter = parameter
        self.value = value
        self.allowed = allowed
        super().__init__(f"{parameter} = {value!r}: must be {allowed}")


class ContextLengthError(InvalidRequestError):
    """The prompt does not fit the context. The text is the one that OpenAI's agents match."""

    def __init__(self, num_prompt_tokens: int, max_model_len: int) -> None:
        super().__init__("messages", num_prompt_tokens, f"at most {max_model_len} tokens")
        self.num_prompt_tokens = num_prompt_tokens
        self.max_model_len = max_model_len
        self.args = (
            f"This model's maximum context length is {max_model_len} tokens. "
            f"However, your messages resulted in {num_prompt_tokens} tokens.",
        )


class NotYetError(EdgeServeError):
    """A documented option whose implementation has not landed: refused, never ignored."""

    exit_code = 2

    def __init__(self, feature: str) -> None:
        self.feature = feature
        super().__init__(f"{feature} is not available yet in this version")


class TemplateError(EdgeServeError):
    """A chat template failed, ran past its bounds, or refused the conversation."""

    exit_code = 4


class TokenizerError(EdgeServeError):
    """The vocabulary in a model file cannot be turned into a tokenizer."""

    exit_code = 3

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        super().__init__(f"{field}: {reason}")


class NonFiniteLogitsError(EdgeServeError):
    """The model produced NaN or infinity for a row: that request fails, nobody else's."""

    def __init__(self, position: int) -> None:
        self.position = position
        super().__init__(
            f"the model produced non-finite logits at position {position}; "
            "the file may be damaged (check its sha256) or the model unstable in this precision"
        )


class OutOfBlocksError(EdgeServeError):
    """The KV pool cannot hold even one request of this size."""

    def __init__(self, needed_blocks: int, pool_blocks: int) -> None:
        self.needed_blocks = needed_blocks
        self.pool_blocks = pool_blocks
        super().__init__(
            f"the request needs {needed_blocks} KV blocks and the pool has {pool_blocks}; "
            "raise kv_cache_memory or shorten the prompt"
        )


class LibraryError(EdgeServeError):
    """The native library is missing, or was built for another version of the package."""


# --- model files -------------------------------------------------------------------------------


class ModelError(EdgeServeError):
    """Something about a model, as a file or as an architecture, cannot be used."""

    exit_code = 3


class ModelFileError(ModelError):
    """A defect in a model file: which field, at which byte offset, and what is wrong with it.

    Every kind of defect is a subclass, so that callers and tests can tell them apart.
    """

    def __init__(
        self, field: str, reason: str, *, offset: int | None = None, path: Path | None = None
    ) -> None:
        self.field = field
        self.reason = reason
        self.offset = offset
        self.path = path
        where = f"{path}: " if path is not None else ""
        at = f" (byte {offset})" if offset is not None else ""
        super().__init__(f"{where}{field}{at}: {reason}")


class UnsupportedModelError(ModelError):
    """A well-formed file that this version cannot run: an architecture or a tensor type."""


class HyperParameterError(ModelFileError):
    """A hyper-parameter is absent, of the wrong type, or contradicts another."""


class MissingTensorError(ModelFileError):
    """The architecture needs a tensor that the file does not have."""


class TensorShapeError(ModelFileError):
    """A tensor's shape is not the one its hyper-parameters call for."""


# --- sources -----------------------------------------------------------------------------------


class ModelNotFoundError(ModelError):
    """No path, catalogue entry, hub file or package answers to this name."""

    exit_code = 5


class DownloadError(ModelError):
    """A download did not arrive: no network, an HTTP error, or the wrong bytes."""

    exit_code = 5
