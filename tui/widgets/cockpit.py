"""What the engine did for the last answer, what it holds, and a token that is pointed at."""

from __future__ import annotations

from collections.abc import Sequence

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from edgeserve.chats.records import Generation
from edgeserve.tui.client import EngineFigures, ModelInUse, TokenFact
from edgeserve.tui.signs import Signs
from edgeserve.tui.terminal_text import shown_line
from edgeserve.tui.wording import called, size

Row = tuple[str, str]
_BAR_CELLS = 8
_LABEL_CELLS = 11
_PARTS = ("last-answer", "engine", "token")


class Cockpit(VerticalScroll, can_focus=False):
    def __init__(self, signs: Signs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._signs = signs
        self.has_token = False

    def show_answer(self, made: Generation | None, drafts: tuple[int, int] | None) -> None:
        """`drafts` are how many tokens were guessed, and how many of them were right."""
        rows = [] if made is None else _answer_rows(made, drafts)
        self._draw("last-answer", "Last answer", rows or [("", "none in this session")])

    def show_engine(
        self, model: ModelInUse | None, place: str, found: EngineFigures | None
    ) -> None:
        rows: list[Row] = [("where", place)]
        if model is not None:
            rows.append(("model", called(model.name)))
            if model.note:
                rows.append(("", model.note))
        if found is not None:
            rows += self._engine_rows(found)
        self._draw("engine", "Engine", rows)

    def show_token(self, token: TokenFact | None) -> None:
        self.has_token = token is not None
        if token is None:
            hint = "ctrl+t tints answers; then left and right, or the mouse, point at a token"
            self._draw("token", "Token", [("", hint)])
            return
        likely = dict(token.alternatives)
        if token.probability is not None and token.text not in likely:
            likely = {token.text: token.probability, **likely}
        ranked = sorted(likely.items(), key=lambda each: -each[1])
        bars = [self._likely(text, share, text == token.text) for text, share in ranked]
        rows: Sequence[Row | Content] = [
            ("chosen", _quoted(token.text)),
            ("", "a draft had guessed it" if token.drafted else ""),
            *bars,
        ]
        self._draw("token", "Token", rows)

    # --- drawing --------------------------------------------------------------------------------

    def _engine_rows(self, found: EngineFigures) -> list[Row]:
        signs = self._signs
        bar = signs.meter(found.occupancy, _BAR_CELLS)
        rows = [("KV memory", f"{bar} {100 * found.occupancy:.0f} %")]
        if found.running + found.waiting > 1:
            rows.append(("requests", f"{found.running} run, {found.waiting} wait"))
        if found.prompt_tokens:
            share = found.hit_tokens / found.prompt_tokens
            rows.append(("prefix hits", f"{signs.meter(share, _BAR_CELLS)} {100 * share:.0f} %"))
        if found.disk_hit_tokens:
            rows.append(("from disk", f"{found.disk_hit_tokens:,} tokens"))
        if found.memory_bytes:
            rows.append(("process", size(found.memory_bytes)))
        return rows

    def _likely(self, text: str, share: float, is_chosen: bool) -> Content:
        bar = self._signs.bar_of(share, _BAR_CELLS)
        label = _quoted(text)[:_LABEL_CELLS].ljust(_LABEL_CELLS + 1)
        return Content.assemble(
            (label, "bold $accent" if is_chosen else "$foreground"),
            (bar.ljust(_BAR_CELLS + 1), "$primary"),
            (f"{100 * share:5.1f} %", "$quiet"),
        )

    def _draw(self, name: str, heading: str, rows: Sequence[Row | Content]) -> None:
        lines = [Content.styled(heading, "bold")]
        for row in rows:
            if isinstance(row, Content):
                lines.append(row)
            elif row[1]:
                label = f"{row[0]:<{_LABEL_CELLS + 1}}" if row[0] else ""
                lines.append(
                    Content.assemble(
                        (label, "$quiet"),
                        (shown_line(row[1]), "$foreground" if row[0] else "$quiet"),
                    )
                )
        if not self.children:  # nobody has looked yet, and most never do
            self.mount(*(Static(id=part, markup=False) for part in _PARTS))
        self.query_one(f"#{name}", Static).update(Content("\n").join(lines))


def _answer_rows(made: Generation, drafts: tuple[int, int] | None) -> list[Row]:
    rows: list[Row] = []
    if made.tokens_per_s:
        rows.append(("speed", f"{made.tokens_per_s:.1f} tokens/s"))
    if made.first_token_ms is not None:
        rows.append(("first after", f"{made.first_token_ms / 1000:.2f} s"))
    if made.answer_tokens is not None:
        rows.append(("answer", f"{made.answer_tokens:,} tokens"))
    if made.reasoning_tokens:
        rows.append(("of thinking", f"{made.reasoning_tokens:,} tokens"))
    if made.prompt_tokens is not None:
        rows.append(("prompt", f"{made.prompt_tokens:,} tokens"))
        if made.cached_tokens is not None and made.prompt_tokens:
            share = 100 * made.cached_tokens / made.prompt_tokens
            rows.append(("cached", f"{made.cached_tokens:,} tokens, {share:.0f} %"))
    if made.miss:
        rows.append(("", f"no more was cached: {made.miss}"))
    if drafts is not None and drafts[0]:
        guessed, right = drafts
        rows.append(("drafts", f"{right:,} of {guessed:,} right, {100 * right / guessed:.0f} %"))
    if made.seed is not None:
        rows.append(("seed", str(made.seed)))
    return rows


def _quoted(text: str) -> str:
    return '"' + shown_line(text.replace("\n", "\\n")) + '"'
