"""The one place that wires objects: a model's name in, a ready engine out."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from edgeserve.binding.library import native_num_cores
from edgeserve.cache.disk_store import DiskStore
from edgeserve.cache.kv_cache import Growth
from edgeserve.cache.prefix_index import PrefixIndex
from edgeserve.config import Config
from edgeserve.constrained_models import ConstrainedModels
from edgeserve.engine.engine import Engine
from edgeserve.engine.limits import EngineLimits
from edgeserve.engine.speculation.draft_lengths import PayingLengths
from edgeserve.engine.speculation.forced import Forced
from edgeserve.engine.speculation.lookahead import Lookahead
from edgeserve.engine.speculation.lookup import Lookup
from edgeserve.engine.speculation.proposer import Proposer
from edgeserve.engine.speculation.row_times import RowTimes
from edgeserve.engine.speculation.speculator import Speculator
from edgeserve.engine_options import EngineOptions
from edgeserve.engine_size import engine_size, token_bytes
from edgeserve.errors import ConstraintError, DraftVocabularyError, InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.loader.file_pooling import file_pooling
from edgeserve.loader.gguf import ModelFile, read_gguf
from edgeserve.loader.machine import available_memory
from edgeserve.loader.model_files import LicenseGate, ModelFiles, files_at
from edgeserve.loader.progress import Progress, SilentProgress
from edgeserve.loader.sampling_defaults import sampling_defaults
from edgeserve.loader.tensors import TensorReader
from edgeserve.loading_weights import LoadingWeights
from edgeserve.model_identity import content_of, digest, disk_store, identity_of
from edgeserve.models import build_plan
from edgeserve.plan.ops import CacheKind, Plan
from edgeserve.runner.batch import BLOCK_SIZE
from edgeserve.runner.runner import Runner
from edgeserve.text.chat_template import ChatTemplate
from edgeserve.text.constraint import ConstraintCompiler
from edgeserve.text.tokenizer import Tokenizer, build_tokenizer
from edgeserve.types import Metadata, MetadataValue, SamplingDefaults

_DRAFT_SHARE_OF_MEMORY = 0.1
_SLAB_BYTES = 128 << 20
_LEFT_ALONE_BYTES = 256 << 20


@frozen
class LoadedModel:
    """Everything a public face needs. `template` is None for a model that has no chat format.

    `full_context_bytes` of keys and values would hold all tokens the model was trained for.
    `pooling` is how one vector is made of a text: as asked for, or as the file says.
    `fingerprint` is equal where weights and chat template are; empty where the file was changed
    while it was read.
    """

    name: str
    path: Path
    metadata: Metadata
    plan: Plan
    engine: Engine
    tokenizer: Tokenizer
    constraints: ConstraintCompiler
    template: ChatTemplate | None
    defaults: SamplingDefaults
    full_context_bytes: int
    pooling: str | None
    fingerprint: str

    @property
    def hidden_width(self) -> int:
        """Elements of a text's vector."""
        return self.plan.shapes[self.plan.outputs["hidden"]].width

    @property
    def context_note(self) -> str | None:
        """What to say where memory holds less than the model was trained for."""
        held, trained = self.engine.limits.max_model_len, self.plan.max_position
        if held == trained:
            return None
        for_all = math.ceil(self.full_context_bytes / 1e8) / 10
        return f"context {held:,} of {trained:,}; --kv-cache-memory {for_all:g}G for all"


