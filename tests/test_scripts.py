"""The scripts, run in a tree of their own with a Python and compilers that only pretend."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(path for path in (ROOT / "scripts").iterdir() if path.suffix != ".sh")
TOOLS = [
    "cat",
    "chmod",
    "cksum",
    "dirname",
    "find",
    "grep",
    "mkdir",
    "sed",
    "sh",
    "sort",
    "tail",
    "tee",
]
TOOLS += ["tr", "xargs"]

PYTHON = """#!/bin/sh
# Says what it was asked into a log; pretends to be a virtual environment's Python, too.
echo "$*" >>"{log}"
case "$*" in
*version_info\\ \\<*) exit {too_old} ;;
*base_prefix*) echo "{log}" 3 11 0 ;;
*'import venv'*) exit {no_venv} ;;
'-m venv'*) mkdir -p "$4/bin" && cat "$0" >"$4/bin/python" && chmod +x "$4/bin/python" ;;
'-m pip install'*) echo '  Downloading thing-1.0-py3-none-any.whl (9.9 MB)' && {pip} ;;
esac
"""


@dataclass
class Tree:
    """A copy of the scripts beside the files that they read, and a PATH of its own."""

    root: Path
    bin: Path
    log: Path

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def python(self, *, too_old: int = 0, no_venv: int = 0, pip: str = "true") -> None:
        text = PYTHON.format(log=self.log, too_old=too_old, no_venv=no_venv, pip=pip)
        self.program("python3", text)

    def run(
        self, script: str, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.root / "scripts" / script), *arguments],
            env={"PATH": str(self.bin), "LC_ALL": "C", **environment},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def asked(self, what: str) -> list[str]:
        """The times that Python was asked something that begins with `what`."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(what)]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A machine with a Python and a C compiler that say yes to everything."""
    made = Tree(tmp_path / "with a space", tmp_path / "bin", tmp_path / "log")
    made.bin.mkdir()
    shutil.copytree(ROOT / "scripts", made.root / "scripts")
    for folder in ("native", "tools"):
        (made.root / folder).mkdir()
    (made.root / "native" / "one.c").write_text("int one;\n")
    for name in ("pyproject.toml", "CMakeLists.txt"):
        shutil.copy(ROOT / name, made.root / name)
    for name in TOOLS:
        (made.bin / name).symlink_to(shutil.which(name) or pytest.fail(f"{name} is not installed"))
    made.python()
    for name in ("cc", "c++"):
        made.program(name, "#!/bin/sh\ncat >/dev/null\n")
    return made


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_can_be_run_and_parsed(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/bin/sh\n")
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0


def test_ci_runs_checks_and_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert {"scripts/check || status=1", "scripts/test || status=1"} <= set(
        script.read_text().splitlines()
    )


def test_try_sets_up_and_asks_the_embedded_default(tree: Tree) -> None:
    ran = tree.run("try", "Why is the sky blue?", "--seed", "7")
    assert ran.returncode == 0, ran.stderr
    assert tree.asked("-m edgeserve.cli") == [
        "-m edgeserve.cli run smollm2 --max-tokens 256 Why is the sky blue? --seed 7"
    ]
    assert "Downloading thing-1.0-py3-none-any.whl (9.9 MB)" in ran.stderr
    assert f"in this shell: . {tree.root}/.venv/bin/activate\n" in ran.stderr


def test_try_without_a_question_asks_one(tree: Tree) -> None:
    tree.run("try")
    assert tree.asked("-m edgeserve.cli run smollm2 --max-tokens 256 What is")


def test_try_installs_nothing_the_second_time(tree: Tree) -> None:
    tree.run("try")
    tree.log.unlink()
    ran = tree.run("try")
    assert ran.stderr == ""
    assert tree.asked("-m pip") == tree.asked("-m venv") == []
    assert len(tree.asked("-m edgeserve.cli")) == 1


@pytest.mark.parametrize("changed", ["native/one.c", "pyproject.toml", "CMakeLists.txt"])
def test_a_changed_source_is_built_again(tree: Tree, changed: str) -> None:
    tree.run("try")
    tree.log.unlink()
    with (tree.root / changed).open("a") as file:
        file.write("\n")
    tree.run("try")
    assert tree.asked("-m pip install")


def test_a_moved_checkout_is_installed_again(tree: Tree) -> None:
    tree.run("try")
    tree.log.unlink()
    tree.root = tree.root.rename(tree.root.with_name("moved"))
    tree.run("try")
    assert tree.asked("-m pip install")


def test_try_uses_what_test_has_installed(tree: Tree) -> None:
    tree.run("test", "--without-reference")
    tree.log.unlink()
    tree.run("try")
    assert tree.asked("-m pip install") == []


def test_test_compiles_the_reference_and_says_how_to_skip_it(tree: Tree) -> None:
    ran = tree.run("test")
    assert ran.returncode == 0, ran.stderr
    (reference,) = [line for line in tree.asked("-m pip install") if ":reference" in line]
    assert reference.endswith(f"--group {tree.root}/pyproject.toml:reference")
    assert "llama-cpp-python==" in ran.stderr
    assert "about 6 minutes" in ran.stderr
    assert "scripts/test --without-reference" in ran.stderr
    assert len(tree.asked("-m pytest")) == 1


def test_test_without_reference_leaves_it_and_passes_arguments_on(tree: Tree) -> None:
    ran = tree.run("test", "--without-reference", "-k", "a or b")
    assert not [line for line in tree.asked("-m pip install") if ":reference" in line]
    assert tree.asked("-m pytest") == ["-m pytest -k a or b"]
    assert "6 minutes" not in ran.stderr


def refusal(ran: subprocess.CompletedProcess[str]) -> str:
    """The last line of a script that gave up, which is all that it says about why."""
    assert ran.returncode == 1
    return ran.stderr.splitlines()[-1]


def test_no_python_ends_in_one_line_with_the_remedy(tree: Tree) -> None:
    tree.python(too_old=1)
    ran = tree.run("try")
    assert ran.stderr.count("\n") == 1
    assert "no Python 3.11 or newer found" in refusal(ran)
    assert "EDGESERVE_PYTHON=" in refusal(ran)


def test_a_python_that_was_named_and_is_none_is_refused(tree: Tree) -> None:
    assert "EDGESERVE_PYTHON=/no/python" in refusal(tree.run("try", EDGESERVE_PYTHON="/no/python"))


def test_no_venv_module_ends_in_one_line_with_the_remedy(tree: Tree) -> None:
    tree.python(no_venv=1)
    ran = tree.run("try")
    assert ran.stderr.count("\n") == 1
    assert "apt install python3-venv" in refusal(ran)


@pytest.mark.parametrize("compiler", [None, "#!/bin/sh\nexit 1\n"], ids=["absent", "no headers"])
def test_no_compiler_ends_in_one_line_with_the_remedy(tree: Tree, compiler: str | None) -> None:
    (tree.bin / "cc").unlink()
    if compiler is not None:
        tree.program("cc", compiler)
    ran = tree.run("try")
    assert "no working C compiler found" in refusal(ran)
    assert "apt install build-essential" in refusal(ran)
    assert tree.asked("-m pip install") == []


def test_no_cpp_compiler_is_said_before_the_reference_is_fetched(tree: Tree) -> None:
    (tree.bin / "c++").unlink()
    assert "apt install g++; or do without it" in refusal(tree.run("test"))


def test_no_network_ends_in_one_line_with_the_remedy(tree: Tree) -> None:
    tree.python(pip="echo 'WARNING: Retrying: NewConnectionError(...)' && exit 1")
    assert "check the network" in refusal(tree.run("try"))


def test_a_failed_build_ends_with_the_error_and_the_log(tree: Tree) -> None:
    tree.python(pip="echo 'error: one.c:1: expected a declaration' && exit 1")
    ran = tree.run("try")
    assert "one.c:1: expected a declaration" in refusal(ran)
    assert str(tree.root / "build" / "install.log") in refusal(ran)
    assert tree.asked("-m edgeserve.cli") == []


def test_bench_lists_what_there_is(tree: Tree) -> None:
    (tree.root / "benches").mkdir()
    (tree.root / "benches" / "kl.py").write_text("")
    tree.bin.joinpath("ls").symlink_to(shutil.which("ls") or pytest.fail("ls is not installed"))
    assert "there are: kl" in refusal(tree.run("bench", "nothing"))


@pytest.mark.skipif(sys.platform != "linux", reason="the programs of the fake PATH are Linux's")
def test_fuzz_passes_arguments_on(tree: Tree) -> None:
    tree.run("fuzz", "--minutes", "1")
    assert tree.asked("tools/fuzz_gguf.py") == ["tools/fuzz_gguf.py --minutes 1"]
