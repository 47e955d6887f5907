"""The turns of a chat as a tree: branches, and where a turn stands among its alternatives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from edgeserve.chats.records import Turn


class TurnTree:
    """Turns by their ids and parents. Their order is the one in which they were added."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self.turns: Sequence[Turn] = tuple(turns)
        self._by_id = {turn.id: turn for turn in self.turns}
        self._children: dict[str | None, list[Turn]] = {}
        for turn in self.turns:
            self._children.setdefault(turn.parent_id, []).append(turn)

    def __contains__(self, turn_id: object) -> bool:
        return turn_id in self._by_id

    def turn(self, turn_id: str) -> Turn:
        """Raises KeyError."""
        return self._by_id[turn_id]

    def children(self, turn_id: str | None) -> Sequence[Turn]:
        """Of None: the first turns."""
        return tuple(self._children.get(turn_id, ()))

    def branch(self, leaf_id: str | None) -> Sequence[Turn]:
        """From the first turn to this one; nothing for None or a turn that is not there."""
        return tuple(reversed(list(self.upwards(leaf_id))))

    def upwards(self, leaf_id: str | None) -> Iterator[Turn]:
        """The branch from its end, one after the other: for who looks no further than it must."""
        turn = self._by_id.get(leaf_id) if leaf_id is not None else None
        while turn is not None:
            yield turn
            turn = self._by_id.get(turn.parent_id) if turn.parent_id is not None else None

    def siblings(self, turn_id: str) -> Sequence[Turn]:
        """The turns in the same place, this one among them, oldest first."""
        return self.children(self._by_id[turn_id].parent_id)

    def place(self, turn_id: str) -> tuple[int, int]:
        """Which of how many siblings a turn is, from 1: what ‹2/3› shows."""
        siblings = self.siblings(turn_id)
        return [turn.id for turn in siblings].index(turn_id) + 1, len(siblings)

    def newest_leaf(self, turn_id: str) -> str:
        """Where the branch through this turn goes on to, taking the newest child each time."""
        while self._children.get(turn_id):
            turn_id = self._children[turn_id][-1].id
        return turn_id

    def leaves(self) -> Sequence[Turn]:
        return tuple(turn for turn in self.turns if turn.id not in self._children)
