"""What a request, a setting or the engine ends with."""

from __future__ import annotations

from edgeserve.errors.base import EdgeServeError, shown


class InvalidRequestError(EdgeServeError):
    """A request's field is outside what is allowed: the caller's mistake, never the engine's."""

    exit_code = 2

    def __init__(self, parameter: str, value: object, allowed: str) -> None:
        self.parameter = parameter
        self.value = value
        self.allowed = allowed
        super().__init__(f"{parameter} = {shown(value)}: must be {allowed}")


class UnfitOptionError(InvalidRequestError):
    """An option of a command that has no sense beside the others, or as things are."""

    def __init__(self, option: str, why: str) -> None:
        super().__init__(option, "given", f"left out {why}")
        self.args = (f"{option} must be left out {why}",)


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


class ConstraintError(InvalidRequestError):
    """A schema or grammar that cannot be enforced, in part or at all. `path` leads to the place in
    a schema, as a JSON pointer after "#"; `keyword` is what stands there."""

    def __init__(self, kind: str, reason: str, *, path: str = "", keyword: str = "") -> None:
        super().__init__(kind, path, "a constraint that can be enforced")
        self.kind = kind
        self.reason = reason
        self.path = path
        self.keyword = keyword
        where = f" {path}/{keyword}" if keyword else f" {path}" if path else ""
        self.args = (f"{kind}{where}: {reason}",)


class OutputParseError(EdgeServeError):
    """An answer kept to its schema, and is still none that the class which asked accepts."""

    def __init__(self, text: str, cause: Exception) -> None:
        self.text = text
        super().__init__(f"{shown(text)} cannot be parsed: {cause}")
        self.__cause__ = cause


class NoPoolingError(InvalidRequestError):
    """A vector is asked of a model whose file does not say how to make one, and nobody else did.

    `file_pooling` is what the file asks for and this version cannot do; None if it says nothing.
    """

    def __init__(self, model: str, file_pooling: str | None) -> None:
        super().__init__("pooling", file_pooling, "mean or last")
        self.model = model
        self.file_pooling = file_pooling
        says = "names no pooling" if file_pooling is None else f"asks for pooling {file_pooling}"
        self.args = (
            f"{shown(model)} makes no embeddings by itself: its file {says}. Choose one: "
            '`--pooling mean` or `--pooling last`, pooling="mean" or "last" in Python; vectors of '
            "a model that was not trained for it may tell texts apart poorly",
        )


class DraftVocabularyError(EdgeServeError):
    """The draft model's tokens are not the model's: what it guesses would mean something else."""

    exit_code = 2

    def __init__(
        self, draft_model: str, num_tokens: int, num_draft_tokens: int, first: int
    ) -> None:
        self.draft_model = draft_model
        self.num_tokens = num_tokens
        self.num_draft_tokens = num_draft_tokens
        self.first = first
        super().__init__(
            f"draft_model {shown(draft_model)} has another vocabulary: {num_draft_tokens:,} "
            f"tokens beside the model's {num_tokens:,}, different from id {first} on; take one of "
            "the same family"
        )


class TemplateError(EdgeServeError):
    """A chat template failed, ran past its bounds, or refused the conversation."""

    exit_code = 4


class TemplateSyntaxError(TemplateError):
    """A chat template cannot be parsed; `line` counts from 1, None when the source has no line."""

    def __init__(self, reason: str, line: int | None) -> None:
        self.reason = reason
        self.line = line
        where = "" if line is None else f", line {line}"
        super().__init__(f"the chat template{where} cannot be parsed: {reason}")


class TemplateRefusedError(TemplateError):
    """The template itself refused the conversation (raise_exception); `reason` is its text."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the chat template refused the conversation: {reason}")


class TemplateLimitError(TemplateError):
    """A chat template wanted more time, text or memory than it may have."""

    def __init__(self, what: str, limit: float) -> None:
        self.what = what
        self.limit = limit
        super().__init__(f"the chat template was stopped: {what} is over the limit of {limit:,}")


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


class NonFiniteEmbeddingError(EdgeServeError):
    """The model produced NaN or infinity for a text's vector: that text fails, no other."""

    def __init__(self) -> None:
        super().__init__(
            "the model produced a vector with non-finite elements; the file may be damaged (check "
            "its sha256) or the model unstable in this precision"
        )


