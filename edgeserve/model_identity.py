"""What tells a model's kept prompts from all others: its weights, its plan, how they are stored."""

from __future__ import annotations

from hashlib import blake2b

from edgeserve.cache.disk_folder import DiskFolder
from edgeserve.cache.disk_store import DiskStore
from edgeserve.config import Config
from edgeserve.engine_options import EngineOptions
from edgeserve.errors import ModelFileError
from edgeserve.loader.gguf import ModelFile
from edgeserve.loader.tensors import TensorReader
from edgeserve.runner.kv_types import STORED_KV_VERSION
from edgeserve.runner.runner import Runner


def content_of(
    tensors: TensorReader, states: list[tuple[int, ...]]
) -> tuple[bytes, list[tuple[int, ...]]] | None:
    """What tells these weights from others; None if a file changed while they were read."""
    try:
        content = (tensors.sample_digest(), tensors.file_states())
    except ModelFileError:
        return None
    return content if content[1] == states else None


def identity_of(described: str, content: object, runner: Runner, options: EngineOptions) -> bytes:
    """16 bytes of all that makes keys and values of the same tokens other ones."""
    block_bytes = [runner.block_bytes(group) for group in range(len(runner.cache_groups))]
    kept_as = (STORED_KV_VERSION, runner.numerics_class, options.kv_cache_dtype, block_bytes)
    return digest(described, content, kept_as)


def digest(*parts: object) -> bytes:
    """16 bytes of values that are written as they are."""
    return blake2b(repr(parts).encode(), digest_size=16).digest()


def disk_store(
    identity: bytes, file: ModelFile, options: EngineOptions, config: Config
) -> DiskStore | None:
    """Where blocks of keys and values outlive the process; None where they are not to."""
    bound_bytes = config.disk_cache if options.disk_cache is None else options.disk_cache
    if bound_bytes == 0 or options.device == "oracle":
        return None
    path = file.paths[0]
    about = {"model": path.stem, "path": str(path), "kv_cache_dtype": options.kv_cache_dtype}
    return DiskStore(DiskFolder(config.prompts_dir), identity, about, bound_bytes=bound_bytes)
