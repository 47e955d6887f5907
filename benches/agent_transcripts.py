"""Sessions shaped as Claude Code's and Codex's: what each turn asks, grown by what was answered.

Shapes are those of claude-cli 2.1.197 and codex 0.171 as they come over the wire: their fields,
what changes with every turn, and what stands in the middle. Texts are this repository's own files,
and nothing is random. Knows no server.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_tools import CLAUDE_TOOLS, CODEX_TOOLS, Schema

_ROOT = Path(__file__).resolve().parents[1]
_SESSION = "01a22a86-0ff7-7af3-bab8-71b1f61609f5"
_PROMPT_EVERY = 6  # turns, after which the user speaks again
_SYSTEM_TURNS = (8, 15)  # before which an instruction comes in the middle

Item = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """`prompt_chars` of text before the first answer, `result_chars` in a tool's result,
    `num_tools` described; an answer has `max_tokens`."""

    prompt_chars: int
    result_chars: int
    max_tokens: int
    num_tools: int = 100


@dataclass(frozen=True)
class Request:
    """One turn, as it is posted."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


class Prose:
    """Texts of this repository, one after the other, and again from the first."""

    def __init__(self, *patterns: str) -> None:
        files = [path for pattern in patterns for path in sorted(_ROOT.glob(pattern))]
        self._text = "\n".join(path.read_text(encoding="utf-8") for path in files)
        self._at = 0

    def take(self, num_chars: int) -> str:
        taken = ""
        while len(taken) < num_chars:
            piece = self._text[self._at : self._at + num_chars - len(taken)]
            taken += piece
            self._at = (self._at + len(piece)) % len(self._text)
        return taken


def code() -> Prose:
    return Prose("edgeserve/engine/*.py", "edgeserve/cache/*.py")


def _digest(*words: object) -> str:
    return hashlib.sha256(" ".join(map(str, words)).encode()).hexdigest()


def _numbered(text: str) -> str:
    """As a tool shows a file."""
    return "\n".join(f"{at:6}\t{line}" for at, line in enumerate(text.splitlines(), 1))


