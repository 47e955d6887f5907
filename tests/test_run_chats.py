"""`edgeserve run` among the chats: no model named, -c, prompt files; and `edgeserve replay`."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgeserve import LLM, cli
from edgeserve.chats.json_format import to_json
from edgeserve.chats.records import Conversation, TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.commands.chosen_model import chosen_model, names_model
from edgeserve.config import Config
from edgeserve.errors import ModelNotFoundError
from edgeserve.loader.catalog import load_catalog
from edgeserve.loader.store import ModelStore

from .tiny_models import write_tiny_model

QUICK = ("--max-tokens", "12", "--seed", "7", "--no-disk-cache")


class Machine:
    """A home folder of its own, and `edgeserve` in this process."""

    def __init__(
        self, home: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        self.home = home
        self.warned = ""
        self._capsys, self._patch = capsys, patch
        for name in ("HF_HUB_CACHE", "HF_HOME", "OLLAMA_MODELS", "LLAMA_CACHE"):
            patch.delenv(name, raising=False)
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "EDGESERVE_DATA"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(home))
        patch.setenv("EDGESERVE_CACHE", str(home / "cache"))
        patch.setenv("HF_HUB_OFFLINE", "1")

    @property
    def config(self) -> Config:
        return Config.from_environment()

    @property
    def chats(self) -> ChatStore:
        return ChatStore(self.config.chats_file)

    def run(self, *args: str, stdin: str = "", code: int = 0) -> str:
        """What a command prints on standard output; on standard error if it fails."""
        piped = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="ascii")
        self._patch.setattr(sys, "stdin", piped)
        try:
            ended = cli.main([*args])
        except SystemExit as left:  # argparse's way out
            ended = int(left.code or 0)
        captured = self._capsys.readouterr()
        self.warned = captured.err
        assert ended == code, captured.err
        return captured.err if code > 1 else captured.out

    def prompt(self, name: str, text: str) -> None:
        folder = self.config.prompt_files_dir
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(text)


@pytest.fixture
def machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Machine:
    return Machine(tmp_path / "home", capsys, monkeypatch)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return str(write_tiny_model(path, "llama", context=512))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "other.gguf"
    return str(write_tiny_model(path, "llama", context=512, seed=5))


@pytest.fixture(scope="module")
def said(tiny: str) -> Callable[..., str]:
    """What the tiny model answers to messages of these texts, in turns."""
    llm = LLM(tiny)

    def answer(*texts: str, seed: int = 7) -> str:
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
        return llm.chat(messages, seed=seed, max_tokens=12).text  # type: ignore[arg-type]

    return answer


# --- which model ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "is_model"),
    [
        ("smollm2", True),
        ("SmolLM2:Q8_0", True),
        ("hf:owner/repo", True),
        ("ollama:llama3:8b", True),
        ("absent/model.gguf", True),
        ("what", False),
        ("and/or", False),
        ("note: buy milk", False),
        ("What is a monad?", False),
    ],
)
def test_a_word_is_a_model_where_it_can_be_nothing_else(word: str, is_model: bool) -> None:
    assert names_model(word, load_catalog()) is is_model


def test_without_a_model_it_is_the_one_used_last(
    machine: Machine, tiny: str, said: Callable[..., str]
) -> None:
    machine.run("run", tiny, "a", *QUICK)
    assert machine.run("run", "the inn", *QUICK) == f"{said('the inn')}\n"
    assert machine.run("run", "inn", *QUICK) == f"{said('inn')}\n"
    assert machine.run("run", "the", "inn", *QUICK) == f"{said('the inn')}\n"
    assert machine.run("run", *QUICK, stdin="the inn") == f"{said('the inn')}\n"


def test_one_that_is_gone_is_not_used(machine: Machine, other: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone.gguf"
    gone.write_bytes(Path(other).read_bytes())
    machine.run("run", str(gone), "a", *QUICK)
    gone.unlink()
    assert "edgeserve pull smollm2" in machine.run("run", "a", *QUICK, code=5)


def test_of_several_models_one_that_chats_is_taken(machine: Machine, tiny: str) -> None:
    store = ModelStore(machine.config, load_catalog())
    with pytest.raises(ModelNotFoundError, match="no model on this machine"):
        chosen_model(store)
    folder = machine.config.models_dir
    folder.mkdir(parents=True)
    for entry in ("gemma3-270m", "smollm2"):
        file = load_catalog().find(entry)
        assert file is not None
        (folder / f"{entry}-{file.files[0].quant}.gguf").write_bytes(Path(tiny).read_bytes())
    assert chosen_model(store) == "smollm2"
    assert chosen_model(store, "gemma3-270m") == "gemma3-270m"


def test_a_misspelled_model_is_no_question(machine: Machine) -> None:
    assert "did you mean smollm2" in machine.run("run", "smolm2", "a question", code=5)


@pytest.mark.parametrize(
    "words",
    [("nosuchmodel", "hello there"), ("gpt-4o", "hi there"), ("gpt-4o", "hi"), ("smolm2",)],
)
def test_an_unknown_model_is_no_question(
    machine: Machine, tiny: str, words: tuple[str, ...]
) -> None:
    machine.run("run", tiny, "a", *QUICK)
    assert f"{words[0]}: no known model" in machine.run("run", *words, code=5)


def test_a_folder_in_a_models_place_names_the_files_in_it(machine: Machine) -> None:
    folder = machine.home / "models"
    folder.mkdir(parents=True)
    (folder / "m.gguf").write_bytes(b"GGUF")
    said = machine.run("run", str(folder), "hi", code=2)
    assert "is a folder; give one of its files: m.gguf" in said


# --- the chats -----------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [("--no-save",), ("--raw",), ("--json",)])
def test_what_is_no_chat_is_not_kept(machine: Machine, tiny: str, args: tuple[str, ...]) -> None:
    machine.run("run", tiny, "a", *args, *QUICK)
    assert not machine.config.chats_file.exists()


def test_what_a_program_reads_is_kept_too(machine: Machine, tiny: str) -> None:
    machine.run("run", tiny, "a", *QUICK)
    with machine.chats as store:
        assert [chat.title for chat in store.chats()] == ["a"]


def test_a_kept_question_has_all_that_a_replay_needs(machine: Machine, tiny: str) -> None:
    machine.run("run", tiny, "a", *QUICK, "--temperature", "0.7", "--system", "be brief")
    with LLM(tiny) as llm, machine.chats as store:
        chat = store.chats()[0]
        asked, answer = store.branch(chat.leaf_id)
        assert chat.system_prompt == "be brief"
        assert (asked.text, answer.state) == ("a", TurnState.COMPLETE)
        made = answer.generation
        assert made is not None
        assert made.fingerprint == llm.model.fingerprint
        assert (made.model, made.seed, len(made.token_ids)) == (tiny, 7, 12)
        assert made.settings == {"max_tokens": 12, "seed": 7, "temperature": 0.7}
        assert store.last_model() == tiny


def test_the_last_chat_goes_on(machine: Machine, tiny: str, said: Callable[..., str]) -> None:
    first = machine.run("run", tiny, "a", *QUICK)
    second = machine.run("run", "-c", "b", *QUICK)
    assert 'goes on with "a"' in machine.warned
    assert second == f"{said('a', first.removesuffix(chr(10)), 'b')}\n"
    with machine.chats as store:
        (chat,) = store.chats()
        assert [turn.text for turn in store.branch(chat.leaf_id)][::2] == ["a", "b"]


def test_without_a_chat_none_goes_on(machine: Machine, tiny: str) -> None:
    said = machine.run("run", "-m", tiny, "-c", "b", code=2)
    assert "-c must be left out the first time: there is no chat yet" in said


@pytest.mark.parametrize("args", [("--raw",), ("--no-save",), ("--system", "x")])
def test_what_a_chat_that_goes_on_has_no_use_for(machine: Machine, args: tuple[str, ...]) -> None:
    assert args[0] in machine.run("run", "-c", "b", *args, code=2)


def test_chats_that_cannot_be_kept_cost_no_answer(
    machine: Machine, tiny: str, said: Callable[..., str]
) -> None:
    machine.config.chats_file.parent.mkdir(parents=True)
    machine.config.chats_file.mkdir()
    assert machine.run("run", tiny, "a", *QUICK) == f"{said('a')}\n"
    assert machine.warned.count("not kept: ") == 1


# --- prompt files --------------------------------------------------------------------------------


def test_a_prompt_file_with_its_variables(
    machine: Machine, tiny: str, said: Callable[..., str]
) -> None:
    machine.prompt("review", "---\ndescription: reviews\n---\nAs {{role}}: {{input}}\n")
    printed = machine.run(
        "run", "-m", tiny, "-f", "review", "--set", "role=cook", *QUICK, stdin="the diff"
    )
    assert printed == f"{said('As cook: the diff')}\n"


def test_a_prompt_file_by_its_path(
    machine: Machine, tiny: str, said: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "questions.txt"
    path.write_text("the inn\n")
    assert machine.run("run", tiny, "-f", str(path), *QUICK) == f"{said('the inn')}\n"


def test_words_are_the_input_where_nothing_is_piped(
    machine: Machine, tiny: str, said: Callable[..., str]
) -> None:
    machine.prompt("explain", "Explain {{input}}.")
    printed = machine.run("run", "-m", tiny, "-f", "explain", "a", "monad", *QUICK)
    assert printed == f"{said('Explain a monad.')}\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("-f", "absent"), "no prompt 'absent': write one into"),
        (("-f", "code/absent"), "no prompt 'code/absent': write one into"),
        (("-f", "./absent.txt"), "absent.txt: No such file or directory"),
        (("-f", "questions.txt"), "questions.txt: No such file or directory"),
        (("-f", "review"), "role"),
        (("-f", "review", "--set", "role"), "NAME=VALUE"),
        (("a", "--set", "role=x"), "--set"),
    ],
)
def test_what_a_prompt_file_lacks_is_named(
    machine: Machine, tiny: str, args: tuple[str, ...], words: str
) -> None:
    machine.prompt("review", "As {{role}}")
    assert words in machine.run("run", "-m", tiny, *args, code=2)


# --- replay --------------------------------------------------------------------------------------


def exported(machine: Machine, path: Path, change: Callable[[Conversation], Conversation]) -> str:
    with machine.chats as store:
        conversation = store.conversation(store.chats()[0].id)
    path.write_bytes(to_json([change(conversation)]))
    return str(path)


def as_it_is(conversation: Conversation) -> Conversation:
    return conversation


@pytest.fixture
def talked(machine: Machine, tiny: str) -> Machine:
    """Two questions with their answers, 24 tokens."""
    machine.run("run", tiny, "the inn", *QUICK)
    machine.run("run", "-c", "and shorter", *QUICK)
    return machine


def test_a_replay_is_identical(talked: Machine, tmp_path: Path) -> None:
    path = exported(talked, tmp_path / "chat.json", as_it_is)
    for name in (path, "the inn", "INN"):
        assert talked.run("replay", name, "--no-disk-cache").splitlines() == [
            "turn 2: identical, 12 tokens",
            "turn 4: identical, 12 tokens",
            "identical, 24 tokens",
        ]


def test_a_replay_says_where_an_answer_differs(talked: Machine, tmp_path: Path) -> None:
    def changed(conversation: Conversation) -> Conversation:
        *before, last = conversation.turns
        made = last.generation
        assert made is not None
        ids = (*made.token_ids[:5], made.token_ids[5] ^ 1, *made.token_ids[6:])
        turn = replace(last, text=f"x{last.text}", generation=replace(made, token_ids=ids))
        return replace(conversation, turns=(*before, turn))

    path = exported(talked, tmp_path / "chat.json", changed)
    lines = talked.run("replay", path, code=1).splitlines()
    assert lines[0] == "turn 2: identical, 12 tokens"
    assert lines[1].startswith("turn 4: differs from token 6 on: then 'x")
    assert lines[2] == "1 of 2 answers differ"


def test_a_replay_by_another_model_compares_all_the_same(talked: Machine, other: str) -> None:
    lines = talked.run("replay", "the inn", "--model", other, code=1).splitlines()
    assert lines[2] == "2 of 2 answers differ"


def test_a_replay_names_what_it_leaves_out(talked: Machine, other: str, tmp_path: Path) -> None:
    def changed(conversation: Conversation) -> Conversation:
        first, second, third, last = conversation.turns
        assert second.generation is not None
        assert last.generation is not None
        return replace(
            conversation,
            turns=(
                first,
                replace(second, generation=replace(second.generation, model=other)),
                third,
                replace(last, generation=replace(last.generation, seed=None)),
            ),
        )

    path = exported(talked, tmp_path / "chat.json", changed)
    lines = talked.run("replay", path, code=1).splitlines()
    assert lines == [
        f"turn 2: left out: {other} is another file than the one that answered then",
        "turn 4: left out: how it was made is not known: no seed",
        "nothing could be compared; 2 left out",
    ]


def test_a_replay_of_no_chat_is_refused(talked: Machine, tmp_path: Path) -> None:
    assert "title or id" in talked.run("replay", "nobody's", code=2)
    assert "/export chat.json" in talked.run("replay", "chat.md", code=2)
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({"a": 1}))
    assert "broken.json" in talked.run("replay", str(broken), code=2)
