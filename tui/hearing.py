"""What a conversation tells, as the chat screen shows it; text that streams is not among it."""

from __future__ import annotations

from edgeserve.tui.chat_commands import ChatCommands
from edgeserve.tui.drawing import base_model_note, failure_note, repair_note
from edgeserve.tui.happenings import (
    AnswerOver,
    BranchShown,
    ChatsChanged,
    Happening,
    KeptAgain,
    ModelChanged,
    NotKept,
    PromptRead,
    Repaired,
    RoomAsked,
)
from edgeserve.tui.window import ChatWindow


class Hearing:
    def __init__(self, screen: ChatWindow, commands: ChatCommands) -> None:
        self._screen = screen
        self._commands = commands
        self._told_model_error: object = None
        self._told_base: set[str] = set()

    def hear(self, happening: Happening) -> None:
        screen = self._screen
        match happening:
            case BranchShown():
                screen.show_branch()
            case PromptRead():
                screen.draw_status()
            case AnswerOver(turn, error):
                if error is not None:
                    rest = "Nothing is lost: ctrl+r asks again." if turn is None else ""
                    screen.say(f"{error}\n{rest}".strip(), "trouble")
                elif turn is None:
                    screen.note("not answered: ctrl+r asks again")
                elif note := failure_note(turn):
                    screen.say(note, "trouble")
                else:
                    self._tell_of_base_model()
                screen.show_branch()
            case RoomAsked(room):
                screen.do(self._commands.ask_for_room(room))
            case NotKept(error):
                screen.say(
                    f"Not kept on disk: {error}\nIt stays on the screen, and is tried again.",
                    "trouble",
                )
            case KeptAgain():
                screen.say("Everything is kept on disk again.")
            case Repaired(salvage):
                had = screen.talk.whole  # what is read from now on may be less
                screen.do(self._commands.look_again(repair_note(salvage), had))
            case ModelChanged():
                self._model_changed()
            case ChatsChanged():
                screen.do(self._commands.fill_list(), group="list")
            case _:
                pass

    def _model_changed(self) -> None:
        screen = self._screen
        error = screen.switch.error
        if error is not None and error is not self._told_model_error:
            screen.do(self._commands.model_failed(error))
        elif error is None and self._told_model_error is not None:
            self._commands.model_failure_is_over()
        self._told_model_error = error
        if not screen.switch.loading:
            screen.do(self._commands.remember_model())
            self._tell_of_base_model()
        if not screen.talk.turns:
            screen.show_branch()
        screen.draw_status()

    def _tell_of_base_model(self) -> None:
        """Once, in a chat; an empty one says it in its middle."""
        model = self._screen.desk.client.model
        if model is None or model.has_chat_template or not self._screen.talk.turns:
            return
        if model.name not in self._told_base and not self._screen.notice.display:
            self._told_base.add(model.name)
            self._screen.say(base_model_note(model))
