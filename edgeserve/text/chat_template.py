"""A model's chat template: a conversation in, the prompt's text out.

Owns what a template may see and how long it may take. Knows no tokenizer: which texts are control
tokens, and which is BOS, is told to it. Must not import one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import cast

from edgeserve.errors import InvalidRequestError, TemplateError, TemplateLimitError
from edgeserve.frozen import frozen
from edgeserve.text.control_guard import ControlTexts, Disguise, strings_in
from edgeserve.text.template_messages import (
    Chat,
    arguments_to_objects,
    arguments_to_text,
    as_parts,
    checked_messages,
    checked_tools,
    functions_called,
    joined_parts,
    plain_data,
)
from edgeserve.text.template_meter import Clocks, Meter, TemplateLimits
from edgeserve.text.template_probes import PROBES
from edgeserve.types import Message

__all__ = ["ChatTemplate", "Clocks", "RenderedPrompt", "TemplateLimits"]

_RESERVED = frozenset(("messages", "tools", "add_generation_prompt", "bos_token", "eos_token"))
_CONTINUES_HERE = "EDGESERVE_CONTINUES_HERE "
"""Marks where the final message ends; its trailing space shows whether the template trims."""


@frozen
class RenderedPrompt:
    """A rendered conversation.

    `guard`, when not None, stands inside every text of `text` that reads as a control token and
    was not written by the template: encode with parse_special=True and this guard. When
    `starts_with_bos`, the template wrote the BOS token itself: encode with add_special=False.
    """

    text: str
    guard: str | None
    starts_with_bos: bool

    @property
    def plain(self) -> str:
        """The text without guards: what a reader, or another runtime, sees."""
        return self.text if self.guard is None else self.text.replace(self.guard, "")


class ChatTemplate:
    """A parsed template. Thread-safe: a render keeps its state to itself.

    Raises TemplateSyntaxError with the line when `source` does not parse. `control_texts` are
    the texts of the vocabulary's control tokens. `now` is what templates that print the date
    see.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str,
        eos_token: str,
        control_texts: Sequence[str] = (),
        limits: TemplateLimits = TemplateLimits(),  # noqa: B008  frozen
        clocks: Clocks = Clocks(),  # noqa: B008
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        # Jinja takes 60 ms to import, which commands that render nothing shall not pay.
        from edgeserve.text import template_sandbox

        self.source = source
        self._bos_token = bos_token
        self._eos_token = eos_token
        self._limits = limits
        self._clocks = clocks
        self._now = now
        self._run = template_sandbox.run_template
        parsing = Meter(limits, clocks, limits.parse_seconds)
        self._compiled = template_sandbox.compile_template(source, parsing)
        self._controls = ControlTexts(control_texts)
        self._composes = any(map(self._controls.begins_at_end, self._compiled.literals))
        self._abilities: dict[str, bool] = {}

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, object] | None = None,
    ) -> RenderedPrompt:
        """The prompt of a conversation, as transformers' apply_chat_template renders it.

        `variables` are further names the template may read (chat_template_kwargs). With
        `continue_final_message` the prompt ends where the last message's text ends. Raises
        InvalidRequestError for what is wrong with the request, TemplateError for the template.
        """
        chat = checked_messages(messages)
        extra = _checked_variables(variables)
        if continue_final_message and add_generation_prompt:
            raise InvalidRequestError(
                "continue_final_message", True, "off while add_generation_prompt is on"
            )
        meter = Meter(self._limits, self._clocks)
        self._fit(chat, meter)
        if continue_final_message:
            _check_continues(chat)
        given = {"messages": chat, "tools": checked_tools(tools), **extra}
        meter.allow_for(given)
        disguise = self._disguise(given)
        if disguise is not None:
            given = {name: disguise.put_on(value) for name, value in given.items()}
        last = _mark_end(cast(Chat, given["messages"])) if continue_final_message else None
        rendered = self._render(
            {**given, "add_generation_prompt": add_generation_prompt}, meter, disguise
        )
        if last is not None:
            rendered = _cut_at_mark(rendered, last)
        text, guard = (rendered, None) if disguise is None else disguise.guarded(rendered)
        has_bos = self._bos_token != "" and text.startswith(self._bos_token)
        return RenderedPrompt(text, guard, has_bos)

    def preview(self, messages: Sequence[Message]) -> str | None:
        """Messages of plain text as it renders them, without a generation prompt; None if it
        refuses. Raises TemplateLimitError."""
        try:
            return self.render(messages, add_generation_prompt=False).plain
        except TemplateLimitError:
            raise
        except TemplateError:
            return None

    def _render(
        self, variables: Mapping[str, object], meter: Meter, disguise: Disguise | None = None
    ) -> str:
        defaults = {
            "documents": None,
            "bos_token": self._bos_token,
            "eos_token": self._eos_token,
        }
        return self._run(self._compiled, {**defaults, **variables}, meter, self._now, disguise)

    def _disguise(self, given: Mapping[str, object]) -> Disguise | None:
        """What hides control texts of the input, when there is anything to hide."""
        controls = self._controls
        strings = tuple(strings_in(given))
        opens = any(controls.find(s) or controls.begins_at_end(s.rstrip()) for s in strings)
        if opens or (self._composes and any(map(controls.continues, strings))):
            return Disguise(controls, (*strings, self.source))
        return None

    @property
    def reads_tools(self) -> bool:
        """Whether it shows the model which tools there are."""
        return self._can("tools", "user", self._probing())

    @property
    def reads_calls(self) -> bool:
        """Whether it shows the tool calls of earlier turns."""
        return self._can("calls", "", self._probing())

    @property
    def reads_results(self) -> bool:
        """Whether it shows what tools answered."""
        meter = self._probing()
        return self._can("results", "tool", meter) or self._can("results of text", "tool", meter)

    def _probing(self) -> Meter:
        return Meter(self._limits, self._clocks)

    # --- what the template can read ------------------------------------------------------------

    def _fit(self, chat: Chat, meter: Meter) -> None:
        """Brings content and tool arguments into a shape that the template reads."""
        for message in chat:
            role, content = cast(str, message["role"]), message.get("content")
            if content is None:
                if not self._can("absent content", role, meter):
                    message["content"] = ""
            elif isinstance(content, list):
                if not self._can("parts", role, meter):
                    message["content"] = joined_parts(cast(object, content))
            elif content and not self._can("text", role, meter) and self._can("parts", role, meter):
                message["content"] = as_parts(content)
        kinds = {type(function.get("arguments")) for function in functions_called(chat)}
        if not kinds & {str, dict}:
            return
        objects, text = self._can("objects", "", meter), self._can("argument text", "", meter)
        if objects and not text:
            arguments_to_objects(chat)
        elif text and not objects:
            arguments_to_text(chat)

    def _can(self, ability: str, role: str, meter: Meter) -> bool:
        """Whether the template reads something, found out by letting it: once per template."""
        key = f"{ability} {role}"
        if key not in self._abilities:
            probe = PROBES[ability]
            try:
                text = self._render(
                    {
                        "messages": probe.chat(role),
                        "tools": list(probe.tools) or None,
                        "add_generation_prompt": False,
                    },
                    meter,
                )
                self._abilities[key] = probe.succeeded(text)
            except TemplateLimitError:
                raise
            except TemplateError:
                self._abilities[key] = probe.when_refused
        return self._abilities[key]


