"""`edgeserve connect`: settings that a shell, and each client's file format, read back as meant."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from edgeserve import cli
from edgeserve.client_settings import CLIENTS, Endpoint

from .scripted_server import serving

NASTY = Endpoint("http://host:1/v1", 'it\'s "a" $HOME/`x`:model', "k'e y", 32768)
PLAIN = Endpoint("http://host:1/v1", "tiny", "key")


def connect(*arguments: str) -> int:
    return cli.main(["connect", *arguments])


def obeyed(text: str, home: Path) -> tuple[dict[str, str], list[str]]:
    """What a shell that runs the text has in its environment, and how it starts the client."""
    *settings, start = text.splitlines()
    script = "\n".join([*settings, "env -0", f"printf '%s\\0' START {start}"])
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "ANTHROPIC_API_KEY": "theirs"}
    done = subprocess.run(
        ["sh", "-euc", script],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    variables, _, words = done.stdout.partition("START\0")
    pairs = [pair.partition("=") for pair in variables.split("\0") if pair]
    return {name: value for name, _, value in pairs}, words.split("\0")[:-1]


def test_claude_code_gets_anthropics_names_and_no_other_key(tmp_path: Path) -> None:
    found, words = obeyed(CLIENTS["claude-code"](NASTY).text, tmp_path)
    assert words == ["claude"]
    assert found["ANTHROPIC_BASE_URL"] == "http://host:1"
    assert found["ANTHROPIC_AUTH_TOKEN"] == NASTY.key
    assert "ANTHROPIC_API_KEY" not in found
    models = [name for name in found if name.endswith("_MODEL")]
    assert len(models) == 5
    assert {found[name] for name in models} == {NASTY.model}
    assert found["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "32768"
    assert found["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "8192"
    assert int(found["CLAUDE_STREAM_IDLE_TIMEOUT_MS"]) > 300_000  # what it waits for otherwise


def test_codex_gets_a_profile_of_its_own(tmp_path: Path) -> None:
    found, words = obeyed(CLIENTS["codex"](NASTY).text, tmp_path)
    assert words == ["codex", "--profile", "edgeserve"]
    profile = tomllib.loads((tmp_path / ".codex" / "edgeserve.config.toml").read_text())
    provider = profile["model_providers"][profile["model_provider"]]
    assert (profile["model"], profile["model_context_window"]) == (NASTY.model, 32768)
    assert (provider["base_url"], provider["wire_api"]) == (NASTY.url, "responses")
    assert found[provider["env_key"]] == NASTY.key
    assert provider["stream_idle_timeout_ms"] > 300_000  # what it waits for otherwise


def test_aider_gets_the_models_size(tmp_path: Path) -> None:
    found, words = obeyed(CLIENTS["aider"](NASTY).text, tmp_path)
    name = f"openai/{NASTY.model}"
    assert words == ["aider", "--model", name]
    assert (found["OPENAI_API_BASE"], found["OPENAI_API_KEY"]) == (NASTY.url, NASTY.key)
    known = json.loads((tmp_path / ".aider.model.metadata.json").read_text())[name]
    assert (known["max_input_tokens"], known["litellm_provider"]) == (32768, "openai")


def test_continue_gets_a_model_of_openais_kind() -> None:
    config = yaml.safe_load(CLIENTS["continue"](NASTY).text)
    (model,) = config["models"]
    assert (model["provider"], model["model"]) == ("openai", NASTY.model)
    assert (model["apiBase"], model["apiKey"]) == (NASTY.url, NASTY.key)
    assert model["defaultCompletionOptions"] == {"contextLength": 32768, "maxTokens": 8192}


def test_open_webui_gets_variables_and_a_port_that_is_not_ours(tmp_path: Path) -> None:
    found, words = obeyed(CLIENTS["open-webui"](NASTY).text, tmp_path)
    assert words == ["open-webui", "serve", "--port", "3000"]
    assert (found["OPENAI_API_BASE_URL"], found["OPENAI_API_KEY"]) == (NASTY.url, NASTY.key)


def test_litellm_gets_a_config_that_names_the_key(tmp_path: Path) -> None:
    found, words = obeyed(CLIENTS["litellm"](NASTY).text, tmp_path)
    config = yaml.safe_load((tmp_path / words[words.index("--config") + 1]).read_text())
    (entry,) = config["model_list"]
    assert entry["model_name"] == NASTY.model
    params = entry["litellm_params"]
    assert (params["model"], params["api_base"]) == (f"openai/{NASTY.model}", NASTY.url)
    assert found[params["api_key"].removeprefix("os.environ/")] == NASTY.key


@pytest.mark.parametrize("client", CLIENTS)
def test_an_unknown_context_is_left_out(client: str) -> None:
    text = CLIENTS[client](PLAIN).text
    assert "None" not in text
    assert "http://host:1" in text
    assert not any(word in text.lower() for word in ("context", "max_", "maxtokens"))


def test_the_running_server_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    models = [{"id": "first", "meta": {"n_ctx_train": 9000}}, {"id": "other", "max_model_len": 777}]
    with serving(models=models) as server:
        assert connect("codex", "--url", server.url) == 0
        out, err = capsys.readouterr()
        assert 'model = "first"\n' in out
        assert "model_context_window = 9000" in out
        assert f'base_url = "{server.url}/v1"' in out
        assert "a context of 9,000 tokens is small" in err
        assert connect("codex", "--url", server.url, "--model", "other", "--key", "mine") == 0
        out = capsys.readouterr().out
        assert "model_context_window = 777" in out
        assert "export EDGESERVE_API_KEY=mine" in out


def test_a_context_is_small_by_what_the_agent_itself_sends() -> None:
    claude_code, codex = (" ".join(CLIENTS[name](NASTY).notes) for name in ("claude-code", "codex"))
    assert "a context of 32,768 tokens is small" in claude_code
    assert "small" not in codex


def test_a_model_that_is_not_listed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        assert connect("aider", "--url", server.url, "--model", "mine") == 0
    out, err = capsys.readouterr()
    assert "aider --model openai/mine" in out
    assert "does not list mine, but tiny" in err


def test_without_a_server_there_are_placeholders_and_a_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
    assert connect("claude-code", "--url", url) == 0
    out, err = capsys.readouterr()
    assert "export ANTHROPIC_MODEL=MODEL\n" in out
    assert "the model and its context are not known" in err
    assert f"no server answers at {url}/v1" in err
