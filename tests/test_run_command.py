"""`edgeserve run` as a process: what it prints where, exit codes, pipes, Ctrl-C, odd terminals."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeserve import cli

from .tiny_models import write_tiny_model

CONTEXT = 512
INTERRUPT_SECONDS = 5 * 1.0
COMMAND = [sys.executable, "-P", "-m", "edgeserve.cli", "run"]
QUICK = ("--max-tokens", "8", "--seed", "7")

Done = subprocess.CompletedProcess[str]


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder without a model in it."""
    for name in list(os.environ):
        if name.startswith(("EDGESERVE_", "HF_", "OLLAMA_", "LLAMA_", "XDG_", "NO_COLOR")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EDGESERVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return str(write_tiny_model(path, "llama", context=CONTEXT))


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that says nothing but one token, over and over, when it is greedy."""
    path = tmp_path_factory.mktemp("model") / "endless.gguf"
    return str(write_tiny_model(path, "llama", seed=1, layers=4, tied=True, context=100_000))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "base.gguf"
    return str(write_tiny_model(path, "llama", chat_template=None))


class Command:
    """`edgeserve run` in this process: the same code without a second of imports."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *args: str, stdin: bytes | None = None) -> Done:
        piped = io.TextIOWrapper(io.BytesIO(stdin or b""), encoding="ascii")
        self._monkeypatch.setattr(sys, "stdin", piped)
        try:
            code = cli.main(["run", *args])
        except SystemExit as left:  # argparse's way out
            code = int(left.code or 0)
        captured = self._capsys.readouterr()
        return subprocess.CompletedProcess(args, code, captured.out, captured.err)

    def answer(self, *args: str, stdin: bytes | None = None) -> dict[str, object]:
        """What --json prints."""
        done = self(*args, "--json", stdin=stdin)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def error(self, code: int, *args: str, stdin: bytes | None = None) -> str:
        """The one line on standard error."""
        done = self(*args, stdin=stdin)
        assert done.returncode == code, done.stderr
        assert done.stdout == ""
        assert done.stderr.startswith("edgeserve: error: ")
        assert done.stderr.count("\n") == 1
        return done.stderr


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)


def process(*args: str, stdin: bytes | None = None, **environ: str) -> Done:
    """`edgeserve run` as a process of its own."""
    done = subprocess.run(
        [*COMMAND, *args],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        env={**os.environ, **environ},
        timeout=120,
        check=False,
    )
    out, error = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(args, done.returncode, out, error)


# --- prompts -------------------------------------------------------------------------------------


