"""The one place that wires objects: a model's name in, a ready engine out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

from edgeserve.binding.library import native_num_cores
from edgeserve.cache.disk_folder import DiskFolder
from edgeserve.cache.disk_store import DiskStore
from edgeserve.cache.kv_cache import Growth
from edgeserve.cache.prefix_index import PrefixIndex
from edgeserve.config import Config
from edgeserve.engine.engine import Engine
from edgeserve.engine.limits import EngineLimits
from edgeserve.engine.speculation.draft_lengths import PayingLengths
from edgeserve.engine.speculation.lookup import Lookup
from edgeserve.engine.speculation.proposer import Proposer
from edgeserve.engine.speculation.row_times import RowTimes
from edgeserve.engine.speculation.speculator import Speculator
from edgeserve.engine_options import DTYPE_BYTES, EngineOptions
from edgeserve.errors import (
    DraftVocabularyError,
    InvalidRequestError,
    KVMemoryError,
    ModelFileError,
)
from edgeserve.frozen import frozen
from edgeserve.loader.gguf import ModelFile, read_gguf
from edgeserve.loader.machine import available_memory
from edgeserve.loader.model_files import LicenseGate, ModelFiles, files_at
from edgeserve.loader.progress import Progress, SilentProgress
from edgeserve.loader.sampling_defaults import sampling_defaults
from edgeserve.loader.tensors import TensorReader
from edgeserve.loading_weights import LoadingWeights
from edgeserve.models import build_plan
from edgeserve.plan.ops import Attention, CacheKind, Linear, MoeLinear, Plan
from edgeserve.runner.batch import BLOCK_SIZE
from edgeserve.runner.kv_types import KV_TYPES, STORED_KV_VERSION
from edgeserve.runner.runner import Runner
from edgeserve.text.chat_template import ChatTemplate
from edgeserve.text.tokenizer import Tokenizer, build_tokenizer
from edgeserve.types import Metadata, MetadataValue, SamplingDefaults

_ENGINE_SHARE_OF_MEMORY = 0.5
_DRAFT_SHARE_OF_MEMORY = 0.1
_SLAB_BYTES = 128 << 20
_LEFT_ALONE_BYTES = 256 << 20
# Weights multiplied a second, before the first step has told: low, so that it is short.
_NATIVE_PRIOR_RATE = 50e9
_ORACLE_PRIOR_RATE = 5e9
_PRIOR_ATTENTION_SHARE = 0.25  # of that rate


@frozen
class LoadedModel:
    """Everything a public face needs. `template` is None for a model that has no chat format.

    `full_context_bytes` of keys and values would hold all tokens the model was trained for.
    """

    name: str
    path: Path
    metadata: Metadata
    plan: Plan
    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate | None
    defaults: SamplingDefaults
    full_context_bytes: int

    @property
    def context_note(self) -> str | None:
        """What to say where memory holds less than the model was trained for."""
        held, trained = self.engine.limits.max_model_len, self.plan.max_position
        if held == trained:
            return None
        for_all = math.ceil(self.full_context_bytes / 1e8) / 10
        return f"context {held:,} of {trained:,}; --kv-cache-memory {for_all:g}G for all"


def load_model(
    source: str,
    options: EngineOptions,
    *,
    config: Config,
    clock: Callable[[], float],
    progress: Progress | None = None,
    license_gate: LicenseGate | None = None,
) -> LoadedModel:
    """Finds (maybe downloads), reads and prepares a model.

    Raises ModelNotFoundError, LicenseNotAcceptedError, DownloadError, ModelFileError,
    UnsupportedModelError, TokenizerError, TemplateError, KVMemoryError, InvalidRequestError,
    DraftVocabularyError.
    """
    resolved = files_at(source) or _resolve(source, config, progress, license_gate)
    file = read_gguf(resolved.path)
    draft_file = None
    if options.draft_model is not None:
        name = options.draft_model
        draft = files_at(name) or _resolve(name, config, progress, license_gate)
        draft_file = _read_draft(name, draft.path, file.metadata)
    plan = build_plan(file.metadata, file.tensors, max_model_len=options.max_model_len)
    defaults = sampling_defaults(file.metadata, resolved.entry)
    limits, num_blocks = _size(plan, options)
    with TensorReader(file) as tensors:
        states = tensors.file_states()
        loading = None
        if options.device != "oracle":
            num_threads = options.num_threads or native_num_cores()
            loading = LoadingWeights(plan, tensors, num_threads)
        try:
            tokenizer = build_tokenizer(file.metadata)
            template = _template(file.metadata, tokenizer, options.chat_template)
            described = repr((plan.operations, plan.cache_groups))
            if loading is None:
                runner = _oracle_runner(plan, tensors, num_blocks, options)
            else:
                runner = _native_runner(plan, tensors, loading, num_blocks, options, config)
        except BaseException:
            if loading is not None:
                loading.abandon()
            raise
        content = _content(tensors, states)
    try:
        proposers = _proposers(plan, draft_file, limits, options, config, clock)
    except BaseException:
        runner.close()
        raise
    speculator = None
    if proposers:
        speculator = Speculator(proposers, PayingLengths(RowTimes()), tokenizer.vocab_size)
    index = store = None
    if options.prefix_caching and not _is_recurrent(plan):
        identity = _identity(described, content, runner, options)
        index = PrefixIndex(identity, BLOCK_SIZE)
        if content is not None:
            store = _disk_store(identity, source, resolved.path, options, config)
    engine = Engine(
        runner,
        tokenizer,
        limits,
        defaults,
        clock,
        index,
        _growth(runner),
        speculator,
        store,
    )
    num_blocks = -(-plan.max_position // BLOCK_SIZE)
    full_context_bytes = num_blocks * BLOCK_SIZE * _token_bytes(plan, options)
    return LoadedModel(
        source,
        resolved.path,
        file.metadata,
        plan,
        engine,
        tokenizer,
        template,
        defaults,
        full_context_bytes,
    )


def _resolve(
    source: str, config: Config, progress: Progress | None, license_gate: LicenseGate | None
) -> ModelFiles:
    from edgeserve.loader.store import resolve_model  # who names a file needs no catalogue

    progress = progress or SilentProgress()
    return resolve_model(source, config, progress=progress, license_gate=license_gate)


def _oracle_runner(
    plan: Plan, tensors: TensorReader, num_blocks: int, options: EngineOptions
) -> Runner:
    import numpy as np

    from edgeserve.runner.oracle_runner import OracleRunner  # only those who compare need it

    return OracleRunner(plan, tensors, num_blocks=num_blocks, dtype=np.dtype(options.dtype).type)


def _native_runner(
    plan: Plan,
    tensors: TensorReader,
    loading: LoadingWeights,
    num_blocks: int,
    options: EngineOptions,
    config: Config,
) -> Runner:
    # With numpy, whose import takes as long as a small model's weights.
    from edgeserve.runner.native_runner import NativeRunner

    runner = NativeRunner(
        plan,
        tensors,
        num_blocks=num_blocks,
        num_threads=options.num_threads or native_num_cores(),
        max_rows=options.max_num_batched_tokens,
        kernels=config.kernels,
        kv_cache_dtype=options.kv_cache_dtype,
        weights=loading.weights,
    )
    try:
        loading.wait()
    except BaseException:
        loading.abandon()  # first: nothing may free what is still being filled
        runner.close()
        raise
    return runner


def _growth(runner: Runner) -> Growth:
    """Pools take memory as they need it, and only while the machine has some to spare."""

    def may_grow(group: int, num_blocks: int) -> bool:
        return available_memory() - num_blocks * runner.block_bytes(group) >= _LEFT_ALONE_BYTES

    block_bytes = sum(runner.block_bytes(group) for group in range(len(runner.cache_groups)))
    return Growth(max(1, _SLAB_BYTES // max(1, block_bytes)), may_grow)


def _proposers(
    plan: Plan,
    draft_file: ModelFile | None,
    limits: EngineLimits,
    options: EngineOptions,
    config: Config,
    clock: Callable[[], float],
) -> list[Proposer]:
    """None for a model that keeps more than keys and values of its past: a token that was
    rejected would stay in it."""
    if options.speculation == "off" or _is_recurrent(plan):
        return []
    lookup = Lookup()
    if draft_file is None:
        return [lookup]
    return [lookup, _draft_model(draft_file, limits, options, config, clock)]


def _draft_model(
    file: ModelFile,
    limits: EngineLimits,
    options: EngineOptions,
    config: Config,
    clock: Callable[[], float],
) -> Proposer:
    """Raises what loading a model raises."""
    from edgeserve.engine.speculation.draft_model import DraftLimits, DraftModel

    plan = build_plan(file.metadata, file.tensors)
    if _is_recurrent(plan):
        raise InvalidRequestError("draft_model", options.draft_model, "a model of attention alone")
    memory = int(available_memory() * _DRAFT_SHARE_OF_MEMORY)
    max_position = min(plan.max_position, limits.max_model_len)
    per_sequence = -(-max_position // BLOCK_SIZE)
    fitting = memory // (_token_bytes(plan, options) * BLOCK_SIZE)
    num_blocks = max(1, min(fitting, per_sequence * options.max_num_seqs))
    with TensorReader(file) as tensors:
        if options.device == "oracle":
            runner = _oracle_runner(plan, tensors, num_blocks, options)
        else:
            loading = LoadingWeights(plan, tensors, options.num_threads or native_num_cores())
            runner = _native_runner(plan, tensors, loading, num_blocks, options, config)
    draft_limits = DraftLimits(options.max_num_batched_tokens, max_position)
    return DraftModel(runner, draft_limits, clock, _growth(runner))


def _read_draft(name: str, path: Path, metadata: Metadata) -> ModelFile:
    """Raises DraftVocabularyError unless its tokens are those of the model with `metadata`."""
    file = read_gguf(path)
    key = "tokenizer.ggml.tokens"
    tokens, draft_tokens = list(_listed(metadata, key)), list(_listed(file.metadata, key))
    if tokens != draft_tokens:
        pairs = zip(tokens, draft_tokens, strict=False)
        shorter = min(len(tokens), len(draft_tokens))
        first = next((at for at, (a, b) in enumerate(pairs) if a != b), shorter)
        raise DraftVocabularyError(name, len(tokens), len(draft_tokens), first)
    return file


def _listed(metadata: Metadata, key: str) -> Sequence[MetadataValue]:
    value = metadata.values.get(key)
    return () if value is None or isinstance(value, bool | int | float | str) else value


def _content(tensors: TensorReader, states: object) -> object:
    """What tells these weights from others; None if a file changed while they were read."""
    try:
        content = (tensors.sample_digest(), tensors.file_states())
    except ModelFileError:
        return None
    return content if content[1] == states else None


def _identity(described: str, content: object, runner: Runner, options: EngineOptions) -> bytes:
    """16 bytes of all that makes keys and values of the same tokens other ones."""
    block_bytes = [runner.block_bytes(group) for group in range(len(runner.cache_groups))]
    kept_as = (STORED_KV_VERSION, runner.numerics_class, options.kv_cache_dtype, block_bytes)
    return blake2b(repr((described, content, kept_as)).encode(), digest_size=16).digest()


def _disk_store(
    identity: bytes, source: str, path: Path, options: EngineOptions, config: Config
) -> DiskStore | None:
    bound_bytes = config.disk_cache if options.disk_cache is None else options.disk_cache
    if bound_bytes == 0 or options.device == "oracle":
        return None
    about = {"model": source, "path": str(path), "kv_cache_dtype": options.kv_cache_dtype}
    return DiskStore(DiskFolder(config.prompts_dir), identity, about, bound_bytes=bound_bytes)


def _is_recurrent(plan: Plan) -> bool:
    return any(group.kind is CacheKind.RECURRENT for group in plan.cache_groups)


def _size(plan: Plan, options: EngineOptions) -> tuple[EngineLimits, int]:
    """Context and number of KV blocks that memory allows. Raises KVMemoryError if not even one."""
    oracle = options.device == "oracle"
    block_bytes = _token_bytes(plan, options) * BLOCK_SIZE
    memory = options.kv_cache_memory
    if memory is None:
        memory = int(available_memory() * _ENGINE_SHARE_OF_MEMORY)
    num_blocks = memory // block_bytes
    asked = options.max_model_len
    if asked is not None and asked > plan.max_position:
        raise InvalidRequestError("max_model_len", asked, f"at most {plan.max_position}")
    max_model_len = min(plan.max_position if asked is None else asked, num_blocks * BLOCK_SIZE)
    if max_model_len < min(asked or BLOCK_SIZE, plan.max_position):
        needed = -(-(asked or BLOCK_SIZE) // BLOCK_SIZE) * block_bytes
        raise KVMemoryError(needed, memory)
    per_request = -(-max_model_len // BLOCK_SIZE)
    rate = _ORACLE_PRIOR_RATE if oracle else _NATIVE_PRIOR_RATE
    target = options.target_itl_ms
    limits = EngineLimits(
        max_model_len,
        options.max_num_batched_tokens,
        options.max_num_seqs,
        target_itl_s=None if target is None else target / 1e3,
        prior_s_per_row=_num_weights(plan) / rate,
        prior_s_per_key=_num_attended(plan) / (rate * _PRIOR_ATTENTION_SHARE),
    )
    return limits, min(num_blocks, per_request * options.max_num_seqs)


def _token_bytes(plan: Plan, options: EngineOptions) -> int:
    """What a token's keys and values take."""
    if options.device == "oracle":
        return math.ceil(plan.kv_bytes_per_token(DTYPE_BYTES[options.dtype]))
    return KV_TYPES[options.kv_cache_dtype].token_bytes(plan)


