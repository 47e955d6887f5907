"""What commands do about who answers, and how: models, settings, the cockpit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from textual.content import Content

from edgeserve.errors import EdgeServeError, LicenseNotAcceptedError
from edgeserve.tui.chat_settings import NUMBERS, as_setting, auto, auto_explained, thinking
from edgeserve.tui.client import HERE, OfferedModel
from edgeserve.tui.terminal_text import shown_line
from edgeserve.tui.window import ChatWindow
from edgeserve.tui.wording import called, tokens_short
from edgeserve.typed_paths import is_file, path_of


class ModelCommands:
    """`known` are the names that `/model` takes, each with a note, once they were asked for."""

    def __init__(self, screen: ChatWindow) -> None:
        self._screen = screen
        self.known: list[tuple[str, str]] = []
        self._remembered = ""
        self._failure = ""

    def table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "models": self._models,
            "model": self._model,
            "settings": self._settings,
            "system": self._system,
            "think": self._think,
            "set": self._set,
            "cockpit": self._cockpit,
        }

    # --- models ---------------------------------------------------------------------------------

    async def offered(self) -> Sequence[OfferedModel]:
        found = await self._screen.desk.client.models()
        self.known = [(each.name, "here" if each.here else "to fetch") for each in found]
        return found

    async def choose_first(self) -> None:
        """At the start, where none was asked for: one that is here, or a short list to fetch."""
        try:
            found = await self.offered()
        except EdgeServeError:
            self._screen.switch.is_choosing = False
            self._screen.show_branch()
            raise
        last = await self._screen.keeper.run(lambda store: store.last_model())
        if last in {each.name for each in found if each.here} or self._is_file_here(last):
            self._screen.switch.use(last)
            return
        usable = [each for each in found if each.here and each.fits is not False and not each.note]
        here = usable or [each for each in found if each.here and each.fits is not False]
        if here:
            self._screen.switch.use(here[0].name)
            return
        self._screen.switch.is_choosing = False
        self._screen.show_branch()
        from edgeserve.tui.screens.models import FirstRunScreen

        name = await self._screen.ask_user(FirstRunScreen(found, self._screen.signs))
        if name:
            self._screen.switch.use(name)

    def _is_file_here(self, name: str) -> bool:
        """A model file that lies in no folder of models is offered by nobody."""
        is_local = self._screen.desk.client.place == HERE
        return is_local and name.endswith(".gguf") and is_file(path_of(name))

    async def _models(self, _: str) -> None:
        from edgeserve.tui.screens.models import ModelsScreen

        screen = self._screen
        models = ModelsScreen(self.offered, screen.desk.client, screen.switch, screen.signs)
        name = await screen.ask_user(models)
        if name:
            await self._model(name)

    async def _model(self, name: str) -> None:
        if not name:
            await self._models("")
            return
        talk = self._screen.talk
        if talk.answering.stage(talk.chat.id) not in (None, "model"):  # that one waits for a model
            await talk.stop()
        self._screen.switch.use(name)

    async def failed(self, error: EdgeServeError) -> None:
        """A model did not come: its terms can be accepted here, all else is said."""
        screen = self._screen
        if isinstance(error, LicenseNotAcceptedError):
            from edgeserve.tui.screens.dialogs import ChoiceDialog, Offer

            text = f"{error.model} comes under the {error.license_name}:\n{error.url}"
            offers = [Offer("yes", "Accept these terms and fetch it"), Offer("no", "Do not")]
            dialog = ChoiceDialog("Terms of the model", text, offers)
            if await screen.ask_user(dialog) == "yes":
                screen.desk.client.accept_license(error.model)
                screen.switch.use(error.model)
            return
        before = screen.desk.client.model
        rest = f"{before.name} answers as before." if before else "f4 shows what else there is."
        self._failure = f"The model did not load: {error}\n{rest} Your chats are as they were."
        screen.say(self._failure, "trouble")

    def failure_is_over(self) -> None:
        """Another model is on its way: what was said of the last one is not true any more."""
        if self._failure and self._screen.notice.text == self._failure:
            self._screen.notice.dismiss()

    def welcome(self) -> Content:
        """What an empty chat says."""
        screen = self._screen
        model = screen.desk.client.model
        lines: list[Content] = []
        if model is not None:
            context = model.context_tokens
            about = f"{tokens_short(context)} tokens of context" if context else ""
            note = model.note or f"on {screen.desk.client.place}"
            lines += [
                Content.styled(shown_line(called(model.name)), "bold $accent"),
                Content.styled(shown_line(screen.signs.joined(about, note)), "$quiet"),
            ]
        else:
            lines.append(Content.styled("edgeserve", "bold $accent"))
            waiting = screen.switch.loading
            if waiting:
                text = f"{shown_line(called(waiting))} is on its way: ask already"
            elif screen.switch.is_choosing:
                text = "looking for the model used last: ask already"
            else:
                text = "no model yet: f4 shows what there is"
            lines.append(Content.styled(text, "$quiet"))
        return Content("\n").join(lines)

    async def remember(self) -> None:
        """The model that answers now is the one to begin with the next time."""
        model = self._screen.desk.client.model
        if model is not None and model.name != self._remembered:
            self._remembered = model.name
            await self._screen.keeper.run(lambda store: store.remember_model(model.name))

    # --- settings -------------------------------------------------------------------------------

    async def _settings(self, _: str) -> None:
        from edgeserve.tui.screens.settings import SettingsScreen

        talk, model = self._screen.talk, self._screen.desk.client.model
        chosen = await self._screen.ask_user(SettingsScreen(talk.chat, model))
        if chosen is not None:
            await talk.change(system_prompt=chosen.system_prompt, settings=chosen.settings)
            self._screen.note("kept: for this chat, from the next answer on")

    async def _system(self, text: str) -> None:
        talk = self._screen.talk
        if not text:
            from edgeserve.tui.screens.dialogs import LineDialog

            dialog = LineDialog(
                "System prompt", "For this chat; empty for none", talk.chat.system_prompt
            )
            entered = await self._screen.ask_user(dialog)
            if entered is None:
                return
            text = entered
        await talk.change(system_prompt=text)
        self._screen.note("system prompt kept" if text else "no system prompt")

    async def _think(self, how: str) -> None:
        model = self._screen.desk.client.model
        await self._screen.talk.change(settings=thinking(how))
        said = f"thinking: {how or 'auto'}"
        if model is not None and not model.thinks:
            said += f" ({model.name} cannot think first)"
        self._screen.note(said)

    async def _set(self, argument: str) -> None:
        model = self._screen.desk.client.model
        name, _, value = argument.partition(" ")
        if not name:
            settings = self._screen.talk.chat.settings
            now = [f"{each} {settings.get(each, auto(each, model))}" for each in NUMBERS]
            how = "/set temperature 0.2 sets one, /set temperature auto takes it away."
            self._screen.say(f"{', '.join(now)}\n{how} {auto_explained(model)}.")
            return
        chosen = as_setting(name, value)
        await self._screen.talk.change(settings={name: chosen})
        self._screen.note(f"{name} = {auto(name, model) if chosen is None else value}")

    # --- cockpit --------------------------------------------------------------------------------

    async def _cockpit(self, _: str) -> None:
        self._screen.toggle_cockpit()
        await self.draw_cockpit()

    async def draw_cockpit(self) -> None:
        screen = self._screen
        cockpit = screen.cockpit
        if not cockpit.display:
            return
        answers = [turn for turn in screen.talk.turns if turn.role == "assistant"]
        last = answers[-1] if answers else None
        end = None if last is None else screen.talk.answering.drafts(last.id)
        cockpit.show_answer(None if last is None else last.generation, end)
        client = screen.desk.client
        cockpit.show_engine(client.model, client.place, await client.figures())
        if not cockpit.has_token:
            cockpit.show_token(None)
