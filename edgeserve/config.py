"""What the environment says: folders, tokens, switches. The one place that reads it.

Everything else is handed a Config, so that a test or an embedding program decides by arguments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen

_LOG_LEVELS = ("debug", "info", "warning", "error")
_DISK_CACHE_BYTES = 4 * 2**30
_HUB_ENDPOINT = "https://huggingface.co"
# Where Linux packages put the models of an Ollama that runs as a service of its own user.
_OLLAMA_SERVICE_DIRS = (
    Path("/usr/share/ollama/.ollama/models"),
    Path("/var/lib/ollama/.ollama/models"),
    Path("/var/lib/ollama/models"),
)


@frozen
class Config:
    """Folders and switches of one process.

    `cache_dir` is ours to write, and so is `data_dir`, whose files nobody can make again; where it
    is not said they lie in `cache_dir`. `hf_hub_cache` and the `*_dirs` belong to other programs
    and are only read. `kernels` forces a kernel set by name; None lets the machine decide.
    `disk_cache` is how many bytes of prompts' keys and values may be kept on disk: none, unless it
    is said or the Config is read from the environment.
    """

    cache_dir: Path
    hf_hub_cache: Path
    hf_endpoint: str = _HUB_ENDPOINT
    hf_token: str | None = field(default=None, repr=False)
    hf_offline: bool = False
    ollama_dirs: tuple[Path, ...] = ()
    lm_studio_dirs: tuple[Path, ...] = ()
    llama_cpp_dirs: tuple[Path, ...] = ()
    no_color: bool = False
    kernels: str | None = None
    log_level: str = "warning"
    disk_cache: int = 0
    data_dir: Path | None = None

    @property
    def chats_file(self) -> Path:
        """Where conversations are kept."""
        return self._own_data / "chats.db"

    @property
    def prompt_files_dir(self) -> Path:
        """Where the user's own prompts are, Markdown files."""
        return self._own_data / "prompts"

    @property
    def _own_data(self) -> Path:
        return self.data_dir or self.cache_dir / "data"

    @property
    def models_dir(self) -> Path:
        """Where models that we fetched are kept."""
        return self.cache_dir / "models"

    @property
    def prompts_dir(self) -> Path:
        """Where keys and values of prompts are kept."""
        return self.cache_dir / "prompts"

    @property
    def constrained_dir(self) -> Path:
        """Where servers note for which models there were constraints."""
        return self.cache_dir / "constrained"

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        platform: str = sys.platform,
        home: Path | None = None,
    ) -> Config:
        """Read every variable there is, of this process when no mapping is given.

        Raises InvalidRequestError naming the variable that is wrong.
        """
        environ = os.environ if environ is None else environ
        folders = _Folders(environ, platform, home or Path.home())
        return cls(
            cache_dir=folders.own_cache(),
            hf_hub_cache=folders.hub_cache(),
            hf_endpoint=environ.get("HF_ENDPOINT", "").rstrip("/") or _HUB_ENDPOINT,
            hf_token=environ.get("HF_TOKEN") or None,
            hf_offline=_is_on(environ.get("HF_HUB_OFFLINE", "")),
            ollama_dirs=folders.ollama(),
            lm_studio_dirs=folders.lm_studio(),
            llama_cpp_dirs=folders.llama_cpp(),
            no_color=environ.get("NO_COLOR", "") != "",
            kernels=environ.get("EDGESERVE_KERNELS") or None,
            log_level=_log_level(environ.get("EDGESERVE_LOG_LEVEL", "")),
            disk_cache=_num_bytes("EDGESERVE_DISK_CACHE", environ, _DISK_CACHE_BYTES),
            data_dir=folders.own_data(),
        )


def process_environment() -> Mapping[str, str]:
    """The variables of this process, for a value that is made of others than a Config's."""
    return os.environ


def keep_numpy_to_one_thread() -> None:
    """For a program that has not imported numpy, and multiplies nothing with it: its threads would
    spin beside ours when they start."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def paint_promptly() -> None:
    """For a program that has not imported Textual: what changed is painted within 4 ms, not 17. It
    paints no more often for that, for nothing changes so fast."""
    os.environ.setdefault("TEXTUAL_FPS", "250")


def _is_on(text: str) -> bool:
    return text.strip().lower() in {"1", "true", "yes", "on"}


def _log_level(text: str) -> str:
    level = text.strip().lower() or "warning"
    if level not in _LOG_LEVELS:
        raise InvalidRequestError("EDGESERVE_LOG_LEVEL", text, f"one of {', '.join(_LOG_LEVELS)}")
    return level


def _num_bytes(variable: str, environ: Mapping[str, str], default: int) -> int:
    text = environ.get(variable, "").strip()
    if not text:
        return default
    if not text.isdecimal():
        raise InvalidRequestError(variable, text, "a number of bytes, and 0 for none")
    return int(text)


@frozen
class _Folders:
    """Where each program keeps files on each platform."""

    environ: Mapping[str, str]
    platform: str
    home: Path

    def _path(self, variable: str) -> Path | None:
        text = self.environ.get(variable, "")
        if not text:
            return None
        if text == "~" or text.startswith(("~/", "~\\")):
            return self.home / text[2:]
        return Path(text)

    def _xdg_cache(self) -> Path:
        return self._path("XDG_CACHE_HOME") or self.home / ".cache"

    def _platform_cache(self, name: str) -> Path:
        """The cache folder of a program that follows each platform's custom."""
        if self.platform == "darwin" and "XDG_CACHE_HOME" not in self.environ:
            return self.home / "Library" / "Caches" / name
        if self.platform == "win32":
            return (self._path("LOCALAPPDATA") or self.home / "AppData" / "Local") / name
        return self._xdg_cache() / name

    def own_cache(self) -> Path:
        return self._path("EDGESERVE_CACHE") or self._platform_cache("edgeserve")

    def own_data(self) -> Path:
        chosen = self._path("EDGESERVE_DATA")
        if chosen is not None:
            return chosen
        if self.platform == "win32":  # not in the cache's folder, which anybody may empty
            local = self._path("LOCALAPPDATA") or self.home / "AppData" / "Local"
            return local / "edgeserve-data"
        if self.platform == "darwin" and "XDG_DATA_HOME" not in self.environ:
            return self.home / "Library" / "Application Support" / "edgeserve"
        shared = self._path("XDG_DATA_HOME") or self.home / ".local" / "share"
        return shared / "edgeserve"

    def hub_cache(self) -> Path:
        for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
            path = self._path(variable)
            if path is not None:
                return path
        return (self._path("HF_HOME") or self._xdg_cache() / "huggingface") / "hub"

    def ollama(self) -> tuple[Path, ...]:
        chosen = self._path("OLLAMA_MODELS")
        if chosen is not None:
            return (chosen,)
        service = _OLLAMA_SERVICE_DIRS if self.platform.startswith("linux") else ()
        return (self.home / ".ollama" / "models", *service)

    def lm_studio(self) -> tuple[Path, ...]:
        return (
            self.home / ".lmstudio" / "models",
            self.home / ".cache" / "lm-studio" / "models",
        )

    def llama_cpp(self) -> tuple[Path, ...]:
        return (self._path("LLAMA_CACHE") or self._platform_cache("llama.cpp"),)