def _num_weights(plan: Plan) -> int:
    """Multiplications that one row takes."""
    linears = [op for op in plan.operations if isinstance(op, Linear | MoeLinear)]
    shapes = [(op.weight.shape[-2:], _runs(plan, op)) for op in linears]
    return sum(math.prod(shape) * runs for shape, runs in shapes)


def _num_attended(plan: Plan) -> int:
    """Multiplications that one key takes of a row, over all layers."""
    attentions = [op for op in plan.operations if isinstance(op, Attention)]
    return sum(op.num_heads * (op.key_size + op.value_size) for op in attentions)


def _runs(plan: Plan, op: Linear | MoeLinear) -> int:
    """Products that `op` takes of a row: one for each of its experts."""
    return plan.shapes[op.out].width // op.weight.shape[-2]


def _template(
    metadata: Metadata, tokenizer: Tokenizer, override: str | None
) -> ChatTemplate | None:
    source = override or metadata.values.get("tokenizer.chat_template")
    if not isinstance(source, str) or not source:
        return None
    return ChatTemplate(
        source,
        bos_token=_text_of(tokenizer, tokenizer.bos_id),
        eos_token=_text_of(tokenizer, tokenizer.eos_id),
        control_texts=tokenizer.control_texts,
    )


def _text_of(tokenizer: Tokenizer, token_id: int | None) -> str:
    return "" if token_id is None else tokenizer.token_text(token_id)
