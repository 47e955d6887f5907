"""Config: each variable lands where it should, on each platform."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgeserve.config import Config
from edgeserve.errors import InvalidRequestError

HOME = Path("/home/ada")


def read(platform: str = "linux", **environ: str) -> Config:
    return Config.from_environment(environ, platform=platform, home=HOME)


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, HOME / ".local/share/edgeserve"),
        ("linux", {"XDG_DATA_HOME": "/x"}, Path("/x/edgeserve")),
        ("linux", {"XDG_DATA_HOME": "/x", "EDGESERVE_DATA": "/own"}, Path("/own")),
        ("linux", {"EDGESERVE_DATA": "~/chats"}, HOME / "chats"),
        ("darwin", {}, HOME / "Library/Application Support/edgeserve"),
        ("darwin", {"XDG_DATA_HOME": "/x"}, Path("/x/edgeserve")),
        ("win32", {"LOCALAPPDATA": "/local"}, Path("/local/edgeserve-data")),
        ("win32", {}, HOME / "AppData/Local/edgeserve-data"),
    ],
)
def test_chats_and_prompts_follow_the_platform(
    platform: str, environ: dict[str, str], expected: Path
) -> None:
    config = read(platform, **environ)
    assert config.chats_file == expected / "chats.db"
    assert config.prompt_files_dir == expected / "prompts"


def test_a_config_without_a_data_folder_keeps_to_its_own(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path, hf_hub_cache=tmp_path)
    assert config.chats_file.is_relative_to(tmp_path)


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, HOME / ".cache/edgeserve"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, Path("/x/edgeserve")),
        ("linux", {"XDG_CACHE_HOME": "/x", "EDGESERVE_CACHE": "/own"}, Path("/own")),
        ("linux", {"EDGESERVE_CACHE": "~/models"}, HOME / "models"),
        ("linux", {"EDGESERVE_CACHE": ""}, HOME / ".cache/edgeserve"),
        ("darwin", {}, HOME / "Library/Caches/edgeserve"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, Path("/x/edgeserve")),
        ("win32", {"LOCALAPPDATA": "/local"}, Path("/local/edgeserve")),
        ("win32", {}, HOME / "AppData/Local/edgeserve"),
    ],
)
def test_cache_folder_follows_the_platform(
    platform: str, environ: dict[str, str], expected: Path
) -> None:
    assert read(platform, **environ).cache_dir == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, HOME / ".cache/huggingface/hub"),
        ({"HF_HOME": "/hf"}, Path("/hf/hub")),
        ({"HF_HOME": "/hf", "HF_HUB_CACHE": "/hub"}, Path("/hub")),
        ({"HUGGINGFACE_HUB_CACHE": "/old"}, Path("/old")),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/huggingface/hub")),
    ],
)
def test_hub_cache_is_found_as_the_hub_client_finds_it(
    environ: dict[str, str], expected: Path
) -> None:
    assert read(**environ).hf_hub_cache == expected


def test_ollama_models_variable_replaces_every_default() -> None:
    assert read(OLLAMA_MODELS="/o").ollama_dirs == (Path("/o"),)
    assert HOME / ".ollama/models" in read().ollama_dirs
    assert len(read().ollama_dirs) > len(read("darwin").ollama_dirs) == 1


def test_llama_cpp_cache_follows_the_platform() -> None:
    assert read(LLAMA_CACHE="/l").llama_cpp_dirs == (Path("/l"),)
    assert read().llama_cpp_dirs == (HOME / ".cache/llama.cpp",)
    assert read("darwin").llama_cpp_dirs == (HOME / "Library/Caches/llama.cpp",)


def test_no_color_is_set_by_any_value_but_the_empty_one() -> None:
    assert read(NO_COLOR="0").no_color
    assert not read(NO_COLOR="").no_color
    assert not read().no_color


def test_token_stays_out_of_the_printed_form() -> None:
    config = read(HF_TOKEN="hf_secret")
    assert config.hf_token == "hf_secret"
    assert "hf_secret" not in repr(config)


def test_endpoint_and_offline_switch() -> None:
    config = read(HF_ENDPOINT="http://localhost:1/", HF_HUB_OFFLINE="1")
    assert config.hf_endpoint == "http://localhost:1"
    assert config.hf_offline
    assert read().hf_endpoint == "https://huggingface.co"


def test_kernels_and_log_level() -> None:
    config = read(EDGESERVE_KERNELS="ref", EDGESERVE_LOG_LEVEL="INFO")
    assert (config.kernels, config.log_level) == ("ref", "info")


def test_wrong_log_level_names_the_variable_and_the_choices() -> None:
    with pytest.raises(InvalidRequestError, match=r"EDGESERVE_LOG_LEVEL.*debug, info"):
        read(EDGESERVE_LOG_LEVEL="loud")


def test_only_config_reads_the_environment() -> None:
    """What LiteLLM writes in its settings, os.environ/NAME, is no reading."""
    package = Path(__file__).parent.parent / "edgeserve"
    readers = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path.name != "config.py"
        and re.search(r"os\.(getenv|environ(?!/))", path.read_text("utf-8"))
    ]
    assert readers == []
