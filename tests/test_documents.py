"""What the documents say, held to what is so: examples run, commands parse, names exist."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeserve import cli, errors

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands(program: str) -> list[list[str]]:
    """The command lines of README's console blocks that start `program`, as words."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    found = [line[1:].rpartition("|")[2].strip() for line in lines if line.startswith("$ ")]
    words = [shlex.split(line, comments=True) for line in found]
    return [each[1:] for each in words if each[0] == program]


@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples_run(
    code: str, smollm2_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(code.replace('"smollm2"', repr(str(smollm2_path))), {})
    printed = capsys.readouterr().out
    assert printed
    assert "None" not in printed.splitlines()  # as of an answer that was held to a schema and cut
    for said in re.findall(r"print\(.*\)  # (.*)", code):
        assert said in printed.splitlines()


@pytest.mark.parametrize("words", commands("edgeserve"), ids=" ".join)
def test_commands_parse(words: list[str]) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    two_words = " ".join(words[:2]) in cli.COMMANDS
    name, rest = (" ".join(words[:2]), words[2:]) if two_words else (words[0], words[1:])
    importlib.import_module(cli.COMMANDS[name].module).add_arguments(parser)
    parser.parse_intermixed_args(rest)


def error_types(base: type[errors.EdgeServeError]) -> Iterator[type[errors.EdgeServeError]]:
    yield base
    for derived in base.__subclasses__():
        yield from error_types(derived)


def test_every_exit_code_is_in_the_table() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    raised = {kind.exit_code for kind in error_types(errors.EdgeServeError)}
    assert raised | {0, 130, 141} == documented


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    linked = [document.parent / path for path in re.findall(r"\]\((?!https?:)([^)#]+)\)", text)]
    named = re.findall(r"`((?:scripts|tests|tools|benches|native|models|docs)/[\w./-]*\w)`", text)
    paths = [*linked, *(ROOT / path for path in named)]
    assert [str(path) for path in paths if not path.exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tests_that_are_named_exist(document: Path) -> None:
    named = set(re.findall(r"\btest_\w+", document.read_text(encoding="utf-8")))
    files = {path.stem for path in (ROOT / "tests").glob("test_*.py")}
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*.py"))
    assert {name for name in named - files if f"def {name}(" not in text} == set()
