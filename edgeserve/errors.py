"""Every error a user of edgeserve can meet, as a type.

One line says what happened, where, and what to do. Values that code wants to read back
(the parameter, the limit, the byte offset) are attributes, never parsed out of the message.
"""

from __future__ import annotations

from pathlib import Path

_MAX_SHOWN = 200


class EdgeServeError(Exception):
    """Base of all errors raised on purpose. `exit_code` is what the command line ends with."""

    exit_code = 1


def _shown(value: object) -> str:
    """The value in a message of one line: a whole prompt, or a million digits, is cut short."""
    try:
        text = repr(value)
    except Exception:  # Python refuses to print integers past 4300 digits; a repr may do anything
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


class InvalidRequestError(EdgeServeError):
    """A request's field is outside what is allowed: the caller's mistake, never the engine's."""

    exit_code = 2

    def __init__(self, parameter: str, value: object, allowed: str) -> None:
        self.parameter = parameter
        self.value = value
        self.allowed = allowed
        super().__init__(f"{parameter} = {_shown(value)}: must be {allowed}")


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
        super().__init__(f"{_shown(text)} cannot be parsed: {cause}")
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
            f"{_shown(model)} makes no embeddings by itself: its file {says}. Choose one: "
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
            f"draft_model {_shown(draft_model)} has another vocabulary: {num_draft_tokens:,} "
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


# --- other servers ------------------------------------------------------------------------------


class ServerUnreachableError(EdgeServeError):
    """Nothing answers at a URL."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"no server answers at {url} ({reason}); is it running?")


class ServerRefusedError(EdgeServeError):
    """A server answered, but not with what was asked for."""

    def __init__(self, url: str, status: int, message: str) -> None:
        self.url = url
        self.status = status
        self.message = message
        hint = "; pass its key with --api-key or --key" if status in (401, 403) else ""
        super().__init__(f"the server at {url} answered {status}: {message}{hint}")


class EventTooLongError(EdgeServeError):
    """A stream of events has one that does not end."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        super().__init__(f"an event of more than {limit_bytes:,} bytes, which no answer has")


class AnswerBrokenError(EdgeServeError):
    """A server's answer broke off: it went away, failed, or sent what nobody understands."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(
            f"the answer of the server at {url} broke off: {reason}; what came so far is kept. "
            "See whether the server still runs, then ask again or have the answer continued"
        )


class NoAnswerError(EdgeServeError):
    """Every request of a load failed: there is nothing to give figures of."""

    def __init__(self, url: str, num_requests: int, first: str) -> None:
        self.url = url
        self.num_requests = num_requests
        self.first = first
        super().__init__(f"none of {num_requests:,} requests to {url} was answered: {first}")


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


class UnusedTensorError(ModelFileError):
    """The file has a tensor that its architecture never reads: it is another architecture."""


class TensorShapeError(ModelFileError):
    """A tensor's shape is not the one its hyper-parameters call for."""


# --- GGUF files: one class per kind of defect --------------------------------------------------


class UnreadableFileError(ModelFileError):
    """The operating system does not hand the file out: absent, forbidden, or a failing disk."""


class NotARegularFileError(ModelFileError):
    """A directory, a pipe or a device stands where a model file should."""


class EmptyFileError(ModelFileError):
    """The file has no bytes."""


class NotGGUFError(ModelFileError):
    """The file is of another format. The reason says what it looks like and what to do."""


class ByteOrderError(ModelFileError):
    """The file is big-endian."""


class GGUFVersionError(ModelFileError):
    """A version of the format that is not read: 1, or one that does not exist yet."""


class TruncatedHeaderError(ModelFileError):
    """The file ends inside its own description."""


class HeaderTooLargeError(ModelFileError):
    """The file's description runs past what any model's does."""


class EntryCountError(ModelFileError):
    """The header announces more keys or tensors than the file's bytes can describe."""


class StringLengthError(ModelFileError):
    """A string is said to be longer than what is left of the file."""


class ArrayLengthError(ModelFileError):
    """An array is said to have more elements than the file has left, or than any model needs."""


class NameLengthError(ModelFileError):
    """A key or a tensor's name is empty or longer than the format allows."""


class InvalidTextError(ModelFileError):
    """A key, a name or a string value is not UTF-8."""


class ValueTypeError(ModelFileError):
    """A metadata value, or an array's elements, of a type that GGUF does not have."""


class NestedArrayError(ModelFileError):
    """An array of arrays, which no model needs and no other runtime reads."""


