"""What somebody wants of a transcript, said to the screen around it."""

from __future__ import annotations

from textual.message import Message

from edgeserve.tui.client import TokenFact


class TurnSelected(Message):
    """The selection moved to this turn."""

    def __init__(self, turn_id: str) -> None:
        super().__init__()
        self.turn_id = turn_id


class BranchAsked(Message):
    """Somebody wants the branch `step` (-1 or 1) beside this turn's."""

    def __init__(self, turn_id: str, step: int) -> None:
        super().__init__()
        self.turn_id = turn_id
        self.step = step


class CodeCopyAsked(Message):
    """Somebody wants this code in the clipboard."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class LinkAsked(Message):
    """Somebody clicked a link."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url


class TokenPointed(Message):
    """A token of a tinted answer is pointed at."""

    def __init__(self, token: TokenFact) -> None:
        super().__init__()
        self.token = token
