"""`edgeserve chat --plain`: what a screen reader hears, what a pipe gets, what is kept."""

from __future__ import annotations

import asyncio
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgeserve.chats.records import TurnState
from edgeserve.chats.store import ChatStore
from edgeserve.errors import AnswerBrokenError
from edgeserve.tui.client import AnswerEnd, AnswerPiece, PromptReading, PromptSize, Question
from edgeserve.tui.keeper import ChatKeeper
from edgeserve.tui.plain_chat import PlainChat
from edgeserve.tui.plain_lines import LineReader, without_keys

from .fake_chat_client import IN_USE, FakeClient, words
from .scripted_server import chunk, serving, stream
from .tiny_models import write_tiny_model

SECONDS = 30


def said(
    lines: Sequence[str], client: FakeClient, path: Path, *, clock: Iterator[float] | None = None
) -> str:
    """What is written for these lines."""
    out = io.StringIO()
    seconds = clock or iter(range(100))

    async def run() -> None:
        keeper = ChatKeeper(lambda: ChatStore(path / "chats.db"))
        chat = PlainChat(
            client, keeper, LineReader(lines), out, echoes=True, clock=lambda: next(seconds, 100.0)
        )
        try:
            await asyncio.wait_for(chat.run(), SECONDS)
        finally:
            await keeper.close()

    asyncio.run(run())
    return out.getvalue()


def client(*scripts: Sequence[object]) -> FakeClient:
    made = FakeClient(model=IN_USE)
    made.will_answer(*scripts)  # type: ignore[arg-type]
    return made


def test_turns_begin_with_who_says_them(tmp_path: Path) -> None:
    fake = client(words("Good day", reasoning="hm so"), words("Bye"))
    assert said(["Hello", "Bye?"], fake, tmp_path) == (
        "You: Hello\nThinking: hm so\nAssistant: Good day\nYou: Bye?\nAssistant: Bye\n"
    )
    assert [m["content"] for m in fake.asked[1].messages if "content" in m] == [
        "Hello",
        "Good day",
        "Bye?",
    ]


def test_a_question_of_several_lines(tmp_path: Path) -> None:
    fake = client()
    said(["one\\", "two", '"""', "three", "", "/quit", '"""', "/quit", "never"], fake, tmp_path)
    asked = [question.messages[-1].get("content") for question in fake.asked]
    assert asked == ["one\ntwo", "three\n\n/quit"]


@pytest.mark.parametrize("word", ["/quit", "/exit", "/bye", "/q"])
def test_it_is_left_by_what_other_programs_call_it(tmp_path: Path, word: str) -> None:
    fake = client()
    said(["Hi", word, "never"], fake, tmp_path)
    assert [question.messages[-1].get("content") for question in fake.asked] == ["Hi"]


def test_what_a_model_says_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    text = said(["a"], client(words("\x1b[2J\x07red\u202e")), tmp_path)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "red" in text


def test_an_error_is_told_and_the_chat_goes_on(tmp_path: Path) -> None:
    broken = (AnswerPiece("half"), AnswerBrokenError("http://a", "gone"))
    text = said(["a", "/continue"], client(broken, words(" done")), tmp_path)
    assert "Assistant: half\nNote: the answer of the server at http://a broke off: gone" in text
    assert "You: /continue\nAssistant:  done\n" in text
    with ChatStore(tmp_path / "chats.db") as store:
        latest = store.latest()
        assert latest is not None
        turns = store.branch(latest.leaf_id)
    assert [turn.text for turn in turns] == ["a", "half done"]
    assert turns[-1].state is TurnState.COMPLETE


def test_an_error_that_nobody_foresaw_ends_the_turn_and_is_told(tmp_path: Path) -> None:
    broken = (AnswerPiece("half"), RuntimeError("odd thing"))
    text = said(["a", "/continue", "b"], client(broken, words(" done"), words("c")), tmp_path)
    assert "Assistant: half\nNote: the answer failed unexpectedly (RuntimeError at " in text
    assert "odd thing); what was written so far is kept. Ask again" in text
    assert "You: /continue\nAssistant:  done\nYou: b\nAssistant: c\n" in text
    with ChatStore(tmp_path / "chats.db") as store:
        latest = store.latest()
        assert latest is not None
        turns = store.branch(latest.leaf_id)
    assert [turn.text for turn in turns] == ["a", "half done", "b", "c"]


def test_an_error_that_nobody_foresaw_before_an_answer_is_told(tmp_path: Path) -> None:
    class Odd(FakeClient):
        async def size(self, question: Question) -> PromptSize | None:
            if question.messages[-1].get("content") != "a":
                return await super().size(question)
            raise KeyError("odd thing")

    text = said(["a", "b"], Odd(model=IN_USE), tmp_path)
    assert "Note: the answer failed unexpectedly (KeyError at " in text
    assert "nothing is lost\nYou: b\nAssistant: You said: " in text


