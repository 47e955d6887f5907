"""The Hugging Face hub: which files a repository has, their size and sha256, and their bytes.

Knows neither the catalogue nor folders. Metadata, tokens and the HTTP client are huggingface_hub's;
the bytes are read here, because its own download does not continue after the process has ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from edgeserve.config import Config
from edgeserve.errors import DownloadError, ModelNotFoundError
from edgeserve.frozen import frozen
from edgeserve.loader.download import Expected, OpenedBytes, TransferInterrupted

_TIMEOUT_S = 30.0
_CONTENT_RANGE = re.compile(r"bytes (\d+)-")
_RETRIED_STATUS = {408, 425, 429, 500, 502, 503, 504}


@frozen
class HubFile:
    """A file of a repository. `sha256` is None for what is not in large-file storage."""

    name: str
    size_bytes: int
    sha256: str | None


@frozen
class HubRepo:
    """A repository at one commit, and the GGUF files it holds. `license` is its card's word."""

    repo: str
    commit: str
    files: tuple[HubFile, ...]
    license: str | None


class Hub:
    """One hub, by its endpoint and token."""

    def __init__(self, config: Config) -> None:
        self._endpoint = config.hf_endpoint
        self._token = config.hf_token
        self._offline = config.hf_offline

    def repo(self, repo: str) -> HubRepo:
        """What the repository holds now. Raises ModelNotFoundError, or DownloadError offline."""
        from huggingface_hub import HfApi

        self._refuse_offline(repo)
        api = HfApi(endpoint=self._endpoint, token=self._token)
        try:
            with _translated(f"hf:{repo}", self._endpoint):
                info = api.model_info(repo, files_metadata=True, timeout=_TIMEOUT_S)
        except TransferInterrupted as error:
            raise DownloadError(
                f"hf:{repo}: {self._endpoint} cannot be reached ({error}); "
                "check the network, or the proxy settings"
            ) from error
        files = tuple(
            HubFile(s.rfilename, s.size or 0, s.lfs.sha256 if s.lfs else None)
            for s in info.siblings or ()
            if s.rfilename.lower().endswith(".gguf")
        )
        card: Any = info.card_data
        return HubRepo(repo, info.sha or "main", files, card.get("license") if card else None)

    def expected(self, repo: HubRepo, file: HubFile) -> Expected:
        """What the file must turn out to be. Raises DownloadError when the hub gives no sha256."""
        if file.sha256 is None:
            raise DownloadError(
                f"hf:{repo.repo}:{file.name}: the hub gives no sha256 to check it by; "
                "download it by hand and give its path"
            )
        return Expected(file.name, file.size_bytes, file.sha256)

    def opener(
        self, repo: HubRepo, file: HubFile
    ) -> Callable[[int], AbstractContextManager[OpenedBytes]]:
        """Opens the file's bytes from an offset on."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(repo.repo, file.name, revision=repo.commit, endpoint=self._endpoint)

        @contextmanager
        def open_at(offset: int) -> Generator[OpenedBytes]:
            with (
                _translated(f"hf:{repo.repo}:{file.name}", self._endpoint),
                self._get(url, offset) as opened,
            ):
                yield opened

        return open_at

    @contextmanager
    def _get(self, url: str, offset: int) -> Generator[OpenedBytes]:
        from huggingface_hub.utils import (
            build_hf_headers,  # pyright: ignore[reportUnknownVariableType]
            get_session,
            hf_raise_for_status,
        )

        headers = build_hf_headers(token=self._token)
        headers["Accept-Encoding"] = "identity"  # the bytes as they are, or a range means nothing
        if offset:
            headers["Range"] = f"bytes={offset}-"
        with get_session().stream("GET", url, headers=headers, timeout=_TIMEOUT_S) as response:
            if response.status_code != 416 or not offset:
                if response.status_code in _RETRIED_STATUS:
                    raise TransferInterrupted(f"HTTP status {response.status_code}")
                hf_raise_for_status(response)
                yield OpenedBytes(_start(response, offset), response.iter_bytes())
                return
        with self._get(url, 0) as opened:  # 416: it would not start there, so from the start
            yield opened

    def _refuse_offline(self, repo: str) -> None:
        if self._offline:
            raise DownloadError(
                f"hf:{repo} is not on this machine, and HF_HUB_OFFLINE forbids asking the hub; "
                "unset it, or give the path of a file"
            )


def _start(response: Any, offset: int) -> int:
    """Where the answer's first byte belongs. A server that ignores ranges says 200: at 0."""
    if response.status_code != 206:
        return 0
    match = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    return int(match.group(1)) if match else offset


@contextmanager
def _translated(what: str, endpoint: str) -> Generator[None]:
    """Turn what huggingface_hub and its HTTP client raise into our errors."""
    from huggingface_hub import errors as hub_errors

    try:
        yield
    except hub_errors.GatedRepoError as error:
        raise DownloadError(
            f"{what}: its owner wants its terms accepted first; do so on "
            f"{endpoint}/{what.removeprefix('hf:').split(':')[0]} and set HF_TOKEN"
        ) from error
    except (hub_errors.RepositoryNotFoundError, hub_errors.RevisionNotFoundError) as error:
        raise ModelNotFoundError(
            f"{what}: the hub has no such repository, or it is private; "
            "check the name, or set HF_TOKEN"
        ) from error
    except hub_errors.EntryNotFoundError as error:
        raise ModelNotFoundError(f"{what}: the repository has no such file") from error
    except hub_errors.HFValidationError as error:
        raise ModelNotFoundError(f"{what}: no valid repository name (owner/name)") from error
    except hub_errors.OfflineModeIsEnabled as error:
        raise DownloadError(f"{what}: HF_HUB_OFFLINE forbids asking the hub; unset it") from error
    except hub_errors.HfHubHTTPError as error:
        raise DownloadError(f"{what}: {endpoint} answered {_status(error)}") from error
    except Exception as error:
        # The client's own errors: which HTTP library that is depends on huggingface_hub's version.
        if not _is_of_http_client(error):
            raise
        raise TransferInterrupted(f"{type(error).__name__}: {error}") from error


def _status(error: Any) -> str:
    return str(getattr(error.response, "status_code", "an error"))


def _is_of_http_client(error: Exception) -> bool:
    return type(error).__module__.split(".")[0] in {"httpx", "httpx2", "httpcore", "httpcore2"}
