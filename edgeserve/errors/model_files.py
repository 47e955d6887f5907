"""What is wrong with a model file, or with where it should come from."""

from __future__ import annotations

from pathlib import Path

from edgeserve.errors.base import EdgeServeError


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
