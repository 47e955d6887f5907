"""One answer's reasoning, text and tool calls, told apart as it is generated.

Owns the order in which the readers see the text: reasoning ends before calls can begin.
"""

from __future__ import annotations

from edgeserve.answer_parts import AnswerPart, ContentDelta
from edgeserve.frozen import frozen
from edgeserve.text.harmony import HarmonyParser
from edgeserve.text.reasoning import ReasoningParser, ReasoningTags
from edgeserve.text.tool_calls import ToolCallParser
from edgeserve.text.tool_descriptions import Tool
from edgeserve.text.tool_formats import HarmonyFormat, ToolFormat


@frozen
class AnswerShape:
    """What may be in an answer: reasoning within `tags`, which the prompt has opened already where
    `opened`, and calls of `tools` in `form`. `shown_ids` are the control tokens among the tags."""

    tags: ReasoningTags | None = None
    opened: bool = False
    form: ToolFormat | None = None
    tools: tuple[Tool, ...] = ()
    calls_only: bool = False
    shown_ids: frozenset[int] = frozenset()

    @property
    def may_reason(self) -> bool:
        """Whether the answer may hold reasoning."""
        return self.tags is not None or isinstance(self.form, HarmonyFormat)

    @property
    def is_plain(self) -> bool:
        """Whether the answer is text and nothing else."""
        return not self.may_reason and not self.tools


class AnswerReader:
    """The parts of one answer, however it is cut into pieces. Never raises on any text."""

    def __init__(self, shape: AnswerShape) -> None:
        self._harmony = (
            HarmonyParser(shape.tools) if isinstance(shape.form, HarmonyFormat) else None
        )
        self._reasoning = self._calls = None
        self._calls_only = shape.calls_only
        if self._harmony is None and shape.tags is not None:
            self._reasoning = ReasoningParser(shape.tags, opened=shape.opened)
        if shape.form is not None and shape.tools and not isinstance(shape.form, HarmonyFormat):
            self._calls = ToolCallParser(shape.form, shape.tools)

    @property
    def in_reasoning(self) -> bool:
        """Whether what came so far ends within reasoning."""
        thinker = self._harmony or self._reasoning
        return thinker is not None and thinker.in_reasoning

    def feed(self, text: str) -> list[AnswerPart]:
        """What the answer's next piece adds."""
        if self._harmony is not None:
            return self._said(self._harmony.feed(text))
        if self._reasoning is None:
            return self._answer([ContentDelta(text)] if text else [])
        return self._answer(self._reasoning.feed(text))

    def finish(self) -> list[AnswerPart]:
        """What was held back, once no more can come."""
        if self._harmony is not None:
            return self._said(self._harmony.finish())
        parts = self._answer(self._reasoning.finish() if self._reasoning is not None else [])
        return parts + (self._said(self._calls.finish()) if self._calls is not None else [])

    def _answer(self, parts: list[AnswerPart]) -> list[AnswerPart]:
        """Parts of which the text has been read for calls."""
        if self._calls is None:
            return parts
        found: list[AnswerPart] = []
        for part in parts:
            found += self._calls.feed(part.text) if isinstance(part, ContentDelta) else [part]
        return self._said(found)

    def _said(self, parts: list[AnswerPart]) -> list[AnswerPart]:
        """Without what is left of a call's tags where the answer was cut within them, if calls are
        all that it may hold."""
        if not self._calls_only:
            return parts
        return [part for part in parts if not isinstance(part, ContentDelta)]
