"""Every template of the reference's models/templates renders as transformers renders it.

transformers' own renderer is the oracle; both get the same conversation, the same tools, the same
special tokens. Where a template refuses a conversation, both have to refuse it. Where we hand the
template another shape of the conversation than the caller gave, the template is listed below with
the reason, and has to render that shape as transformers does.
"""

from __future__ import annotations

import copy
import functools
import re
from datetime import datetime
from pathlib import Path

import pytest

from edgeserve.errors import TemplateError
from edgeserve.text.chat_template import ChatTemplate
from edgeserve.text.template_messages import (
    arguments_to_objects,
    arguments_to_text,
    joined_parts,
)

pytest.importorskip("transformers")
from transformers.utils import chat_template_utils

BOS, EOS = "<s>", "</s>"
NOW = datetime(2026, 3, 14, 15, 9, 26)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'The weather at a place.\nSays "unknown" for the sea; 😀 root ::= x',
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "City, as in Kraków"},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                    "days": {"type": "integer", "minimum": 1, "default": 1},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["place"],
            },
            "return": {"type": "string"},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "stop_all",
            "description": "Stops.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]


# Described in every part, for the template that insists on it.
PLAIN_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer", "description": "one"}},
                "required": ["a"],
            },
        },
    }
]


def call(number: int, name: str, arguments: object) -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call{number:05d}", "type": "function", "function": function}


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def answer(text: str, **more: object) -> dict[str, object]:
    return {"role": "assistant", "content": text, **more}


def result(number: int, name: str, text: str) -> dict[str, object]:
    return {"role": "tool", "name": name, "tool_call_id": f"call{number:05d}", "content": text}


SYSTEM = {"role": "system", "content": "You are terse.\n  Keep <b>spacing</b>. "}
PLACE = {"place": "Kraków", "days": 2, "tags": ["a", "b"], "quote": 'say "hi"\n'}

CONVERSATIONS: dict[str, list[dict[str, object]]] = {
    "one turn": [user("Hello, 世界! 😀")],
    "system": [SYSTEM, user("  spaces around  \n")],
    "system only": [SYSTEM],
    "several turns": [user("a"), answer("b"), user("c\n\nd"), answer(" e "), user("f")],
    "system and turns": [SYSTEM, user("a"), answer("b"), user("c")],
    "ends with the assistant": [user("a"), answer("b")],
    "two users in a row": [user("a"), user("b")],
    "late system": [user("a"), answer("b"), SYSTEM, user("c")],
    "thinking inside": [user("a"), answer("<think>\nhm\n</think>\n\nb"), user("c")],
    "reasoning": [user("a"), answer("b", reasoning_content="because\n"), user("c")],
    "reasoning last": [user("a"), answer("b", reasoning_content="because")],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "one part"}]}],
    "one call": [
        SYSTEM,
        user("Weather?"),
        answer("", tool_calls=[call(1, "get_weather", PLACE)]),
        result(1, "get_weather", '{"sky": "grey", "t": 3}'),
        answer("Grey."),
        user("Thanks"),
    ],
    "call without content": [
        user("Weather?"),
        {"role": "assistant", "tool_calls": [call(1, "get_weather", PLACE)]},
        result(1, "get_weather", "grey"),
    ],
    "two calls with thought": [
        user("Weather, then stop."),
        answer(
            "Right away.",
            reasoning_content="two of them",
            tool_calls=[call(1, "get_weather", PLACE), call(2, "stop_all", {})],
        ),
        result(1, "get_weather", "grey"),
        result(2, "stop_all", "done"),
    ],
    "call awaiting": [user("Stop"), answer("", tool_calls=[call(7, "stop_all", {})])],
}
CONVERSATIONS["arguments as text"] = copy.deepcopy(CONVERSATIONS["one call"])
arguments_to_text(CONVERSATIONS["arguments as text"])

PLAIN = {"add_generation_prompt": True, "tools": None, "variables": {}}
VARIANTS = [
    PLAIN,
    {**PLAIN, "add_generation_prompt": False},
    {**PLAIN, "variables": {"enable_thinking": False, "thinking": True}},
    {**PLAIN, "tools": TOOLS},
    {**PLAIN, "tools": TOOLS, "add_generation_prompt": False},
    # What Firefunction reads instead of `tools`.
    {**PLAIN, "tools": PLAIN_TOOLS, "variables": {"functions": "[]", "datetime": "today"}},
]