def _checked_variables(variables: Mapping[str, object] | None) -> dict[str, object]:
    checked: dict[str, object] = {}
    for name, value in (variables or {}).items():
        if name in _RESERVED:
            raise InvalidRequestError(
                "chat_template_kwargs", name, "a name the prompt's own fields leave free"
            )
        checked[name] = plain_data(f"chat_template_kwargs.{name}", value)
    return checked


# --- continuing the final message ----------------------------------------------------------------


def _check_continues(chat: Chat) -> None:
    if not chat[-1].get("content"):
        raise InvalidRequestError(
            "continue_final_message", True, "off when the final message has no text to continue"
        )


def _mark_end(chat: Chat) -> str:
    """Marks the end of the final message's text, and returns that text."""
    content = chat[-1]["content"]
    if isinstance(content, str):
        chat[-1]["content"] = content + _CONTINUES_HERE
        return content
    part = cast("list[dict[str, str]]", content)[-1]
    text = part["text"]
    part["text"] = text + _CONTINUES_HERE
    return text


def _cut_at_mark(rendered: str, last: str) -> str:
    mark = _CONTINUES_HERE.strip()
    if last.strip() not in rendered or mark not in rendered:
        raise TemplateError(
            "the chat template does not end with the final message as it is given, "
            "so it cannot be continued"
        )
    end = rendered.rindex(mark)
    if rendered.startswith(_CONTINUES_HERE, end):
        return rendered[:end]
    return rendered[:end].rstrip()  # the template trims
