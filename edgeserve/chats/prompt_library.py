"""The user's own prompts: Markdown files in a folder, with {{variables}} to be filled in.

A file may begin with a block of `name: value` lines between two lines of ---, of which
`description` is shown in lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from edgeserve.errors import PromptFileError, PromptNotFoundError, PromptVariableError
from edgeserve.frozen import frozen

_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_-]*)\s*\}\}")
_MAX_BYTES = 2**20
_SUFFIX = ".md"


@frozen
class Prompt:
    """A prompt as its file has it. `variables` are named in the order in which they appear."""

    name: str
    path: Path
    description: str
    text: str

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_VARIABLE.findall(self.text)))

    def filled(self, values: Mapping[str, str]) -> str:
        """The text with a value for each variable, put in as it is.

        Raises PromptVariableError where one is missing, or is for a variable that is not there.
        """
        missing = tuple(name for name in self.variables if name not in values)
        unknown = tuple(name for name in values if name not in self.variables)
        if missing or unknown:
            raise PromptVariableError(self.name, missing, unknown)
        return _VARIABLE.sub(lambda found: values[found[1]], self.text)


class PromptLibrary:
    """The prompts in a folder, which need not exist. A file in a folder inside is `folder/name`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> tuple[str, ...]:
        """By the alphabet."""
        try:
            found = [path for path in self.folder.rglob(f"*{_SUFFIX}") if path.is_file()]
        except OSError as error:
            raise PromptFileError(self.folder, error.strerror or str(error)) from error
        relative = (path.relative_to(self.folder).with_suffix("") for path in found)
        shown = (each for each in relative if not any(p.startswith(".") for p in each.parts))
        return tuple(sorted(each.as_posix() for each in shown))

    def prompts(self) -> tuple[Prompt, ...]:
        """All that can be read: a broken file hides no other, and says what is wrong with it once
        it is asked for by name."""
        found: list[Prompt] = []
        for name in self.names():
            try:
                found.append(self.prompt(name))
            except PromptFileError:
                continue
        return tuple(found)

    def prompt(self, name: str) -> Prompt:
        """Raises PromptNotFoundError and PromptFileError."""
        wanted = name.removesuffix(_SUFFIX)
        names = self.names()
        if wanted not in names:  # which also keeps "../secret" out
            raise PromptNotFoundError(name, self.folder, names)
        return prompt_in(self.folder / f"{wanted}{_SUFFIX}", wanted)


def prompt_in(path: Path, name: str = "") -> Prompt:
    """The prompt in a file, wherever it lies; "" names it by its path. Raises PromptFileError."""
    description, text = _parts(_read(path), path)
    return Prompt(name or str(path), path, description, text)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise PromptFileError(path, error.strerror or str(error)) from error
    if len(data) > _MAX_BYTES:
        raise PromptFileError(path, f"is longer than {_MAX_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise PromptFileError(path, f"line {line} is not UTF-8 text") from error


def _parts(content: str, path: Path) -> tuple[str, str]:
    """Description and text. Without a description, a list shows the first line that has words."""
    description, text = "", content
    lines = content.split("\n")
    if lines[0].rstrip() == "---":
        ends = [at for at, line in enumerate(lines[1:], 1) if line.rstrip() == "---"]
        if not ends:
            raise PromptFileError(path, "the block that --- begins has no second ---")
        for line in lines[1 : ends[0]]:
            key, _, value = line.partition(":")
            if key.strip() == "description":
                description = value.strip().strip("\"'")
        text = "\n".join(lines[ends[0] + 1 :])
    text = text.strip("\n")
    if not text.strip():
        raise PromptFileError(path, "has no text")
    first = next(line for line in text.split("\n") if line.strip())
    return description or first.strip().lstrip("# "), text
