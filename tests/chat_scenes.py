"""What the terminal chat can look like: each scene brings an app there by keys, for its picture."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, replace
from pathlib import Path

from textual.pilot import Pilot

from edgeserve.chats.store import ChatStore
from edgeserve.errors import ServerUnreachableError
from edgeserve.frozen import frozen
from edgeserve.terminal import Terminal
from edgeserve.tui.app import EdgeServeApp
from edgeserve.tui.client import (
    AnswerEnd,
    AnswerPiece,
    LoadProgress,
    PromptReading,
    TokenFact,
)
from edgeserve.types import SamplingDefaults
from tests.chat_app import NOW, Table, desk
from tests.chat_scene_texts import ANSWER, MARKDOWN, OFFERED, THOUGHTS, TITLES
from tests.fake_chat_client import IN_USE, FakeClient, words

SMALL, WIDE = (80, 24), (160, 48)


@frozen
class Scene:
    """`play` presses the keys. What it needs around it is made in a folder of its own."""

    play: Callable[[Table], Awaitable[None]]
    client: Callable[[], FakeClient] = lambda: FakeClient(model=IN_USE)
    given: Mapping[str, object] = field(default_factory=dict[str, object])
    before: Callable[[Path], None] = lambda _: None

    def app(self, folder: Path, theme: str = "dark") -> tuple[EdgeServeApp, FakeClient]:
        self.before(folder)
        client = self.client()
        return EdgeServeApp(desk(folder, client, **{"theme": theme, **self.given})), client

    async def act(self, app: EdgeServeApp, pilot: Pilot[None], client: FakeClient) -> None:
        """Plays, and returns when nothing on the screen moves any more."""
        table = Table(app, pilot, client)
        await table.until(lambda: table.chat.is_open)
        app.chat.composer.cursor_blink = False
        await self.play(table)
        for each in app.screen.query("Input, TextArea"):
            each.cursor_blink = False  # type: ignore[attr-defined]
        await table.until(lambda: app.screen is not app.chat or not app.chat.transcript.is_busy)
        await pilot.pause()


# --- chats ---------------------------------------------------------------------------------------


async def _empty(table: Table) -> None:
    await table.shows("8.2k tokens of context")


async def _chat(table: Table) -> None:
    table.client.will_answer(words(ANSWER, reasoning="The user asks about monads."))
    await table.ask("What is a monad?")


async def _markdown(table: Table) -> None:
    table.client.will_answer(words(MARKDOWN))
    await table.ask("Compare sorting algorithms.")


async def _thoughts(table: Table) -> None:
    table.client.will_answer(words("Train A, by ten minutes.", reasoning=THOUGHTS))
    await table.ask("Which train is first?")
    await table.pilot.press("tab", "enter")


async def _scrolled(table: Table) -> None:
    for number in range(1, 13):
        table.client.will_answer(words(f"Answer {number}. " + "And so it goes on. " * 12))
        await table.ask(f"Question {number}")
    table.client.will_answer(words("Something new. " * 30))
    table.client.hold()
    await table.type("One more", "enter")
    await table.until(lambda: len(table.client.answers) == 13)
    await table.client.let(8)
    await table.shows("Something new.")
    await table.pilot.press("pageup", "pageup")
    await table.client.let(30)
    await table.shows("new text below")


async def _branches(table: Table) -> None:
    for answer in ("Blue.", "Green, mostly.", "It depends on the light."):
        table.client.will_answer(words(answer))
    await table.ask("Which colour is the sea?")
    for _ in range(2):
        await table.pilot.press("ctrl+r")
        await table.until(lambda: not table.chat.talk.is_answering)
    await table.shows("‹3/3›")
    await table.pilot.press("tab")
    await table.pilot.press("left_square_bracket")
    await table.shows("‹2/3›")


async def _editing(table: Table) -> None:
    await table.ask("Which colour is the see?")
    await table.pilot.press("alt+e")
    await table.shows("Editing")
    await table.shows("next turn")


async def _broken(table: Table) -> None:
    gone = ServerUnreachableError("http://10.0.0.7:8080", "the connection was reset")
    table.client.will_answer((*words("The three causes of the war were")[:-1], gone))
    await table.type("Why did it begin?", "enter")
    await table.shows("/continue goes on")


async def _loading(table: Table) -> None:
    await table.client.let_load(1)
    await table.type("Hello", "enter")
    await table.shows("then your answer")


async def _reading(table: Table) -> None:
    table.client.will_answer((PromptReading(28100, 1000, 12400, 41.0), AnswerEnd("stop")))
    table.client.hold()
    await table.type("Summarise the attached report.", "enter")
    await table.until(lambda: table.client.answers)
    await table.client.let(1)
    await table.shows("41 s left")


async def _silent(table: Table) -> None:
    table.client.hold()
    await table.type("Are you there?", "enter")
    await table.until(lambda: table.client.answers)
    await table.later(12)
    await table.shows("waiting for the server · 12 s")


async def _room(table: Table) -> None:
    for _ in range(2):
        await table.ask("a" * 40)
    await table.type("b" * 60, "enter")
    await table.shows("The context is full")


# --- lists ---------------------------------------------------------------------------------------


def _many_chats(folder: Path) -> None:
    now = NOW

    with ChatStore(folder / "chats.db", clock=lambda: now) as store:
        for title, age, tags, pinned in sorted(TITLES, key=lambda each: -each[1]):
            now = NOW - age
            chat = store.new_chat(model="tiny")
            store.add_turn(chat.id, None, "user", f"About the heating in Lisbon: {title}")
            store.rename(chat.id, title)
            for tag in tags:
                store.tag(chat.id, tag)
            store.change(chat.id, pinned=pinned)


async def _lists(table: Table) -> None:
    await table.pilot.press("f2")
    await table.until(lambda: table.chat.chats.has_focus_within)
    await table.pilot.press("tab", "down")


async def _found(table: Table) -> None:
    await table.pilot.press("f2")
    await table.until(lambda: table.chat.chats.has_focus_within)
    await table.type("heating")
    await table.shows("About the heating")


async def _deleted(table: Table) -> None:
    await table.ask("Precious")
    await table.type("/delete", "enter")
    await table.shows("/undo brings it back")


# --- dialogs and panes ----------------------------------------------------------------------------


async def _cockpit(table: Table) -> None:
    await _chat(table)
    await table.pilot.press("f3")
    await table.shows("prefix hits")


_LIKELY = ((" Paris", 0.81), (" Lyon", 0.07), (" a", 0.05), ("\n", 0.03), (" in", 0.01))
_TOKENS = ("The", " capital", " of", " France", " is", " Paris", ",", " of", " course", ".")


def _fact(index: int, text: str) -> TokenFact:
    drafted = index in (2, 3, 7, 8)
    if text == " Paris":
        return TokenFact(text, 0.81, _LIKELY, drafted)
    return TokenFact(text, 0.6, drafted=drafted)


async def _tokens(table: Table) -> None:
    end = AnswerEnd(
        "stop", prompt_tokens=1240, cached_tokens=310, answer_tokens=10, num_draft_tokens=6,
        num_accepted_tokens=4, first_token_ms=840.0, tokens_per_s=31.2, seed=7,
        miss="the system prompt is another",
    )  # fmt: skip
    pieces = [AnswerPiece(fact.text, False, (fact,)) for fact in map(_fact, range(10), _TOKENS)]
    table.client.will_answer((PromptReading(10, 4, 10), *pieces, end))
    await table.ask("What is the capital of France?")
    await table.pilot.press("f3", "ctrl+t")
    await table.until(lambda: table.chat.transcript.has_focus)
    await table.pilot.press(*["right"] * 6)
    await table.shows("81.0 %")


async def _models(table: Table) -> None:
    await table.pilot.press("f4")
    await table.shows("To fetch")


async def _typed(table: Table) -> None:
    await table.client.let_load(1)
    await table.pilot.press("f4")
    await table.shows("To fetch")
    await table.pilot.press(*"q")
    await table.until(lambda: "smollm2" not in table.screen())
    await table.client.let_load(3)
    await table.later(12)
    await table.shows("stalled for 12 s")


async def _first_run(table: Table) -> None:
    await table.shows("No model is on this machine yet")


async def _settings(table: Table) -> None:
    await table.pilot.press("f5")
    await table.shows("repetition penalty")
    await table.pilot.press("tab")


async def _help(table: Table) -> None:
    await table.pilot.press("f1")
    await table.shows("Writing")


async def _palette(table: Table) -> None:
    await table.pilot.press("ctrl+p")
    await table.until(lambda: len(table.app.screen_stack) > 1)
    await table.pilot.press(*"cha")
    await table.shows("/chats")
    palette = table.app.screen
    searches = [each for each in table.app.workers if each.node is palette]
    await table.until(lambda: all(each.is_finished for each in searches))


async def _commands(table: Table) -> None:
    await _chat(table)
    await table.type("/")
    await table.shows("start a new chat")


def _files(folder: Path) -> None:
    (folder / "notes.md").write_text("# Notes\n" * 40)
    (folder / "numbers.csv").write_text("1,2\n" * 400)
    (folder / "native").mkdir()


async def _attaching(table: Table) -> None:
    await table.type("/attach notes.md", "enter")
    await table.shows("backspace takes it away")
    await table.type("Compare with @n")
    await table.shows("numbers.csv")
    await table.shows("next turn")


def _prompts(folder: Path) -> None:
    prompts = folder / "prompts"
    prompts.mkdir()
    for name, about in (("review", "Review a change"), ("translate", "Into another language")):
        text = f"---\ndescription: {about}\n---\nDo it in {{{{language}}}}: {{{{text}}}}"
        (prompts / f"{name}.md").write_text(text)


async def _choosing_prompt(table: Table) -> None:
    await table.type("/prompt", "enter")
    await table.until(lambda: len(table.app.screen_stack) > 1)


async def _filling_prompt(table: Table) -> None:
    await table.type("/prompt translate ", "enter")
    await table.shows("language")


async def _strange_names(table: Table) -> None:
    await table.ask(
        "标题很宽 \x1b[31m\u202eevil\u200b 这个聊天的标题比屏幕还要宽所以必须被切断才行"
    )


_STRANGE = replace(IN_USE, name="模型\x1b]0;x\x07-非常长的名字-2507-Instruct-Q4_K_M")


def _no_model() -> FakeClient:
    return FakeClient(offered=[replace(each, here=False) for each in OFFERED[3:]])


def _slow_model() -> FakeClient:
    client = FakeClient(loads={"tiny": (LoadProgress("download", 120_000_000, 1_130_000_000),) * 9})
    client.hold_loading()
    return client


def _stalled() -> FakeClient:
    """Of the model that is wanted at the start half a part comes."""
    client = _offering()
    client.loads["qwen3-4b"] = [
        LoadProgress("download", at * 100_000_000, 2_500_000_000) for at in (0, 1, 2, 3, 4, 5)
    ]
    client.hold_loading()
    return client


def _offering() -> FakeClient:
    return FakeClient(model=replace(IN_USE, name="llama-3.2-1b"), offered=OFFERED)


_RECOMMENDED = replace(
    IN_USE, sampling=SamplingDefaults(0.6, 0.95, 20, 0.0, origin="the catalogue")
)

_MODEL_MIND: Mapping[str, object] = {"model": "tiny"}
_WANTED: Mapping[str, object] = {"model": "qwen3-4b"}

SCENES: dict[str, Scene] = {
    "empty": Scene(_empty),
    "chat": Scene(_chat),
    "markdown": Scene(_markdown),
    "thoughts": Scene(_thoughts),
    "scrolled": Scene(_scrolled),
    "branches": Scene(_branches),
    "editing": Scene(_editing),
    "broken": Scene(_broken),
    "loading": Scene(_loading, _slow_model, _MODEL_MIND),
    "reading": Scene(_reading),
    "silent": Scene(_silent, lambda: FakeClient(model=IN_USE, place="http://10.0.0.7:8080")),
    "room": Scene(_room, lambda: FakeClient(model=replace(IN_USE, context_tokens=60))),
    "lists": Scene(_lists, before=_many_chats),
    "found": Scene(_found, before=_many_chats),
    "deleted": Scene(_deleted),
    "cockpit": Scene(_cockpit),
    "tokens": Scene(_tokens),
    "models": Scene(_models, _offering),
    "typed": Scene(_typed, _stalled, _WANTED),
    "first-run": Scene(_first_run, _no_model),
    "settings": Scene(_settings, lambda: FakeClient(model=_RECOMMENDED)),
    "help": Scene(_help),
    "palette": Scene(_palette),
    "commands": Scene(_commands),
    "attaching": Scene(_attaching, before=_files),
    "prompts": Scene(_choosing_prompt, before=_prompts),
    "variables": Scene(_filling_prompt, before=_prompts),
    "strange": Scene(_strange_names, lambda: FakeClient(model=_STRANGE)),
    "ascii": Scene(_markdown, given={"terminal": Terminal(is_ascii=True)}),
    "colourless": Scene(_branches, given={"terminal": Terminal(is_colourless=True)}),
}
"""By name. Most look the same in any theme: which are pictured how is test_tui_looks.py's."""