class BoolValueError(ModelFileError):
    """A boolean that is neither 0 nor 1."""


class DuplicateKeyError(ModelFileError):
    """Two metadata entries have the same key."""


class DuplicateTensorError(ModelFileError):
    """Two tensors have the same name, in one file or across the parts of a split one."""


class AlignmentError(ModelFileError):
    """`general.alignment` is not a 32-bit power of two within bounds."""


class DimensionCountError(ModelFileError):
    """A tensor has no dimensions, or more than four."""


class ZeroDimensionError(ModelFileError):
    """A tensor has a dimension of length 0."""


class TensorTooLargeError(ModelFileError):
    """A tensor's dimensions multiply to more than 63 bits can count."""


class TensorTypeError(ModelFileError):
    """A tensor's type is unknown, or was taken out of the format."""


class RowLengthError(ModelFileError):
    """A quantised tensor's rows are not a whole number of blocks."""


class TensorAlignmentError(ModelFileError):
    """A tensor's offset is not a multiple of the file's alignment."""


class TensorOffsetError(ModelFileError):
    """A tensor's data would begin at or past the end of the file."""


class TensorTruncatedError(ModelFileError):
    """The file ends inside a tensor's data."""


class TensorOverlapError(ModelFileError):
    """Two tensors claim the same bytes."""


class SplitError(ModelFileError):
    """The parts of a split model contradict each other or their file names."""


class MissingPartError(ModelFileError):
    """A part of a split model is not beside the others."""


class FileChangedError(ModelFileError):
    """A model file was replaced or cut after its header was read."""


# --- sources -----------------------------------------------------------------------------------


class ModelNotFoundError(ModelError):
    """No path, catalogue entry, hub file or package answers to this name."""

    exit_code = 5


class DownloadError(ModelError):
    """A download did not arrive: no network, an HTTP error, or the wrong bytes."""

    exit_code = 5


class ModelSourceError(ModelError):
    """A model's name cannot be read: it is no path, no catalogue name and no known prefix."""

    exit_code = 2

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        super().__init__(f"model {source!r}: {reason}")


class AmbiguousModelError(ModelNotFoundError):
    """A name answers to several files. `choices` are what to write instead."""

    def __init__(self, source: str, reason: str, choices: tuple[str, ...]) -> None:
        self.choices = choices
        super().__init__(f"{source}: {reason}; choose one of: {', '.join(choices)}")


class LicenseNotAcceptedError(ModelError):
    """The model's terms must be accepted before it is fetched, and were not."""

    exit_code = 5

    def __init__(self, model: str, license_name: str, url: str) -> None:
        self.model = model
        self.license_name = license_name
        self.url = url
        super().__init__(
            f"{model} comes under the {license_name} ({url}); "
            f"to accept them: edgeserve pull {model} --accept-license"
        )


class ChecksumError(DownloadError):
    """The bytes that arrived are not the ones that were published. They have been deleted."""

    def __init__(self, name: str, expected: str, actual: str) -> None:
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"{name}: sha256 is {actual}, not {expected}; the source is damaged or altered: "
            "try again, or another source"
        )


class DiskSpaceError(DownloadError):
    """The folder's disk has less room than the download needs."""

    def __init__(self, folder: Path, needed_bytes: int, free_bytes: int) -> None:
        self.folder = folder
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        super().__init__(
            f"{folder}: {needed_bytes:,} bytes are needed and {free_bytes:,} are free; "
            "make room, or set EDGESERVE_CACHE to a folder on another disk"
        )


# --- conversations -----------------------------------------------------------------------------


class ChatsError(EdgeServeError):
    """Something about the conversations that are kept, or the file they are kept in."""


class ChatNotFoundError(ChatsError):
    """No such chat or turn (any more): another window may have deleted it."""

    def __init__(self, what: str, id: str) -> None:
        self.what = what
        self.id = id
        super().__init__(f"there is no {what} {_shown(id)}; it may have been deleted for good")


class ChatsFileError(ChatsError):
    """The file of conversations cannot be used. `path` is the file."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class ChatsDiskFullError(ChatsFileError):
    """The disk has no room for what was to be kept. What was kept before is untouched."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            "the disk is full, so the last words are not kept; what was kept before is. Make room "
            "and go on, or set EDGESERVE_DATA to a folder on another disk",
        )


