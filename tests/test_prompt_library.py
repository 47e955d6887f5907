"""PromptLibrary: Markdown files with variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeserve.chats.prompt_library import PromptLibrary
from edgeserve.errors import PromptFileError, PromptNotFoundError, PromptVariableError


def library(folder: Path, **files: str | bytes) -> PromptLibrary:
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / f"{name}.md").write_bytes(data)
    return PromptLibrary(folder)


def test_a_prompt_has_its_description_and_variables(tmp_path: Path) -> None:
    text = (
        '---\ndescription: "Review a change"\nauthor: me\n---\n\n'
        "Review {{ what }} as {{who}}, {{what}}.\n"
    )
    prompt = library(tmp_path, review=text).prompt("review")
    assert prompt.description == "Review a change"
    assert prompt.variables == ("what", "who")
    assert prompt.filled({"what": "it", "who": "{{what}}"}) == "Review it as {{what}}, it."


def test_without_a_description_the_first_line_stands_for_it(tmp_path: Path) -> None:
    prompt = library(tmp_path, short="\n# Make it shorter\n\nPlease.").prompt("short.md")
    assert prompt.description == "Make it shorter"
    assert prompt.text == "# Make it shorter\n\nPlease."


def test_braces_that_are_no_variable_stay(tmp_path: Path) -> None:
    prompt = library(tmp_path, code="if (a) {{ b + c }} {{}} { {x} }").prompt("code")
    assert prompt.variables == ()
    assert prompt.filled({}) == "if (a) {{ b + c }} {{}} { {x} }"


def test_missing_and_unknown_values_are_named(tmp_path: Path) -> None:
    prompt = library(tmp_path, p="{{a}} {{b}}").prompt("p")
    with pytest.raises(PromptVariableError, match="needs a value for b and has no c") as caught:
        prompt.filled({"a": "1", "c": "2"})
    assert (caught.value.missing, caught.value.unknown) == (("b",), ("c",))


def test_names_are_listed_also_from_folders(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "review.md").write_text("Look.")
    (tmp_path / ".trash").mkdir()
    (tmp_path / ".trash" / "old.md").write_text("Old.")
    (tmp_path / "notes.txt").write_text("no prompt")
    there = library(tmp_path, b="B", a="A")
    assert there.names() == ("a", "b", "code/review")
    assert there.prompt("code/review").text == "Look."
    assert [prompt.name for prompt in there.prompts()] == ["a", "b", "code/review"]


@pytest.mark.parametrize("name", ["none", "../outside", "/etc/passwd", "", "code/../a"])
def test_a_name_that_is_not_there_gets_those_that_are(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (tmp_path / "outside.md").write_text("secret")
    with pytest.raises(PromptNotFoundError, match="there are: a") as caught:
        library(folder, a="A").prompt(name)
    assert caught.value.choices == ("a",)


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert PromptLibrary(tmp_path / "none").names() == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has no text"),
        (b"---\ndescription: x\n---\n\n", "has no text"),
        (b"---\ndescription: x\nno end", "no second ---"),
        (b"one\ntwo \xff", "line 2 is not UTF-8"),
        (b"x" * (2**20 + 1), "longer than"),
    ],
)
def test_a_broken_file_says_what_is_wrong(tmp_path: Path, content: bytes, reason: str) -> None:
    there = library(tmp_path, bad=content, good="Good.")
    with pytest.raises(PromptFileError, match=reason) as caught:
        there.prompt("bad")
    assert caught.value.path == tmp_path / "bad.md"
    assert [prompt.name for prompt in there.prompts()] == ["good"]
