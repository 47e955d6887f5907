"""Models, settings, room, the first run: what is shown, and what comes of the keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgeserve.chats.store import ChatStore
from edgeserve.errors import ChatsDiskFullError, LicenseNotAcceptedError
from edgeserve.terminal import Terminal
from edgeserve.tui.client import AnswerEnd, LoadProgress, PromptReading
from edgeserve.types import SamplingDefaults
from tests.chat_app import Table, drive
from tests.fake_chat_client import IN_USE, TO_FETCH, FakeClient, words


def test_the_first_run_offers_what_fits_and_one_key_fetches_it(tmp_path: Path):
    fits = replace(TO_FETCH, name="small", fits=True)
    client = FakeClient(
        offered=[fits, TO_FETCH],
        loads={"small": (LoadProgress("download", 500_000_000, 1_000_000_000),)},
    )

    async def body(table: Table) -> None:
        await table.shows("No model is on this machine yet")
        assert "big" not in table.screen()
        client.hold_loading()
        await table.pilot.press("1")
        await client.let_load(1)
        await table.shows("small is on its way: ask already")
        await table.shows("fetching small · 500.0 MB of 1.0 GB · 50 %".replace("500.0", "500"))
        await client.release_loading()
        await table.ask("Hi")
        assert table.texts() == ["Hi", "You said: Hi"]

    drive(tmp_path, body, client=client)


def test_a_model_is_switched_in_mid_chat(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        await table.pilot.press("f4")
        await table.shows("5.0 GB")
        await table.shows("too large")
        await table.shows("kept by Ollama")
        await table.pilot.press("escape")
        await table.type("/model big", "enter")
        await table.until(lambda: table.client.model and table.client.model.name == "big")
        await table.ask("Again")
        made = table.chat.talk.turns[-1].generation
        assert made is not None
        assert made.model == "big"

    drive(tmp_path, body)


def test_terms_are_asked_before_a_model_is_fetched(tmp_path: Path):
    terms = LicenseNotAcceptedError("big", "Gemma Terms", "https://example.org")
    client = _Asking(model=IN_USE, loads={"big": (terms,)})

    async def body(table: Table) -> None:
        await table.type("/model big", "enter")
        await table.shows("Gemma Terms")
        await table.pilot.press("enter")
        await table.until(lambda: client.model is not None and client.model.name == "big")
        assert client.accepted == ["big"]

    drive(tmp_path, body, client=client)


class _Asking(FakeClient):
    """Has the model once its terms are accepted."""

    def accept_license(self, name: str) -> None:
        super().accept_license(name)
        self.loads.clear()


def test_settings_of_a_chat_are_kept_and_used(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        await table.pilot.press("f5")
        await table.shows("Settings of this chat")
        await table.type("Be brief.", "tab")
        await table.type("2", "enter")
        await table.until(lambda: table.chat.talk.chat.system_prompt == "Be brief.")
        await table.type("/think off", "enter")
        await table.shows("thinking: off")
        await table.ask("Again")
        asked = table.client.asked[-1]
        assert asked.settings.temperature == 2.0
        assert asked.settings.thinking is False
        assert asked.messages[0] == {"role": "system", "content": "Be brief."}

    drive(tmp_path, body)


def test_a_setting_that_cannot_be_is_explained(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("/set top_p 3", "enter")
        await table.shows("a number above 0, at most 1")

    drive(tmp_path, body)


def test_settings_are_shown_and_how_one_is_set(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("/set temperature 0.2", "enter")
        await table.shows("temperature = 0.2")
        await table.type("/set", "enter")
        await table.says("temperature 0.2, top_p auto")
        await table.says("/set temperature 0.2 sets one")
        await table.type("/temperature 0", "enter")
        await table.says("There is no command /temperature: /set temperature 0 sets it")

    drive(tmp_path, body)


def test_what_auto_stands_for_is_said(tmp_path: Path):
    sampling = SamplingDefaults(0.6, 0.95, 20, origin="model file")
    client = FakeClient(model=replace(IN_USE, sampling=sampling))

    async def body(table: Table) -> None:
        await table.pilot.press("f5")
        await table.shows("auto 0.6")
        await table.shows("auto 20")
        await table.says("Empty is auto: as the model file says")
        await table.pilot.press("escape")
        await table.type("/set top_k 5", "enter")
        await table.shows("top_k = 5")
        await table.type("/set", "enter")
        await table.says("temperature auto 0.6, top_p auto 0.95, top_k 5")
        await table.type("/set top_k auto", "enter")
        await table.shows("top_k = auto 20")
        client.model = replace(IN_USE, sampling=None)
        await table.pilot.press("f5")
        await table.says("Empty is auto: as the server likes")
        assert "auto 0.6" not in table.screen()

    drive(tmp_path, body, client=client)


def test_what_was_said_of_a_model_goes_with_the_next(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("/model nosuch", "enter")
        await table.shows("answers as before")
        await table.type("/model tiny", "enter")
        await table.until(lambda: "answers as before" not in table.screen())

    drive(tmp_path, body)


def test_a_base_model_says_once_what_it_is_good_for(tmp_path: Path):
    client = FakeClient(model=replace(IN_USE, name="pythia", has_chat_template=False))

    async def body(table: Table) -> None:
        await table.ask("What is it?")
        await table.says("pythia is a base model, without a chat template")
        await table.says("choose another: f4")
        await table.type("Once upon")
        await table.until(lambda: "base model" not in table.screen())
        await table.ask(" a time")
        assert "base model" not in table.screen()

    drive(tmp_path, body, client=client)


def test_a_base_model_that_comes_into_a_chat_says_so(tmp_path: Path):
    client = FakeClient(model=IN_USE)

    async def body(table: Table) -> None:
        await table.ask("Hi")
        client.base_models.add("big")
        await table.type("/model big", "enter")
        await table.says("big is a base model")
        await table.type("/model tiny", "enter")
        await table.until(lambda: client.model and client.model.name == "tiny")

    drive(tmp_path, body, client=client)


def test_a_full_context_asks(tmp_path: Path):
    client = FakeClient(model=replace(IN_USE, context_tokens=40))

    async def body(table: Table) -> None:
        await table.ask("a" * 60)
        await table.type("b" * 60, "enter")
        await table.shows("The context is full")
        assert len(client.asked) == 1
        await table.pilot.press("enter")
        await table.until(lambda: len(client.asked) == 2)
        await table.shows("no longer in the context")

    drive(tmp_path, body, client=client)


def test_reading_a_long_prompt_says_how_far_it_is(tmp_path: Path):
    client = FakeClient(model=IN_USE)
    client.will_answer((PromptReading(28100, 1000, 12400, 41.0), AnswerEnd("stop")))
    client.hold()

    async def body(table: Table) -> None:
        await table.type("Hi", "enter")
        await table.until(lambda: client.answers)
        await client.let(1)
        await table.shows("reading prompt 12,400 / 28,100 · 41 s left")
        await client.release()

    drive(tmp_path, body, client=client)


def test_the_cockpit_tells_speed_hits_and_why_it_missed(tmp_path: Path):
    client = FakeClient(model=IN_USE)
    end = AnswerEnd(
        "stop",
        prompt_tokens=100,
        cached_tokens=40,
        answer_tokens=1,
        num_draft_tokens=10,
        num_accepted_tokens=7,
        first_token_ms=150.0,
        tokens_per_s=30.0,
        miss="the system prompt is another",
    )
    client.will_answer(words("Well", end=end))

    async def body(table: Table) -> None:
        await table.ask("Hi")
        await table.pilot.press("f3")
        for text in ("30.0 tokens/s", "0.15 s", "40 tokens, 40 %", "the system", "7 of 10 right"):
            await table.shows(text)
        await table.pilot.press("ctrl+t")
        await table.until(lambda: table.chat.transcript.has_focus)
        await table.pilot.press("right")
        await table.shows('"Well"')
        await table.shows("50.0 %")

    drive(tmp_path, body, client=client, size=(140, 40))


class _FullStore(ChatStore):
    def add_turn(self, *_: object, **__: object):  # type: ignore[no-untyped-def, override]
        raise ChatsDiskFullError(Path("chats.db"))


def test_a_full_disk_leaves_the_question_in_the_composer(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("Do not lose me", "enter")
        await table.shows("chats.db")
        assert table.chat.composer.text == "Do not lose me"

    drive(tmp_path, body, open_chats=lambda: _FullStore(tmp_path / "chats.db"))


def test_a_file_of_chats_that_is_none_is_told_and_left_alone(tmp_path: Path):
    path = tmp_path / "chats.db"
    path.write_bytes(b"not a database at all, by any means" * 100)

    async def body(table: Table) -> None:
        await table.shows("chats.db")
        await table.ask("Still works")
        assert len(table.texts()) == 2

    drive(tmp_path, body)
    assert any(b"not a database" in each.read_bytes() for each in tmp_path.glob("chats.db*"))


def test_ascii_is_all_that_is_drawn_where_the_locale_knows_no_more(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        await table.pilot.press("f3")
        await table.shows("Engine")
        assert table.screen().isascii(), table.screen()
        await table.pilot.press("f1")
        await table.shows("Help")
        assert table.screen().isascii(), table.screen()

    drive(tmp_path, body, terminal=Terminal(is_ascii=True), size=(120, 40))


def test_a_narrow_and_a_wide_terminal(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        assert not table.chat.shows_list
        await table.pilot.resize_terminal(140, 30)
        await table.until(lambda: table.chat.shows_list)
        await table.pilot.resize_terminal(40, 10)
        await table.until(lambda: not table.chat.shows_list)
        await table.shows("You said: Hi")

    drive(tmp_path, body)
