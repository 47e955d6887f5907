"""A question as the body of `/v1/chat/completions`, in the words that each server knows.

What only some servers know is sent to those: others refuse a body for a field they do not know.
"""

from __future__ import annotations

from edgeserve.tui.client import ChatSettings, Question

OURS, LLAMA_CPP, VLLM = "edgeserve", "llamacpp", "vllm"
"""How these programs name themselves in their lists of models (`owned_by`)."""


class Dialect:
    """Of the program that `owner` names."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    @property
    def renders(self) -> bool:
        """Whether the server shows a conversation's prompt, and counts tokens."""
        return self._owner in (OURS, LLAMA_CPP)

    def echo(self, question: Question) -> str:
        """What the answer begins with that is not new."""
        if not question.continues or self._owner != LLAMA_CPP:
            return ""
        return str(question.messages[-1].get("content") or "")

    @property
    def has_props(self) -> bool:
        """Whether `/props` says how long prompt and answer may be."""
        return self._owner == LLAMA_CPP

    @property
    def takes_seed(self) -> bool:
        return self._is_known

    def body(self, question: Question, model: str, seed: int | None) -> dict[str, object]:
        """To be streamed."""
        body: dict[str, object] = {
            **self.conversation(question, model),
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._sampling(question.settings),
        }
        if seed is not None:
            body["seed"] = seed
        if question.alternatives:
            body |= {"logprobs": True, "top_logprobs": question.alternatives}
        if self._owner in (OURS, LLAMA_CPP):
            body["return_progress"] = True
        return body

    def conversation(self, question: Question, model: str) -> dict[str, object]:
        """What decides the prompt."""
        body: dict[str, object] = {"model": model, "messages": list(question.messages)}
        # Others continue an assistant's message that stands last by themselves, or not at all.
        if question.continues and self._owner in (OURS, VLLM):
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        return body | self._thinking(question.settings)

    @property
    def _is_known(self) -> bool:
        return self._owner in (OURS, LLAMA_CPP, VLLM)

    def _sampling(self, settings: ChatSettings) -> dict[str, object]:
        repetition = "repeat_penalty" if self._owner == LLAMA_CPP else "repetition_penalty"
        given: dict[str, object] = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
            "min_p": settings.min_p,
            repetition: settings.repetition_penalty,
            "max_tokens": settings.max_tokens,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _thinking(self, settings: ChatSettings) -> dict[str, object]:
        wanted = settings.thinking
        if settings.thinking_budget == 0:
            wanted = False
        found: dict[str, object] = {}
        if settings.thinking_budget and wanted is not False and self._owner == OURS:
            found["reasoning_budget"] = settings.thinking_budget
        if wanted is not None and self._is_known:
            found["chat_template_kwargs"] = {"enable_thinking": wanted}
        if wanted is False and self._owner != LLAMA_CPP:
            found["reasoning_effort"] = "none"
        return found