def test_a_long_prompt_says_how_far_it_is_now_and_then(tmp_path: Path) -> None:
    reading = [PromptReading(100, 0, done, 9.0) for done in (10, 20, 30, 100)]
    fake = client([*reading, AnswerPiece("so"), AnswerEnd("stop")])
    times = iter([0.0, 0.0, 1.0, 6.0, 7.0, 20.0])
    text = said(["a"], fake, tmp_path, clock=times)
    assert text.count("reading the prompt") == 1
    assert "Note: reading the prompt, 20 of 100 tokens, 9 s left\n" in text


def test_commands_do_what_help_says(tmp_path: Path) -> None:
    fake = client(words("first"), words("second"), words("third"))
    text = said(["/help", "a", "/retry", "/new", "b", "/nonsense", "/model"], fake, tmp_path)
    for command in ("/new", "/retry", "/continue", "/model", "/quit"):
        assert command in text
    assert [len(question.messages) for question in fake.asked] == [1, 1, 1]
    assert "Note: there is no /nonsense" in text
    assert "  tiny\n  big (to be fetched)\n" in text
    with ChatStore(tmp_path / "chats.db") as store:
        assert [chat.title for chat in store.chats()] == ["b", "a"]


def test_a_chat_is_answered_as_its_settings_say(tmp_path: Path) -> None:
    fake = client(words("x"))
    lines = ["/set temperature 0.2", "/system be brief", "/think 99", "/settings", "a", "/set b 1"]
    text = said(lines, fake, tmp_path)
    assert text.count("  temperature = 0.2\n") == 4
    assert "Note: setting = 'b': must be one of temperature" in text
    (asked,) = fake.asked
    assert (asked.settings.temperature, asked.settings.thinking_budget) == (0.2, 99)
    assert asked.messages[0].get("content") == "be brief"


def test_a_command_of_the_screen_says_so(tmp_path: Path) -> None:
    text = said(["/cockpit", "//etc", "/clear"], client(words("x")), tmp_path)
    assert "Note: /cockpit needs the screen" in text
    assert "Note: a new chat" in text


def test_notes_may_go_elsewhere(tmp_path: Path) -> None:
    out, notes = io.StringIO(), io.StringIO()

    async def run() -> None:
        keeper = ChatKeeper(lambda: ChatStore(tmp_path / "chats.db"))
        lines = LineReader(["/new", "a"])
        chat = PlainChat(client(words("x")), keeper, lines, out, notes=notes, echoes=True)
        await asyncio.wait_for(chat.run(), SECONDS)
        await keeper.close()

    asyncio.run(run())
    assert out.getvalue() == "You: /new\nYou: a\nAssistant: x\n"
    assert notes.getvalue() == "Note: a new chat\n"


def test_keys_that_are_no_letters_are_not_asked() -> None:
    typed = "\x1b[A\x1b[1;5Dca\x1bOP\tf\x7fé\x1b"
    assert without_keys(typed) == "ca\tfé"


def test_ctrl_c_stops_the_answer_and_then_the_chat(tmp_path: Path) -> None:
    out, fake = io.StringIO(), client(words("one two three four"))
    reading, writing = os.pipe()

    async def run() -> None:
        fake.hold()
        keeper = ChatKeeper(lambda: ChatStore(tmp_path / "chats.db"))
        with os.fdopen(reading) as source:
            chat = PlainChat(fake, keeper, LineReader(source), out)
            running = asyncio.ensure_future(chat.run())
            os.write(writing, b"go\n")
            await fake.let(4)  # two readings, two words
            await chat.interrupt()
            while chat.talk.is_answering:
                await asyncio.sleep(0)
            await chat.interrupt()
            await asyncio.wait_for(running, SECONDS)
            os.close(writing)
        await keeper.close()

    asyncio.run(run())
    assert out.getvalue() == ("You: Assistant: one two \nNote: stopped; /continue goes on\nYou: \n")


def small(*scripts: Sequence[object]) -> FakeClient:
    """Has room for two questions of a hundred letters."""
    made = client(*scripts)
    made.model = replace(IN_USE, context_tokens=64)
    return made


def test_a_full_context_is_answered_in_each_way_and_the_next_line_is_a_question(
    tmp_path: Path,
) -> None:
    fake = small(*[words("ok")] * 5)
    lines = ["x" * 100, "y" * 100, "z" * 100, "cancel", "/retry", "new", "and?"]
    text = said(lines, fake, tmp_path)
    assert text.count("the chat is too long") == 2
    assert "You: cancel\nNote: given up\nYou: /retry\nNote: the chat is too long" in text
    assert text.endswith("You: new\nAssistant: ok\nYou: and?\nAssistant: ok\n")
    assert [m["content"] for m in fake.asked[-1].messages if "content" in m] == [
        "z" * 100,
        "ok",
        "and?",
    ]


