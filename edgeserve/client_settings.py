"""What each client has to be told to use an OpenAI-compatible server: text to paste, and notes.

Facts are of the clients' own documents and programs, tried with Claude Code 2.1 and Codex 0.171.
Texts for a shell run as they are; a file comes as the command that writes it, with its path.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping

from edgeserve.frozen import frozen

# What agents send before a user's first word: instructions and tools (tools/clients.py counts it).
_CLAUDE_CODE_PROMPT_TOKENS = 20_000
_CODEX_PROMPT_TOKENS = 9_000
_MAX_OUTPUT_TOKENS = 8192


@frozen
class Endpoint:
    """A server as a client sees it. `url` ends in `/v1`; `max_model_len` is None if unknown."""

    url: str
    model: str
    key: str
    max_model_len: int | None = None

    @property
    def root(self) -> str:
        """Without `/v1`, which Anthropic's clients add themselves."""
        return self.url.removesuffix("/v1")

    @property
    def max_output_tokens(self) -> int | None:
        """What leaves most of the context to the prompt."""
        context = self.max_model_len
        return None if context is None else min(_MAX_OUTPUT_TOKENS, max(1, context // 4))


@frozen
class Settings:
    """`text` is to be pasted; `notes` are for people."""

    text: str
    notes: tuple[str, ...] = ()


_PATIENCE_MS = 30 * 60_000
"""Both agents give up on a stream that is silent for five minutes, pings or not, and ask again: a
first prompt of 28k tokens may take longer than that on a small machine."""


def _claude_code(server: Endpoint) -> Settings:
    variables: dict[str, object] = {
        "ANTHROPIC_BASE_URL": server.root,
        "ANTHROPIC_AUTH_TOKEN": server.key,
        "ANTHROPIC_MODEL": server.model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": server.model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": server.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": server.model,
        "CLAUDE_CODE_SUBAGENT_MODEL": server.model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": 1,
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": _PATIENCE_MS,
        "API_TIMEOUT_MS": _PATIENCE_MS,
    }
    if server.max_model_len is not None:
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = server.max_model_len
        variables["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = server.max_model_len
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = server.max_output_tokens
    text = f"unset ANTHROPIC_API_KEY\n{_exports(variables)}claude\n"
    return Settings(
        text,
        (
            "run /status in it to see the base URL",
            *_agent_notes(server, _CLAUDE_CODE_PROMPT_TOKENS),
        ),
    )


def _codex(server: Endpoint) -> Settings:
    lines = [f"model = {_quoted(server.model)}", 'model_provider = "edgeserve"']
    if server.max_model_len is not None:
        lines.append(f"model_context_window = {server.max_model_len}")
    lines += [
        "",
        "[model_providers.edgeserve]",
        'name = "edgeserve"',
        f"base_url = {_quoted(server.url)}",
        'wire_api = "responses"',
        'env_key = "EDGESERVE_API_KEY"',
        f"stream_idle_timeout_ms = {_PATIENCE_MS}",
    ]
    text = (
        _file("~/.codex/edgeserve.config.toml", lines)
        + _exports({"EDGESERVE_API_KEY": server.key})
        + "codex --profile edgeserve\n"
    )
    return Settings(text, _agent_notes(server, _CODEX_PROMPT_TOKENS))


def _aider(server: Endpoint) -> Settings:
    name = f"openai/{server.model}"
    text = _exports({"OPENAI_API_BASE": server.url, "OPENAI_API_KEY": server.key})
    if server.max_model_len is not None:
        known = {
            "max_input_tokens": server.max_model_len,
            "max_output_tokens": server.max_output_tokens,
            "input_cost_per_token": 0,
            "output_cost_per_token": 0,
            "litellm_provider": "openai",
            "mode": "chat",
        }
        lines = json.dumps({name: known}, indent=2).splitlines()
        text += _file("~/.aider.model.metadata.json", lines)
    return Settings(f"{text}aider --model {shlex.quote(name)}\n")


def _continue(server: Endpoint) -> Settings:
    lines = [
        "name: edgeserve",
        "version: 1.0.0",
        "schema: v1",
        "models:",
        f"  - name: {_quoted(server.model)}",
        "    provider: openai",
        f"    model: {_quoted(server.model)}",
        f"    apiBase: {_quoted(server.url)}",
        f"    apiKey: {_quoted(server.key)}",
        "    roles: [chat, edit, apply]",
    ]
    if server.max_model_len is not None:
        lines += [
            "    defaultCompletionOptions:",
            f"      contextLength: {server.max_model_len}",
            f"      maxTokens: {server.max_output_tokens}",
        ]
    note = "the file is ~/.continue/config.yaml; in one that you have, add the entry under models:"
    return Settings("\n".join(lines) + "\n", (note,))


def _open_webui(server: Endpoint) -> Settings:
    variables = {
        "OPENAI_API_BASE_URL": server.url,
        "OPENAI_API_KEY": server.key,
        "ENABLE_OLLAMA_API": False,
    }
    options = " ".join(f"-e {name}={shlex.quote(str(value))}" for name, value in variables.items())
    docker = (
        f"as a container: docker run -d --network=host -e PORT=3000 {options} "
        "-v open-webui:/app/backend/data --name open-webui ghcr.io/open-webui/open-webui:main"
    )
    kept = (
        "it keeps these in its database at its first start; after that they are changed under "
        "Admin Settings, Connections"
    )
    return Settings(f"{_exports(variables)}open-webui serve --port 3000\n", (docker, kept))


def _litellm(server: Endpoint) -> Settings:
    lines = [
        "model_list:",
        f"  - model_name: {_quoted(server.model)}",
        "    litellm_params:",
        f"      model: {_quoted(f'openai/{server.model}')}",
        f"      api_base: {_quoted(server.url)}",
        "      api_key: os.environ/EDGESERVE_API_KEY",
    ]
    if server.max_model_len is not None:
        lines += [
            "    model_info:",
            f"      max_input_tokens: {server.max_model_len}",
            f"      max_output_tokens: {server.max_output_tokens}",
        ]
    text = (
        _file("litellm-edgeserve.yaml", lines)
        + _exports({"EDGESERVE_API_KEY": server.key})
        + "litellm --config litellm-edgeserve.yaml --port 4000\n"
    )
    return Settings(text)


CLIENTS: Mapping[str, Callable[[Endpoint], Settings]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "aider": _aider,
    "continue": _continue,
    "open-webui": _open_webui,
    "litellm": _litellm,
}
"""By the name that `edgeserve connect` takes."""


def _agent_notes(server: Endpoint, prompt_tokens: int) -> tuple[str, ...]:
    context = server.max_model_len
    if context is None or context >= 2 * prompt_tokens:
        return ()
    return (
        f"a context of {context:,} tokens is small for it: its own instructions and tools take "
        f"about {prompt_tokens:,}",
    )


def _exports(variables: Mapping[str, object]) -> str:
    return "".join(
        f"export {name}={shlex.quote(str(value))}\n" for name, value in variables.items()
    )


def _file(path: str, lines: list[str]) -> str:
    """The command that writes it; the quoted mark keeps a shell from reading the lines."""
    folder = path.rpartition("/")[0]
    made = f"mkdir -p {folder}\n" if folder not in ("", "~") else ""
    return f"{made}cat > {path} <<'EDGESERVE'\n" + "\n".join(lines) + "\nEDGESERVE\n"


def _quoted(text: str) -> str:
    """A JSON string is one of TOML's and of YAML's as well."""
    return json.dumps(text, ensure_ascii=False)