# Content given as text parts is handed over as the joined text: these print the list itself, leave
# it out, or break on it.
READS_TEXT_ONLY = frozenset(
    {
        "Apertus-8B-Instruct",
        "Bielik-11B-v3.0-Instruct",
        "ByteDance-Seed-OSS",
        "CohereForAI-c4ai-command-r-plus-tool_use",
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        "GigaChat3-10B-A1.8B",
        "GigaChat3.1-10B-A1.8B",
        "HuggingFaceTB-SmolLM3-3B",
        "LFM2-8B-A1B",
        "LFM2.5-Instruct",
        "MiMo-VL",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "NVIDIA-Nemotron-Nano-v2",
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "Qwen-QwQ-32B",
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen-Qwen3-0.6B",
        "Qwen3-Coder",
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "deepseek-ai-DeepSeek-V3.1",
        "deepseek-ai-DeepSeek-V3.2",
        "deepseek-ai-DeepSeek-V4",
        "deepseek-ai-DeepSeek-V4-Flash-0731",
        "fireworks-ai-llama-3-firefunction-v2",
        "google-gemma-2-2b-it",
        "ibm-granite-granite-3.3-2B-Instruct",
        "inclusionai-ling-3.0-flash",
        "llama-cpp-deepseek-r1",
        "llama-cpp-rwkv-world",
        "meetkai-functionary-medium-v3.1",
        "meetkai-functionary-medium-v3.2",
        "meta-llama-Llama-3.1-8B-Instruct",
        "meta-llama-Llama-3.2-3B-Instruct",
        "meta-llama-Llama-3.3-70B-Instruct",
        "microsoft-Phi-3.5-mini-instruct",
        "mistralai-Mistral-Nemo-Instruct-2407",
        "openai-gpt-oss-120b",
        "openbmb-MiniCPM5-1B",
        "poolside-Laguna-S-2.1",
        "poolside-Laguna-XS-2.1",
        "poolside-Laguna-XS.2",
        "upstage-Solar-Open-100B",
    }
)

# Tool arguments given as JSON text, as in OpenAI's API, are handed over as the object: these would
# print a JSON text of the JSON text, or break on it.
READS_OBJECTS_ONLY = frozenset(
    {
        "Apertus-8B-Instruct",
        "Apriel-1.6-15b-Thinker-fixed",
        "ByteDance-Seed-OSS",
        "Cohere2MoE",
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        "GLM-4.6",
        "GLM-4.7-Flash",
        "LFM2.5-8B-A1B",
        "MiMo-VL",
        "MiniMax-M1",
        "MiniMax-M2",
        "MiniMax-M3",
        "Mistral-Small-3.2-24B-Instruct-2506",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "Qwen-QwQ-32B",
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen3-Coder",
        "Qwen3.5-4B",
        "Spark2.5",
        "StepFun3.5-Flash",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "deepseek-ai-DeepSeek-V3.1",
        "deepseek-ai-DeepSeek-V3.2",
        "deepseek-ai-DeepSeek-V4",
        "deepseek-ai-DeepSeek-V4-Flash-0731",
        "inclusionai-ling-3.0-flash",
        "llama-cpp-deepseek-r1",
        "meetkai-functionary-medium-v3.1",
        "meta-llama-Llama-3.1-8B-Instruct",
        "meta-llama-Llama-3.2-3B-Instruct",
        "meta-llama-Llama-3.3-70B-Instruct",
        "mistralai-Mistral-Nemo-Instruct-2407",
        "moonshotai-Kimi-K2",
        "muse-glimmer",
        "openai-gpt-oss-120b",
        "openbmb-MiniCPM5-1B",
        "poolside-Laguna-S-2.1",
        "poolside-Laguna-XS-2.1",
        "poolside-Laguna-XS.2",
        "tencent-Hy3",
        "unsloth-Apriel-1.5",
    }
)

# And the other way round: breaks on an object.
READS_ARGUMENT_TEXT_ONLY = frozenset({"meetkai-functionary-medium-v3.2"})

# Content that is absent beside tool calls is handed over as empty: these break on its absence.
NEEDS_CONTENT = frozenset(
    {
        "LFM2-8B-A1B",
        "LFM2.5-Instruct",
        "Qwen-QwQ-32B",
        "Qwen-Qwen3-0.6B",
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "ibm-granite-granite-3.3-2B-Instruct",
        "microsoft-Phi-3.5-mini-instruct",
        "unsloth-mistral-Devstral-Small-2507",
    }
)

# How many of the reference's templates there are, so that none gets lost unseen.
NUM_TEMPLATES = 70


def reference(source: str, chat: list[dict[str, object]], variant: dict[str, object]) -> str | None:
    """What transformers renders, None where the template does not."""
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            [copy.deepcopy(chat)],
            tools=copy.deepcopy(variant["tools"]),
            chat_template=source,
            add_generation_prompt=variant["add_generation_prompt"],
            bos_token=BOS,
            eos_token=EOS,
            **variant["variables"],
        )
    except Exception:  # transformers lets through whatever happens inside a template
        return None
    return rendered[0]


def as_handed_over(name: str, chat: list[dict[str, object]]) -> list[dict[str, object]]:
    chat = copy.deepcopy(chat)
    for message in chat:
        if name in READS_TEXT_ONLY and "content" in message:
            message["content"] = joined_parts(message["content"])
        if name in NEEDS_CONTENT:
            message.setdefault("content", "")
    if name in READS_OBJECTS_ONLY:
        arguments_to_objects(chat)
    if name in READS_ARGUMENT_TEXT_ONLY:
        arguments_to_text(chat)
    return chat