def test_ctrl_c_gives_up_a_question_that_waits_for_room(tmp_path: Path) -> None:
    out, fake = io.StringIO(), small(*[words("ok")] * 3)
    reading, writing = os.pipe()

    async def run() -> None:
        keeper = ChatKeeper(lambda: ChatStore(tmp_path / "chats.db"))
        with os.fdopen(reading) as source:
            chat = PlainChat(fake, keeper, LineReader(source), out)
            running = asyncio.ensure_future(chat.run())
            os.write(writing, b"%b\n%b\n%b\n" % (b"x" * 100, b"y" * 100, b"z" * 100))
            while "summarise" not in out.getvalue():
                await asyncio.sleep(0.001)
            await chat.interrupt()
            os.write(writing, b"/new\nbye\n")
            os.close(writing)
            await asyncio.wait_for(running, SECONDS)
        await keeper.close()

    asyncio.run(asyncio.wait_for(run(), SECONDS))
    ended = "Note: given up\nNote: a new chat\nYou: Assistant: ok\nYou: \n"
    assert out.getvalue().endswith(ended)


def chat(*args: str, stdin: str, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "edgeserve.cli", "chat", *args]
    environ = {"EDGESERVE_CACHE": str(cache), "HOME": str(cache), "PATH": os.environ["PATH"]}
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=environ, timeout=60, check=False
    )


def test_as_a_program_it_finds_the_last_chat_again(tmp_path: Path) -> None:
    model = str(write_tiny_model(tmp_path / "tiny.gguf", "llama", context=512))
    first = chat(model, "--no-disk-cache", stdin="a\n", cache=tmp_path / "cache")
    assert (first.returncode, f"Note: loading {model}\n" in first.stderr) == (0, True)
    assert first.stdout.startswith("You: a\nAssistant: ")
    assert "Note:" not in first.stdout
    # Without a model's name: the one used last.
    second = chat("-c", "--no-disk-cache", stdin="", cache=tmp_path / "cache")
    assert second.returncode == 0
    assert second.stdout.startswith("You: a\nAssistant: ")
    assert 'going on with "a"' in second.stderr
    assert f"Note: loading {model}\n" in second.stderr


def test_what_is_piped_in_begins_a_chat_unless_told_otherwise(tmp_path: Path) -> None:
    model = str(write_tiny_model(tmp_path / "tiny.gguf", "llama", context=512))
    for args in ((), ("--max-tokens", "3"), ("-c",)):
        assert chat(model, *args, stdin="a\n", cache=tmp_path).returncode == 0
    with ChatStore(next(tmp_path.rglob("chats.db"))) as store:
        chats = store.chats()
        assert sorted(len(store.branch(chat.leaf_id)) for chat in chats) == [2, 4]
        assert [chat.settings for chat in chats] == [{"max_tokens": 3}, {}]


def test_as_a_program_with_a_server(tmp_path: Path) -> None:
    with serving(
        lambda _: stream([chunk("as"), chunk("ked"), chunk(finish_reason="stop")])
    ) as server:
        done = chat("--url", server.url, "--system", "be brief", stdin="a\n", cache=tmp_path)
    assert done.returncode == 0
    assert done.stdout.endswith("You: a\nAssistant: asked\n")
    assert server.asked[0]["messages"][0] == {"role": "system", "content": "be brief"}


def test_without_a_model_it_says_how_to_get_one(tmp_path: Path) -> None:
    done = chat(stdin="a\n", cache=tmp_path)
    assert done.returncode == 5
    assert "edgeserve pull smollm2" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="no such shell")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_as_a_program_whose_streams_are_closed(closed: str, tmp_path: Path) -> None:
    model = str(write_tiny_model(tmp_path / "tiny.gguf", "llama", context=512))
    command = shlex.join([sys.executable, "-P", "-m", "edgeserve.cli"])
    environ = {"EDGESERVE_CACHE": str(tmp_path), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    options = f"{shlex.quote(model)} --no-disk-cache"
    run, chat = f"run {options} a --max-tokens 3", f"chat {options} --max-tokens 3"
    script = f"{command} {run} </dev/null {closed} && {command} {chat} {closed}"
    shell = ["sh", "-c", script]
    done = subprocess.run(
        shell, input=b"b\n", capture_output=True, env=environ, timeout=60, check=False
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    with ChatStore(next(tmp_path.rglob("chats.db"))) as store:
        asked = sorted(store.branch(chat.leaf_id)[0].text for chat in store.chats())
    assert asked == (["a"] if "<" in closed else ["a", "b"])