@dataclass
class ClaudeCode:
    """POST /v1/messages. A line of accounts at the top of `system` is another at every turn, and
    `cache_control` moves with the newest message."""

    size: Size
    name: str = "Claude Code"
    turn: int = 0
    _messages: list[Item] = field(default_factory=list[Item])
    _code: Prose = field(default_factory=code)

    def __post_init__(self) -> None:
        texts = Prose("ARCHITECTURE.md", "docs/decisions/*.md", "docs/*.md")
        tools = CLAUDE_TOOLS[: self.size.num_tools]
        chars = self.size.prompt_chars
        self._tools = list(_described(tools, texts, chars * 65 // 100, "input_schema"))
        self._system = texts.take(chars * 20 // 100)
        agents = "Available agent types for the Agent tool:\n- " + texts.take(chars * 12 // 100)
        self._messages += [
            {"role": "user", "content": [_text(_reminder(texts)), _text(_PROMPTS[0])]},
            {"role": "system", "content": agents},
        ]

    def request(self) -> Request:
        """Of this turn. The newest message says that what is up to it may be cached."""
        version = f"2.1.197.{_digest('version', self.turn)[:3]}"
        billing = f"x-anthropic-billing-header: cc_version={version}; cc_entrypoint=cli; "
        billing += f"cch={_digest('cch', self.turn)[:5]};"
        kept = {"cache_control": {"type": "ephemeral"}}
        newest = max(at for at, m in enumerate(self._messages) if m["role"] == "user")
        messages: list[Item] = [dict(message) for message in self._messages]
        content = messages[newest]["content"]
        messages[newest]["content"] = [*content[:-1], {**content[-1], **kept}]
        body = {
            "model": "default",
            "messages": messages,
            "system": [
                _text(billing),
                {**_text("You are an agent that works in a terminal."), **kept},
                {**_text(self._system), **kept},
            ],
            "tools": self._tools,
            "metadata": {"user_id": json.dumps({"session_id": _SESSION})},
            "max_tokens": self.size.max_tokens,
            "thinking": {"type": "adaptive"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "high"},
            "seed": self.turn,  # not the client's: so that a cold answer can be the same
            "stream": True,
        }
        headers = {
            "user-agent": "claude-cli/2.1.197 (external, cli)",
            "anthropic-version": "2023-06-01",
            "anthropic-beta": "claude-code-20250219,mid-conversation-system-2026-04-07",
            "x-claude-code-session-id": _SESSION,
            "authorization": "Bearer edgeserve",
        }
        return Request("/v1/messages?beta=true", headers, body)

    def take(self, content: Sequence[Item]) -> None:
        """The answer's whole blocks; what its tools found follows, and what is said next."""
        blocks = list(content)
        speaks = (self.turn + 1) % _PROMPT_EVERY == 0
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not calls and not speaks:
            path = f"/work/project/part_{self.turn}.py"
            call_id = f"toolu_{_digest('call', self.turn)[:20]}"
            scripted = {"type": "tool_use", "id": call_id, "name": "Read"}
            calls.append({**scripted, "input": {"file_path": path}})
            blocks.append(calls[0])
        self._messages.append({"role": "assistant", "content": blocks or [_text("Done.")]})
        said: list[Item] = [self._result(call) for call in calls]
        if speaks:
            said.append(_text(_PROMPTS[self.turn % len(_PROMPTS)]))
        self._messages.append({"role": "user", "content": said})
        self.turn += 1
        if self.turn in _SYSTEM_TURNS:
            self._messages.append({"role": "system", "content": _later_system(self.turn)})

    def _result(self, call: Item) -> Item:
        text = _numbered(self._code.take(self.size.result_chars))
        return {
            "tool_use_id": call["id"],
            "type": "tool_result",
            "content": text,
            "is_error": False,
        }


@dataclass
class Codex:
    """POST /v1/responses, the whole history each time. Ids of the turn are in headers and
    `client_metadata`. Thoughts come back sealed, or open where `seals` is false."""

    size: Size
    seals: bool = True
    name: str = "Codex"
    turn: int = 0
    _input: list[Item] = field(default_factory=list[Item])
    _code: Prose = field(default_factory=code)

    def __post_init__(self) -> None:
        texts = Prose("README.md", "CONTRIBUTING.md", "edgeserve/commands/*.py")
        tools = CODEX_TOOLS[: self.size.num_tools]
        chars = self.size.prompt_chars
        self._tools = [
            {"type": "function", "strict": False, **tool}
            for tool in _described(tools, texts, chars * 40 // 100, "parameters")
        ]
        spawn: Item = {"type": "function", "name": "spawn_agent", "strict": False}
        spawn |= {"description": texts.take(chars * 5 // 100), "parameters": _SPAWN}
        self._tools.append(
            {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [spawn]}
        )
        self._tools.append({"type": "web_search", "external_web_access": True})
        instructions = texts.take(chars * 40 // 100)
        self._input += [
            _message("developer", instructions),
            _message("developer", "<skills_instructions>\n" + texts.take(chars * 8 // 100), _RULES),
            _message("user", _reminder(texts), _ENVIRONMENT),
            _message("user", _PROMPTS[0]),
        ]

    def request(self) -> Request:
        turn_id = f"01a22a86-10d1-7fc3-937c-{_digest('turn', self.turn // _PROMPT_EVERY)[:12]}"
        metadata = {"turn_id": turn_id, "session_id": _SESSION, "request": self.turn}
        body = {
            "model": "default",
            "input": list(self._input),
            "tools": self._tools,
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"summary": "auto"},
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": _SESSION,
            "client_metadata": {**metadata, "x-codex-turn-metadata": json.dumps(metadata)},
            "max_output_tokens": self.size.max_tokens,
            "seed": self.turn,
            "stream": True,
        }
        headers = {
            "user-agent": "codex_exec/0.171.0 (Debian 12.0.0; x86_64)",
            "originator": "codex_exec",
            "session-id": _SESSION,
            "x-codex-turn-metadata": json.dumps(metadata),
            "authorization": "Bearer edgeserve",
        }
        return Request("/v1/responses", headers, body)

    def take(self, content: Sequence[Item]) -> None:
        """The answer's whole items; see ClaudeCode.take."""
        speaks = (self.turn + 1) % _PROMPT_EVERY == 0
        if not speaks and self.turn % 3 == 0:
            self._input.append(self._thoughts())
        self._input += content
        calls = [item for item in content if item["type"] == "function_call"]
        if not calls and not speaks:
            call = {"type": "function_call", "status": "completed", "name": "exec_command"}
            ids = {"id": f"fc_{self.turn}", "call_id": f"call_{_digest('call', self.turn)[:20]}"}
            arguments = json.dumps({"cmd": f"sed -n 1,20p part_{self.turn}.py"})
            calls.append({**call, **ids, "arguments": arguments})
            self._input.append(calls[0])
        self._input += [self._result(call) for call in calls]
        if speaks:
            self._input.append(_message("user", _PROMPTS[self.turn % len(_PROMPTS)]))
        self.turn += 1
        if self.turn in _SYSTEM_TURNS:
            self._input.append(_message("developer", _later_system(self.turn)))

    def _thoughts(self) -> Item:
        thought = f"Part {self.turn} should be read before anything is changed."
        item: Item = {"type": "reasoning", "id": f"rs_{self.turn}"}
        if not self.seals:
            parts = [{"type": "reasoning_text", "text": thought}]
            return item | {"summary": [], "content": parts, "encrypted_content": ""}
        summary = [{"type": "summary_text", "text": thought}]
        return item | {"summary": summary, "content": None, "encrypted_content": _digest(thought)}

    def _result(self, call: Item) -> Item:
        text = self._code.take(self.size.result_chars)
        head = f"Chunk ID: {_digest('chunk', self.turn)[:6]}\nWall time: 0.0004 seconds\n"
        head += f"Process exited with code 0\nOriginal token count: {len(text) // 4}\nOutput:\n"
        ids = {"id": f"fco_{_digest('out', self.turn)[:12]}", "call_id": call["call_id"]}
        return {"type": "function_call_output", **ids, "output": head + text}


Session = ClaudeCode | Codex


def _described(
    tools: Sequence[tuple[str, Schema]], texts: Prose, num_chars: int, schema_name: str
) -> Iterator[Item]:
    """Tools whose descriptions and schemas have so many characters together. One is far longer
    than the others, as the clients' are."""
    rest = num_chars - sum(len(json.dumps(schema)) for _, schema in tools)
    each = max(40, rest // (len(tools) + 3))
    for at, (name, schema) in enumerate(tools):
        chars = 4 * each if at == len(tools) - 1 else each
        yield {"name": name, "description": texts.take(chars), schema_name: schema}


def _text(text: str) -> Item:
    return {"type": "text", "text": text}


def _message(role: str, *texts: str) -> Item:
    content = [{"type": "input_text", "text": text} for text in texts]
    return {
        "type": "message",
        "id": f"msg_{_digest(*texts)[:24]}",
        "role": role,
        "content": content,
    }


def _reminder(texts: Prose) -> str:
    return f"<system-reminder>\n# Project\n{texts.take(300)}\n</system-reminder>"


def _later_system(turn: int) -> str:
    return f"The user changed a setting before turn {turn}: files may be edited without asking."


_PROMPTS = (
    "Look around and say what this project is.",
    "Which part is slow, and why?",
    "Now write the test for it first.",
    "Explain what you would change, shortly.",
)
_RULES = (
    "<permissions instructions>\nNo sandbox; commands run as given.\n</permissions instructions>"
)
_ENVIRONMENT = (
    "<environment_context>\n  <cwd>/work/project</cwd>\n  <shell>bash</shell>\n"
    "  <current_date>2026-11-30</current_date>\n</environment_context>"
)
_SPAWN: Item = {
    "type": "object",
    "properties": {"message": {"type": "string"}, "agent_type": {"type": "string"}},
    "required": ["message"],
    "additionalProperties": False,
}