class NothingAllowedError(EdgeServeError):
    """A constraint leaves no token that the model can make: that request fails, nobody else's."""

    def __init__(self, position: int) -> None:
        self.position = position
        super().__init__(
            f"the constraint allows no token at position {position}: "
            "what it asks for cannot be said with this model's vocabulary"
        )


class ConstraintLimitError(EdgeServeError):
    """A constraint became too complex while it was followed: that request fails, nobody else's."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the constraint could not be followed further: {reason}; simplify it")


class OutOfBlocksError(EdgeServeError):
    """The KV pool cannot hold even one request of this size."""

    def __init__(self, needed_blocks: int, pool_blocks: int) -> None:
        self.needed_blocks = needed_blocks
        self.pool_blocks = pool_blocks
        super().__init__(
            f"the request needs {needed_blocks} KV blocks and the pool has {pool_blocks}; "
            "raise kv_cache_memory or shorten the prompt"
        )


class KVMemoryError(EdgeServeError):
    """Memory does not hold the keys and values of even one request of the context asked for."""

    def __init__(self, needed_bytes: int, allowed_bytes: int) -> None:
        self.needed_bytes = needed_bytes
        self.allowed_bytes = allowed_bytes
        super().__init__(
            f"the KV cache needs {needed_bytes:,} bytes and may have {allowed_bytes:,}; "
            "lower max_model_len or raise kv_cache_memory"
        )


class OutOfMemoryError(EdgeServeError):
    """The system had no memory for something of the native core."""

    def __init__(self, what: str) -> None:
        super().__init__(f"no memory for {what}; close other programs, or run a smaller model")


class AbortedError(EdgeServeError):
    """A step, or a load, was told to end early, and did."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was aborted")


class ClosedError(EdgeServeError):
    """The model was closed, before this call or while it waited."""

    def __init__(self) -> None:
        super().__init__("this LLM is closed; create a new one")


class QueueFullError(EdgeServeError):
    """As many requests wait already as may. Nothing is wrong with this one: try it again later."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"{limit} requests wait already, the most that may; wait for answers before asking "
            "for more, or raise max_queued_requests"
        )


class ForkedProcessError(EdgeServeError):
    """A model is used in a fork of the process that loaded it: its threads are not there."""

    def __init__(self, loaded_in: int, used_in: int) -> None:
        self.loaded_in = loaded_in
        self.used_in = used_in
        super().__init__(
            f"the model was loaded by process {loaded_in} and cannot be used in {used_in}, a fork "
            'of it: load it after forking, or use multiprocessing\'s "spawn" start method'
        )


class StepError(EdgeServeError):
    """A step of the engine broke. The requests in it failed; the engine goes on."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the engine's step failed: {type(cause).__name__}: {cause}")
        self.__cause__ = cause


class LibraryError(EdgeServeError):
    """The native library is missing, or was built for another version of the package."""


class PeerMissingError(EdgeServeError):
    """Another program that speeds are to be compared with is not installed, or does not load."""

    def __init__(self, peer: str, package: str, reason: str) -> None:
        self.peer = peer
        self.package = package
        super().__init__(
            f"{peer} is not here to be compared with ({reason}); install it, which compiles for "
            f"some minutes: pip install {package} (or leave out --against {peer})"
        )


class MissingExtraError(EdgeServeError):
    """An option needs packages that are installed on demand only."""

    exit_code = 2

    def __init__(self, option: str, extra: str, reason: str) -> None:
        self.option = option
        self.extra = extra
        super().__init__(
            f"{option} needs more packages ({reason}): pip install 'edgeserve-llm[{extra}]'"
        )


class NoModelInUseError(EdgeServeError):
    """A chat is asked something before there is a model to answer it."""

    exit_code = 2

    def __init__(self) -> None:
        super().__init__("no model is in use; choose one first")
