"""What a model thinks before it answers, told from the answer as both are generated.

Knows which tags families use and what a rendered prompt has opened already. Reads generated text
only: tags in a prompt are text.
"""

from __future__ import annotations

from edgeserve.answer_parts import AnswerPart, ContentDelta, ReasoningDelta
from edgeserve.frozen import frozen
from edgeserve.text.part_reader import PartReader
from edgeserve.text.text_scanner import Reading


@frozen
class ReasoningTags:
    """What stands before and after reasoning."""

    opens: str
    closes: str


_FAMILIES = (
    # (what a template of the family says, its tags), the telling ones first
    ("[THINK]", ReasoningTags("[THINK]", "[/THINK]")),
    ("<|channel>", ReasoningTags("<|channel>thought\n", "<channel|>")),
    ("<seed:think>", ReasoningTags("<seed:think>", "</seed:think>")),
    ("<|START_THINKING|>", ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>")),
    ("<mm:think>", ReasoningTags("<mm:think>", "</mm:think>")),
    ("[BEGIN FINAL RESPONSE]", ReasoningTags(
        "Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]")),
    ("<|open|>think", ReasoningTags("<|open|>think<|sep|>", "<|close|>think<|sep|>")),
    ("</think>", ReasoningTags("<think>", "</think>")),
    ("<think>", ReasoningTags("<think>", "</think>")),
)  # fmt: skip


def reasoning_tags(template: str) -> ReasoningTags | None:
    """The tags of a chat template's family; None if it knows no reasoning. gpt-oss has no tags:
    see harmony.py."""
    return next((tags for text, tags in _FAMILIES if text in template), None)


def opens_reasoning(prompt: str, tags: ReasoningTags | None) -> bool:
    """Whether a rendered prompt ends within reasoning, so that an answer begins there."""
    return tags is not None and prompt.rstrip().endswith(tags.opens.rstrip())


class ReasoningParser:
    """Splits one answer into reasoning and text, however it is cut into pieces.

    Reasoning begins where the prompt opened it, or with the tag at the answer's very beginning; a
    tag anywhere else is text. White space at its ends, and behind it, belongs to nobody.
    """

    def __init__(self, tags: ReasoningTags, *, opened: bool) -> None:
        self._tags = tags
        self._reader = PartReader()
        self._text, self._parts = self._reader.text, self._reader.parts
        self._space = ""
        self.in_reasoning = opened
        """Whether what came so far ends within reasoning."""
        self.undecided = not opened
        """Whether nothing has shown yet if there is reasoning."""
        self._reader.begin(self._read())

    def feed(self, text: str) -> list[AnswerPart]:
        """What the answer's next piece adds."""
        return self._reader.feed(text)

    def finish(self) -> list[AnswerPart]:
        """What was held back, once no more can come."""
        return self._reader.finish()

    def _read(self) -> Reading[None]:
        text, tags = self._text, self._tags
        start = text.mark()
        yield from text.space()
        opened = yield from text.accept(tags.opens.rstrip())
        self.undecided = False
        if opened:  # also where the prompt opened it: models repeat the tag
            self.in_reasoning = True
        elif not self.in_reasoning:
            text.rewind(start)
        text.forget()
        if self.in_reasoning:
            yield from text.space()
            closed = yield from text.stream_until((tags.closes,), self._think)
            self.in_reasoning = False
            if closed is None:
                return
            yield from text.space()
        yield from text.stream_until((), self._answer)

    def _think(self, piece: str) -> None:
        text = self._space + piece
        visible = text.rstrip()
        self._space = text[len(visible) :]
        if visible:
            self._parts.append(ReasoningDelta(visible))

    def _answer(self, piece: str) -> None:
        self._parts.append(ContentDelta(piece))