class _FixedClock(datetime):
    @classmethod
    def now(cls, tz: object = None) -> datetime:  # noqa: ARG003
        return NOW


@pytest.fixture(autouse=True)
def _fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template_utils, "datetime", _FixedClock)


@pytest.fixture(scope="module")
def sources(reference_source: Path) -> dict[str, str]:
    folder = reference_source / "models" / "templates"
    return {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.jinja"))}


def test_all_templates_are_there(sources: dict[str, str]) -> None:
    assert len(sources) == NUM_TEMPLATES


@functools.cache
def chat_template(source: str, control_texts: tuple[str, ...] = ()) -> ChatTemplate:
    return ChatTemplate(
        source, bos_token=BOS, eos_token=EOS, control_texts=control_texts, now=lambda: NOW
    )


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_every_template_renders_as_in_transformers(
    sources: dict[str, str], conversation: str
) -> None:
    chat = CONVERSATIONS[conversation]
    num_rendered = 0
    for name, source in sources.items():
        template = chat_template(source)
        for number, variant in enumerate(VARIANTS):
            expected = reference(source, as_handed_over(name, chat), variant)
            if expected is None:
                with pytest.raises(TemplateError) as caught:
                    template.render(chat, **variant)
                assert str(caught.value), f"{name}, variant {number}"
            else:
                prompt = template.render(chat, **variant)
                assert prompt.text == expected, f"{name}, variant {number}"
                assert prompt.guard is None
                num_rendered += 1
    assert num_rendered > 0.8 * len(sources) * len(VARIANTS)


def test_every_template_renders_something(sources: dict[str, str]) -> None:
    chat = CONVERSATIONS["system and turns"]
    for name, source in sources.items():
        rendered = [reference(source, chat, variant) for variant in VARIANTS]
        simple = [reference(source, CONVERSATIONS["one turn"], variant) for variant in VARIANTS]
        assert any((*rendered, *simple)), name


RESHAPED = [
    (READS_TEXT_ONLY, "parts"),
    (READS_OBJECTS_ONLY, "arguments as text"),
    (READS_ARGUMENT_TEXT_ONLY, "one call"),
    (NEEDS_CONTENT, "call without content"),
]


@pytest.mark.parametrize(("names", "conversation"), RESHAPED)
def test_only_templates_that_need_it_get_another_shape(
    sources: dict[str, str], names: frozenset[str], conversation: str
) -> None:
    chat = CONVERSATIONS[conversation]
    for name in names:
        as_given = [reference(sources[name], chat, variant) for variant in VARIANTS]
        reshaped = [
            reference(sources[name], as_handed_over(name, chat), variant) for variant in VARIANTS
        ]
        assert as_given != reshaped, name


# --- with control texts in the conversation ------------------------------------------------------

_CONTROL_TEXT = re.compile(
    r"<[|｜][^<>\s'\"{}]{1,30}[|｜]>|</?s>|\[/?[A-Z_]+\]|<(?:start|end)_of_\w+>"
)


def control_texts_of(source: str) -> list[str]:
    return sorted({*_CONTROL_TEXT.findall(source), "<|im_end|>", "</s>"})


def spiked(value: object, texts: list[str]) -> object:
    """Every word of the caller's, at any depth, gets control texts around it and in it."""
    if isinstance(value, str):
        return f"{texts[0]}{value[:1]}{''.join(texts)}{value[1:]} {texts[-1]}{texts[0][:-1]}"
    if isinstance(value, list):
        return [spiked(item, texts) for item in value]
    if isinstance(value, dict):
        return {
            key: item
            if key in ("role", "type", "id", "name") or key.endswith("_id")
            else spiked(item, texts)
            for key, item in value.items()
        }
    return value


@pytest.mark.parametrize(
    "conversation", ["system and turns", "one call", "two calls with thought", "parts"]
)
def test_control_texts_in_a_conversation_change_nothing_in_the_text(
    sources: dict[str, str], conversation: str
) -> None:
    num_guarded = 0
    for name, source in sources.items():
        controls = control_texts_of(source)
        template = chat_template(source, tuple(controls))
        chat = spiked(CONVERSATIONS[conversation], controls)
        for message in chat:
            for text_part in message.get("content") or []:
                if isinstance(text_part, dict):
                    text_part["type"] = "text"
        variant = {**PLAIN, "tools": spiked(TOOLS, controls)}
        expected = reference(source, as_handed_over(name, chat), variant)
        if expected is None:
            with pytest.raises(TemplateError):
                template.render(chat, **variant)
            continue
        prompt = template.render(chat, **variant)
        assert prompt.plain == expected, name
        num_guarded += prompt.guard is not None
    assert num_guarded > 0.7 * len(sources)
