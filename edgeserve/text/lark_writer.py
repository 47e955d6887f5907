"""A Lark grammar as it is written, in llguidance's dialect. Knows no tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

Spell = Callable[[str], Sequence[str | int]]
"""A text as the texts and the ids of control tokens that it is generated as: no text of a grammar
matches a control token."""


def as_text(text: str) -> Sequence[str | int]:
    """For vocabularies in which none of a form's tags is a control token."""
    return (text,)


class LarkWriter:
    """Rules, and how tags are spelled in them."""

    def __init__(self, spell: Spell = as_text) -> None:
        self._spell = spell
        self._rules: list[str] = []
        self._num_named = 0
        self.owners: list[str] = []
        """What each of the grammar's schemas describes, in order."""

    def rule(self, body: str, *, terminal: bool = False, lazy: bool = False) -> str:
        """Adds a rule; its name."""
        self._num_named += 1
        name = f"{'T' if terminal else 'r'}{self._num_named}"
        self._rules.append(f"{name}{'[lazy]' if lazy else ''}: {body}")
        return name

    def text(self, text: str) -> str:
        """Exactly this text; empty for none."""
        return join(*(_piece(piece) for piece in self._pieces(text)))

    def until(self, text: str, before: str = "TEXT") -> str:
        """Any text, or one of the terminal `before`, up to and with the first occurrence of this
        one."""
        pieces = self._pieces(text)
        first = next((at for at, piece in enumerate(pieces) if isinstance(piece, int)), None)
        if first is None:
            return self.rule(f"{before} {_piece(text)}", lazy=True)
        # Text ends where a control token comes, whatever it is.
        before = join(before, *(_piece(piece) for piece in pieces[:first]))
        head = before if first == 0 else self.rule(before, terminal=True)
        return join(head, *(_piece(piece) for piece in pieces[first:]))

    def json(self, schema: object, owner: str) -> str:
        """JSON that a schema describes, for a rule that is to be added before any other."""
        self.owners.append(owner)
        return f"%json {json.dumps(schema, ensure_ascii=False)}"

    def grammar(self, start: str) -> str:
        """The whole."""
        return "\n".join([f"start: {start}", *self._rules, r"TEXT: /(.|\n)*/", ""])

    def _pieces(self, text: str) -> list[str | int]:
        return [piece for piece in self._spell(text) if piece != ""] if text else []


def join(*pieces: str) -> str:
    """One after the other; empty ones are none."""
    return " ".join(piece for piece in pieces if piece)


def either(options: Sequence[str]) -> str:
    """One of them."""
    return options[0] if len(options) == 1 else f"({' | '.join(options)})"


def _piece(piece: str | int) -> str:
    return f"<[{piece}]>" if isinstance(piece, int) else json.dumps(piece, ensure_ascii=False)
