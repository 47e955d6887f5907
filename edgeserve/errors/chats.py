"""What keeping conversations, prompts of one's own and the terminal chat end with."""

from __future__ import annotations

from pathlib import Path

from edgeserve.errors.base import EdgeServeError, shown


class ChatsError(EdgeServeError):
    """Something about the conversations that are kept, or the file they are kept in."""


class ChatNotFoundError(ChatsError):
    """No such chat or turn (any more): another window may have deleted it."""

    def __init__(self, what: str, id: str) -> None:
        self.what = what
        self.id = id
        super().__init__(f"there is no {what} {shown(id)}; it may have been deleted for good")


class AnswerUnderWayError(ChatsError):
    """The answer that was to be continued, or followed, is still being written."""

    def __init__(self) -> None:
        super().__init__(
            "an answer is being written here, perhaps by another window; wait for its end, or stop "
            "it there"
        )


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
            f"no prompt {shown(name)}: write one into {folder / 'NAME.md'}, as Markdown with "
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
        super().__init__(f"prompt {shown(name)} {' and '.join(parts)}")


# --- the terminal chat --------------------------------------------------------------------------


class AttachmentError(EdgeServeError):
    """A file that cannot go into a message."""

    exit_code = 2

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} was not attached: {reason}")


class SummaryError(EdgeServeError):
    """A summary that was to stand for the turns before did not come."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the summary did not come: {reason}; nothing was left out of the chat")


class AnswerFailedError(EdgeServeError):
    """An answer met what nobody foresaw, which is a mistake of ours. `cause` is what was raised."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause
        at = cause.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        place = f" at {Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}" if at else ""
        said = " ".join(str(cause).split())[:200]
        super().__init__(
            f"the answer failed unexpectedly ({type(cause).__name__}{place}: {said}); what was "
            "written so far is kept. Ask again; if it fails again, start edgeserve anew, and "
            "report this line as a mistake of edgeserve's"
        )


class EditorError(EdgeServeError):
    """The user's editor did not start, or failed. `path` is where what was written lies."""

    def __init__(self, editor: str, reason: str, path: Path | None) -> None:
        self.editor = editor
        self.reason = reason
        self.path = path
        kept = "" if path is None else f"; what you wrote is in {path}"
        super().__init__(f"{editor}: {reason}{kept}; set VISUAL or EDITOR to another editor")
