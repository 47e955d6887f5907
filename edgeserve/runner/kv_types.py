"""How a KV cache may hold keys and values, by the names users give. What the bytes mean is C's
affair (native/kernels/kv_block.h)."""

from __future__ import annotations

from collections.abc import Mapping

from edgeserve.frozen import frozen
from edgeserve.plan.ops import CacheSpec, Plan

STORED_KV_VERSION = 1
"""Of blocks kept on disk. Whoever changes what a block's bytes mean, or any bit that is computed,
adds one: what was kept before is then not found."""


@frozen
class KVType:
    """C's number of a type; `group_bytes` are of `group` elements, and scales of them."""

    number: int
    group: int
    group_bytes: int

    def cache_bytes(self, cache: CacheSpec) -> int:
        """Of one token's keys and values; a head's last group may be filled up."""
        groups = sum(-(-size // self.group) for size in (cache.key_size, cache.value_size))
        return cache.num_kv_heads * groups * self.group_bytes

    def token_bytes(self, plan: Plan) -> int:
        """Of one token, over all caches of a model."""
        return sum(self.cache_bytes(cache) for group in plan.cache_groups for cache in group.caches)


KV_TYPES: Mapping[str, KVType] = {
    "f16": KVType(number=0, group=1, group_bytes=2),
    "q8_0": KVType(number=1, group=32, group_bytes=34),
    "q4_0": KVType(number=2, group=32, group_bytes=18),
}