def test_answer_goes_to_standard_output_and_nothing_else_does(run: Command, tiny: str) -> None:
    done = process(tiny, "the inn", *QUICK, PYTHONIOENCODING="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{run.answer(tiny, 'the inn', *QUICK)['text']}\n"


def test_json_is_one_object_with_everything(run: Command, tiny: str) -> None:
    found = run.answer(tiny, "the inn", *QUICK)
    assert set(found) == {
        "model",
        "text",
        "finish_reason",
        "seed",
        "token_ids",
        "usage",
        "timings",
    }
    assert (found["model"], found["seed"], found["finish_reason"]) == (tiny, 7, "length")
    ids, usage, timings = found["token_ids"], found["usage"], found["timings"]
    assert isinstance(ids, list)
    assert isinstance(usage, dict)
    assert isinstance(timings, dict)
    assert len(ids) == usage["completion_tokens"] == 8
    assert usage["cached_tokens"] == 0
    assert timings["total_ms"] >= timings["first_token_ms"] > 0


def num_prompt_tokens(found: dict[str, object]) -> int:
    usage = found["usage"]
    assert isinstance(usage, dict)
    return usage["prompt_tokens"]


def test_words_are_joined_and_piped_text_follows(run: Command, tiny: str) -> None:
    one = run.answer(tiny, "--raw", "abc def", *QUICK)
    assert run.answer(tiny, "--raw", "abc", "def", *QUICK)["text"] == one["text"]
    piped = run.answer(tiny, "--raw", "abc", *QUICK, stdin=b"def")
    assert piped["text"] == run.answer(tiny, "--raw", "abc\n\ndef", *QUICK)["text"]
    only = run.answer(tiny, "--raw", *QUICK, stdin=b"abc def")
    assert only["text"] == one["text"]


def test_piped_text_is_utf8_whatever_the_locale_and_its_mark_is_dropped(
    run: Command, tiny: str
) -> None:
    expected = run.answer(tiny, "--raw", *QUICK, stdin="é😀".encode())["text"]
    marked = run.answer(tiny, "--raw", *QUICK, stdin=b"\xef\xbb\xbf" + "é😀".encode())["text"]
    assert num_prompt_tokens(run.answer(tiny, "--raw", *QUICK, stdin="é😀".encode())) == 6
    assert expected == marked


def test_template_is_used_unless_raw(run: Command, tiny: str) -> None:
    chat, raw = run.answer(tiny, "abc", *QUICK), run.answer(tiny, "--raw", "abc", *QUICK)
    assert num_prompt_tokens(raw) == 3
    assert num_prompt_tokens(chat) > 3


def test_system_message_goes_before(run: Command, tiny: str) -> None:
    with_system = run.answer(tiny, "abc", "--system", "be", *QUICK)
    without = run.answer(tiny, "abc", *QUICK)
    assert (
        num_prompt_tokens(with_system) == num_prompt_tokens(without) + len("<>system\nbe<>\n") - 2
    )
    assert with_system["text"] != without["text"]


def test_base_model_continues_the_text_as_it_is(run: Command, base: str) -> None:
    found = run.answer(base, "abc", *QUICK)
    assert num_prompt_tokens(found) == 3
    assert found["text"] == run.answer(base, "--raw", "abc", *QUICK)["text"]


def test_chat_template_may_be_a_file(run: Command, base: str, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{{ messages[0]['content'] }}!")
    assert num_prompt_tokens(run.answer(base, "abc", "--chat-template", str(template), *QUICK)) == 4


def test_same_seed_gives_the_same_answer_and_other_seeds_do_not(run: Command, tiny: str) -> None:
    texts = [run.answer(tiny, "abc", "--seed", s, "--max-tokens", "20")["text"] for s in "334"]
    assert texts[0] == texts[1]
    assert texts[1] != texts[2]


def test_greedy_needs_no_seed(run: Command, tiny: str) -> None:
    args = (tiny, "abc", "--temperature", "0", "--max-tokens", "8")
    assert run.answer(*args)["text"] == run.answer(*args)["text"]


def test_stop_is_not_printed(run: Command, tiny: str) -> None:
    whole = str(run.answer(tiny, "abc", *QUICK)["text"])
    stop = whole[3:5]
    found = run.answer(tiny, "abc", *QUICK, "--stop", stop, "--stop", "")
    assert (found["text"], found["finish_reason"]) == (whole[: whole.index(stop)], "stop")


def test_oracle_is_a_device(run: Command, tiny: str) -> None:
    greedy = ("abc", "--temperature", "0", "--max-tokens", "4")
    oracle = run.answer(tiny, *greedy, "--device", "oracle")
    assert oracle["token_ids"] == run.answer(tiny, *greedy)["token_ids"]


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--temperature", "-1"], "temperature"),
        (["--temperature", "nan"], "temperature"),
        (["--temperature", "hot"], "--temperature"),
        (["--top-p", "1.0001"], "top_p"),
        (["--top-k", "1.5"], "--top-k"),
        (["--max-tokens", "0"], "max_tokens"),
        (["--max-tokens", "-1"], "max_tokens"),
        (["--seed", str(2**64)], "seed"),
        (["--repetition-penalty", "0"], "repetition_penalty"),
        (["--max-model-len", "513"], "max_model_len = 513: must be at most 512"),
        (["--max-model-len", "0"], "max_model_len"),
        (["--kv-cache-memory", "lots"], "write it like 512M, 2G or 1.5Gi"),
        (["--device", "tpu"], "device"),
        (["--kv-cache-dtype", "f32"], "f16 or q8_0 or q4_0"),
        (["--kv-cache-dtype", "q8_0", "--device", "oracle"], "kv_cache_dtype"),
        (["--raw", "--system", "x"], "--system"),
        (["--chat-template", "no/such/file"], "--chat-template"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_value_that_is_not_allowed_is_exit_code_2(
    run: Command, tiny: str, args: list[str], words: str
) -> None:
    assert words in run.error(2, tiny, "abc", *args)


def test_prompt_too_long_for_the_context_says_both_numbers(run: Command, tiny: str) -> None:
    line = run.error(2, tiny, "--raw", stdin=b"x" * 600)
    assert "512 tokens" in line
    assert "600 tokens" in line


def test_nothing_to_answer_is_exit_code_2(run: Command, tiny: str) -> None:
    for stdin in (None, b"", b" \n"):
        assert "PROMPT" in run.error(2, tiny, stdin=stdin)


def test_piped_bytes_that_are_no_text_are_exit_code_2(run: Command, tiny: str) -> None:
    line = run.error(2, tiny, "abc", stdin=b"\x89PNG\r\n\x1a\n")
    assert "byte 0x89 at 0" in line
    assert "UTF-8" in line


def test_model_that_is_not_there_is_exit_code_5_with_a_suggestion(run: Command) -> None:
    assert "smollm2" in run.error(5, "smolm2", "abc")


def test_damaged_model_is_exit_code_3(run: Command, tiny: str, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(Path(tiny).read_bytes()[:4000])
    assert str(cut) in run.error(3, str(cut), "abc")


def test_template_that_fails_is_exit_code_4(run: Command, tiny: str, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    for source in ("{% for %}", "{{ raise_exception('not like this') }}", "{{ 1 // 0 }}"):
        template.write_text(source)
        run.error(4, tiny, "abc", "--chat-template", str(template))


# --- pipes and signals ---------------------------------------------------------------------------


def test_reader_that_goes_away_is_exit_code_141_and_silence(endless: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, endless, "abc", "--temperature", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert len(process.stdout.read(1)) == 1
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk_behind_the_output_is_one_line(tiny: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, tiny, "abc", *QUICK],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.decode().startswith("edgeserve: error: ")
    assert done.stderr.count(b"\n") == 1


@pytest.fixture
def talking(endless: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run that has printed its first characters and has much more to say."""
    process = subprocess.Popen(
        [*COMMAND, endless, "abc", "--temperature", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    if process.stderr is not None:
        process.stderr.close()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_interrupt_is_exit_code_130_at_once_and_no_traceback(
    talking: subprocess.Popen[bytes],
) -> None:
    start = time.perf_counter()
    talking.send_signal(signal.SIGINT)
    _, error = talking.communicate(timeout=60)
    assert time.perf_counter() - start < INTERRUPT_SECONDS
    assert talking.returncode == 130
    assert error == b"\nedgeserve: interrupted\n"


@pytest.mark.parametrize(
    "environ",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"NO_COLOR": "1", "TERM": "dumb"},
    ],
)
def test_answers_print_under_any_locale(tiny: str, environ: dict[str, str]) -> None:
    done = process(
        tiny, "abc", "--seed", "1", "--max-tokens", "30", stdin="é😀".encode(), **environ
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) > 1


# --- a real model --------------------------------------------------------------------------------


def test_embedded_default_answers_in_words(run: Command, smollm2_path: Path) -> None:
    question = "What is the capital of France?"
    found = run.answer(str(smollm2_path), question, "--temperature", "0", "--max-tokens", "16")
    assert "Paris" in str(found["text"])