def load_model(
    source: str | ModelFiles,
    options: EngineOptions,
    *,
    config: Config,
    clock: Callable[[], float],
    progress: Progress | None = None,
    license_gate: LicenseGate | None = None,
    constrained: ConstrainedModels | None = None,
) -> LoadedModel:
    """Finds (maybe downloads), reads and prepares a model. Files are taken as they are.

    Of a model that is among the `constrained`, what every constraint needs is built beside the
    load; one that answers with a constraint comes to be among them.

    Raises ModelNotFoundError, LicenseNotAcceptedError, DownloadError, ModelFileError,
    UnsupportedModelError, TokenizerError, TemplateError, KVMemoryError, InvalidRequestError,
    DraftVocabularyError.
    """
    if isinstance(source, ModelFiles):
        resolved, name = source, source.name
    else:
        resolved, name = _resolve(source, config, progress, license_gate), source
    file = read_gguf(resolved.path)
    draft_file = None
    if options.draft_model is not None:
        draft = _resolve(options.draft_model, config, progress, license_gate)
        draft_file = _read_draft(options.draft_model, draft.path, file.metadata)
    plan = build_plan(file.metadata, file.tensors, max_model_len=options.max_model_len)
    defaults = sampling_defaults(file.metadata, resolved.entry)
    pooling = options.pooling or file_pooling(file.metadata)
    limits, num_blocks = engine_size(plan, options)
    parts = _read_parts(file, plan, num_blocks, options, config, constrained)
    try:
        proposers = _proposers(plan, draft_file, limits, options, config, clock)
    except BaseException:
        parts.runner.close()
        raise
    engine = _engine(parts, proposers, limits, defaults, clock)
    num_blocks = -(-plan.max_position // BLOCK_SIZE)
    full_context_bytes = num_blocks * BLOCK_SIZE * token_bytes(plan, options)
    return LoadedModel(
        name,
        resolved.path,
        file.metadata,
        plan,
        engine,
        parts.tokenizer,
        parts.constraints,
        parts.template,
        defaults,
        full_context_bytes,
        pooling,
        parts.fingerprint,
    )


@frozen
class _Parts:
    """What is read of a model file. Without an `index` nothing is shared between prompts."""

    runner: Runner
    tokenizer: Tokenizer
    constraints: ConstraintCompiler
    template: ChatTemplate | None
    index: PrefixIndex | None
    store: DiskStore | None
    fingerprint: str


def _read_parts(
    file: ModelFile,
    plan: Plan,
    num_blocks: int,
    options: EngineOptions,
    config: Config,
    constrained: ConstrainedModels | None,
) -> _Parts:
    """Weights are read in C while Python makes the rest."""
    with TensorReader(file) as tensors:
        states = tensors.file_states()
        loading = None
        if options.device != "oracle":
            num_threads = options.num_threads or native_num_cores()
            loading = LoadingWeights(plan, tensors, num_threads)
        try:
            tokenizer = build_tokenizer(file.metadata)
            template = _template(file.metadata, tokenizer, options.chat_template)
            constraints = _constraints(tokenizer, file.paths[0], constrained)
            described = repr((plan.operations, plan.cache_groups))
            if loading is None:
                runner = _oracle_runner(plan, tensors, num_blocks, options)
            else:
                runner = _native_runner(plan, tensors, loading, num_blocks, options, config)
        except BaseException:
            if loading is not None:
                loading.abandon()
            raise
        content = content_of(tensors, states)
    index = store = None
    if options.prefix_caching and not _is_recurrent(plan):
        identity = identity_of(described, content, runner, options)
        index = PrefixIndex(identity, BLOCK_SIZE)
        if content is not None:
            store = disk_store(identity, file, options, config)
    source = "" if template is None else template.source
    known = "" if content is None else digest(described, content[0], source).hex()
    return _Parts(runner, tokenizer, constraints, template, index, store, known)


def _constraints(
    tokenizer: Tokenizer, path: Path, constrained: ConstrainedModels | None
) -> ConstraintCompiler:
    if constrained is None:
        return ConstraintCompiler(tokenizer)
    compiler = ConstraintCompiler(tokenizer, partial(constrained.note, path))
    if constrained.has(path):
        with contextlib.suppress(ConstraintError):  # told to whoever asks for one
            compiler.prepare()
    return compiler


def _engine(
    parts: _Parts,
    proposers: list[Proposer],
    limits: EngineLimits,
    defaults: SamplingDefaults,
    clock: Callable[[], float],
) -> Engine:
    speculator = None
    if proposers:
        speculator = Speculator(proposers, PayingLengths(RowTimes()), parts.tokenizer.vocab_size)
    return Engine(
        parts.runner,
        parts.tokenizer,
        limits,
        defaults,
        clock,
        parts.index,
        _growth(parts.runner),
        speculator,
        parts.store,
    )


def _resolve(
    source: str, config: Config, progress: Progress | None, license_gate: LicenseGate | None
) -> ModelFiles:
    found = files_at(source)
    if found is not None:
        return found
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
    cheap: list[Proposer] = [Forced(), Lookup()]
    if options.speculation == "lookahead":
        return [*cheap, Lookahead()]
    if draft_file is None:
        return cheap
    return [*cheap, _draft_model(draft_file, limits, options, config, clock)]


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
    fitting = memory // (token_bytes(plan, options) * BLOCK_SIZE)
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


def _is_recurrent(plan: Plan) -> bool:
    return any(group.kind is CacheKind.RECURRENT for group in plan.cache_groups)


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
