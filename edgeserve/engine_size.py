"""What memory allows of an engine: its context, its KV blocks, and the priors of a step's time."""

from __future__ import annotations

import math

from edgeserve.engine.limits import EngineLimits
from edgeserve.engine_options import DTYPE_BYTES, EngineOptions
from edgeserve.errors import InvalidRequestError, KVMemoryError
from edgeserve.loader.machine import available_memory
from edgeserve.plan.ops import Attention, Linear, MoeLinear, Plan
from edgeserve.runner.batch import BLOCK_SIZE
from edgeserve.runner.kv_types import KV_TYPES

_ENGINE_SHARE_OF_MEMORY = 0.5
_MODEL_SHARE_OF_ROOM = 0.25
_USUAL_CONTEXT = 16384
_LEAST_CONTEXT = 1024
# Weights multiplied a second, before the first step has told: low, so that it is short.
_NATIVE_PRIOR_RATE = 50e9
_ORACLE_PRIOR_RATE = 5e9
_PRIOR_ATTENTION_SHARE = 0.25  # of that rate


def engine_size(plan: Plan, options: EngineOptions) -> tuple[EngineLimits, int]:
    """Context and number of KV blocks that memory allows. Raises KVMemoryError if not even one."""
    oracle = options.device == "oracle"
    block_bytes = token_bytes(plan, options) * BLOCK_SIZE
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


def shared_cache_bytes(plan: Plan, options: EngineOptions, room_bytes: int) -> int:
    """What a model gets for keys and values where several share memory, of which `room_bytes` are
    left beside its weights: a share of it, but a usual context where there is room for one, and no
    more than its sequences could fill. At least a small context, or the one that was asked for,
    even where there is no room for it: who adds up finds out."""
    if options.kv_cache_memory is not None:
        return options.kv_cache_memory
    each = token_bytes(plan, options)
    asked = min(options.max_model_len or plan.max_position, plan.max_position)
    full = each * _whole_blocks(asked) * options.max_num_seqs
    is_told = options.max_model_len is not None
    usual = each * _whole_blocks(asked if is_told else min(asked, _USUAL_CONTEXT))
    least = usual if is_told else each * _whole_blocks(min(asked, _LEAST_CONTEXT))
    return max(least, min(full, room_bytes, max(int(room_bytes * _MODEL_SHARE_OF_ROOM), usual)))


def _whole_blocks(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK_SIZE) * BLOCK_SIZE


def token_bytes(plan: Plan, options: EngineOptions) -> int:
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