class ChatsReadOnlyError(ChatsFileError):
    """The folder or file may not be written by this user, or not at all."""

    def __init__(self, path: Path, cause: str) -> None:
        self.cause = cause
        super().__init__(
            path,
            f"conversations cannot be kept here ({cause}). Make the folder writable, or set "
            "EDGESERVE_DATA to one that is",
        )


class ChatsBusyError(ChatsFileError):
    """Another program has held the file for longer than we wait."""

    def __init__(self, path: Path, waited_s: float) -> None:
        self.waited_s = waited_s
        super().__init__(
            path,
            f"another program has been writing for {waited_s:g} seconds; try again, or close it",
        )


class ChatsDamagedError(ChatsFileError):
    """The file's bytes make no sense any more. Opening it anew repairs it."""

    def __init__(self, path: Path, cause: str) -> None:
        self.cause = cause
        super().__init__(
            path,
            f"the file is damaged ({cause}). Start edgeserve again: what can be read is taken over "
            "into a new file, and the damaged one is kept beside it",
        )


class ChatsDiskError(ChatsFileError):
    """The system could not read or write the file: a failing disk, or one that was taken out."""

    def __init__(self, path: Path, cause: str) -> None:
        self.cause = cause
        super().__init__(
            path,
            f"the disk does not do what it should ({cause}). Check that it is still there; copy "
            "what is on it if it fails",
        )


class ChatsNewerError(ChatsFileError):
    """A newer edgeserve wrote the file. It is left alone."""

    def __init__(self, path: Path, version: int, known: int) -> None:
        self.version = version
        self.known = known
        super().__init__(
            path,
            f"a newer edgeserve wrote it (version {version} of the file, and this one knows up to "
            f"{known}). Update edgeserve, or set EDGESERVE_DATA to another folder",
        )


class ChatsForeignError(ChatsFileError):
    """The file is another program's database. It is left alone."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            "another program's database stands here. Move it away, or set EDGESERVE_DATA to "
            "another folder",
        )


class SearchMissingError(ChatsError):
    """This Python's SQLite was built without full-text search."""

    def __init__(self, version: str) -> None:
        self.version = version
        super().__init__(
            f"this Python's SQLite ({version}) has no full-text search (FTS5), which keeping chats "
            "needs; use a Python from python.org, your system's packages or uv"
        )


class ChatImportError(ChatsError):
    """A file to import is not what it should be. `place` says where in it: a JSON path, or a line;
    nothing was imported."""

    exit_code = 2

    def __init__(self, name: str, place: str, reason: str) -> None:
        self.name = name
        self.place = place
        self.reason = reason
        where = f", {place}" if place else ""
        super().__init__(f"{name}{where}: {reason}; nothing was imported")


# --- the user's own prompts --------------------------------------------------------------------


class PromptError(EdgeServeError):
    """Something about a prompt in the folder of prompts."""

    exit_code = 2


class PromptNotFoundError(PromptError):
    """There is no prompt of this name. `choices` are the names that there are."""

    def __init__(self, name: str, folder: Path, choices: tuple[str, ...]) -> None:
        self.name = name
        self.folder = folder
        self.choices = choices
        there = f"; there are: {', '.join(choices)}" if choices else ""
        super().__init__(
            f"no prompt {_shown(name)}: write one into {folder / 'NAME.md'}, as Markdown with "
            f"{{{{variables}}}}{there}"
        )


class PromptFileError(PromptError):
    """A prompt's file cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class PromptVariableError(PromptError):
    """Values for a prompt's variables are missing, or are for variables that it does not have."""

    def __init__(self, name: str, missing: tuple[str, ...], unknown: tuple[str, ...]) -> None:
        self.name = name
        self.missing = missing
        self.unknown = unknown
        parts = [f"needs a value for {', '.join(missing)}"] if missing else []
        parts += [f"has no {', '.join(unknown)}"] if unknown else []
        super().__init__(f"prompt {_shown(name)} {' and '.join(parts)}")


# --- the terminal chat --------------------------------------------------------------------------


class AttachmentError(EdgeServeError):
    """A file that cannot go into a message."""

    exit_code = 2

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} was not attached: {reason}")


class EditorError(EdgeServeError):
    """The user's editor did not start, or failed. `path` is where what was written lies."""

    def __init__(self, editor: str, reason: str, path: Path | None) -> None:
        self.editor = editor
        self.reason = reason
        self.path = path
        kept = "" if path is None else f"; what you wrote is in {path}"
        super().__init__(f"{editor}: {reason}{kept}; set VISUAL or EDITOR to another editor")
