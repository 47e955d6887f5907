"""What an OpenAI-compatible server says it serves: its base URL, its models, their context.

Knows HTTP only, nothing of this machine's models.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit, urlunsplit

import httpx
import msgspec

from edgeserve.errors import InvalidRequestError, ServerRefusedError, ServerUnreachableError
from edgeserve.frozen import frozen
from edgeserve.sampling_params import SamplingDefaults


@frozen
class RemoteModel:
    """One entry of `/v1/models`. `max_model_len` is None where the server does not say. `owner`
    names the program that serves it ("edgeserve", "llamacpp", "vllm"), if it says so."""

    id: str
    max_model_len: int | None = None
    owner: str = ""
    size_bytes: int | None = None
    fingerprint: str = ""
    thinks: bool | None = None
    sampling: SamplingDefaults | None = None


_MOST_OF_A_PAGE = 20_000
_TAG = re.compile(r"<(style|script)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def base_url(text: str) -> str:
    """The URL that ends in `/v1`, from what a user typed: `localhost:8000`, or with any path.

    Raises InvalidRequestError.
    """
    address = text.strip()
    parts = urlsplit(address if "://" in address else f"http://{address}")
    try:
        is_known = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises where it is no number
    except ValueError:
        is_known = False
    if not is_known:
        raise InvalidRequestError("URL", text, "a server's address, as http://127.0.0.1:8000")
    path = parts.path.rstrip("/") or "/v1"
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def is_loopback(url: str) -> bool:
    """Whether it names this machine, to which no proxy leads."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def key_headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def remote_models(
    url: str, key: str | None, *, timeout_s: float, transport: httpx.BaseTransport | None = None
) -> tuple[RemoteModel, ...]:
    """Asks `GET {url}/models`, in the server's order.

    Raises ServerUnreachableError, or ServerRefusedError for any answer that is not such a list.
    """
    try:
        with httpx.Client(
            timeout=timeout_s, transport=transport, trust_env=not is_loopback(url)
        ) as client:
            answer = client.get(f"{url}/models", headers=key_headers(key))
    except httpx.HTTPError as error:
        raise ServerUnreachableError(url, str(error) or type(error).__name__) from None
    if not answer.is_success:
        raise ServerRefusedError(url, answer.status_code, error_message(answer.content))
    try:
        entries = msgspec.json.decode(answer.content, type=_Models).data
    except msgspec.MsgspecError as error:
        reason = f"its answer is no list of models: {error}"
        raise ServerRefusedError(url, answer.status_code, reason) from None
    return tuple(entry.model() for entry in entries)


class _Context(msgspec.Struct):
    """What servers call the longest prompt and answer together: vLLM, others, llama.cpp's two."""

    max_model_len: int | None = None
    context_length: int | None = None
    n_ctx: int | None = None
    n_ctx_train: int | None = None

    def tokens(self) -> int | None:
        return self.max_model_len or self.context_length or self.n_ctx or self.n_ctx_train


_NULL = msgspec.Raw(b"null")


class _Sampling(msgspec.Struct):
    """As our own server tells what stands in for fields that a request leaves out."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    origin: str


class _Meta(_Context):
    size: int | None = None
    fingerprint: str | None = None
    reasoning: bool | None = None
    default_sampling: msgspec.Raw = _NULL

    def sampling(self) -> SamplingDefaults | None:
        """None where there is none, or something else is called so."""
        try:
            found = msgspec.json.decode(self.default_sampling, type=_Sampling)
        except msgspec.MsgspecError:
            return None
        return SamplingDefaults(**msgspec.structs.asdict(found))


class _Entry(_Context, kw_only=True):
    id: str
    owned_by: str | None = None
    meta: _Meta | None = None

    def model(self) -> RemoteModel:
        meta = self.meta or _Meta()
        return RemoteModel(
            self.id,
            self.tokens() or meta.tokens(),
            self.owned_by or "",
            meta.size,
            meta.fingerprint or "",
            meta.reasoning,
            meta.sampling(),
        )


class _Models(msgspec.Struct):
    data: list[_Entry]


class _Error(msgspec.Struct):
    message: str = ""


class _ErrorBody(msgspec.Struct):
    error: _Error | str


def error_message(body: bytes) -> str:
    """The text of an error body in OpenAI's shape, or else how any other body begins."""
    try:
        found = msgspec.json.decode(body, type=_ErrorBody).error
    except msgspec.MsgspecError:
        text = body[:_MOST_OF_A_PAGE].decode(errors="replace")
        if text.lstrip().startswith("<"):  # a page of a proxy before the server
            text = _TAG.sub(" ", text)
        return " ".join(text.split())[:200]
    return found if isinstance(found, str) else found.message
