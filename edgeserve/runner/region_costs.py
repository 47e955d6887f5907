"""What the regions of a lowered plan are called, and what they must read and multiply.

The same operation of every layer has the same name, so that times can be added up by it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from edgeserve.frozen import frozen
from edgeserve.plan.ops import CacheGroup
from edgeserve.plan.weights import WeightView
from edgeserve.runner.regions import (
    AttentionRegion,
    ExpertsRegion,
    LinearRegion,
    LoweredPlan,
    Region,
    RegionRows,
    RowsRegion,
)

_LAYER = re.compile(r"blk\.\d+\.")


@frozen
class RegionCost:
    """One region's work.

    A step that has rows for it reads `weight_bytes` once and multiplies `products` weights a row.
    Attention reads `position_bytes` for each position that a sequence's rows see (those behind
    `window` are not) and multiplies `position_products` for each of them and row. The little that
    operations on single rows read is not counted. `experts` are (used by a row, there): rows are
    taken to choose theirs independently, and all as often.
    """

    name: str
    rows: RegionRows
    weight_bytes: int = 0
    products: int = 0
    position_bytes: float = 0.0
    position_products: int = 0
    window: int | None = None
    experts: tuple[int, int] | None = None

    def bytes_for(self, num_rows: int) -> float:
        """Of the weights, what so many rows read: of experts those that some row goes to."""
        if self.experts is None:
            return self.weight_bytes
        used, there = self.experts
        return self.weight_bytes * (1.0 - (1.0 - used / there) ** num_rows)


def region_costs(
    lowered: LoweredPlan,
    groups: Sequence[CacheGroup],
    weight_bytes: Mapping[WeightView, int],
    token_bytes: Sequence[float],
) -> Iterator[RegionCost]:
    """One for each region, in order. `token_bytes` are each cache group's, all layers together."""
    cache_bytes = {
        cache.cache_id: size
        * cache.elements_per_token
        / sum(c.elements_per_token for c in g.caches)
        for g, size in zip(groups, token_bytes, strict=True)
        for cache in g.caches
    }
    for region in lowered.regions:
        yield _cost(region, weight_bytes, cache_bytes)


def _cost(
    region: Region, weight_bytes: Mapping[WeightView, int], cache_bytes: Mapping[int, float]
) -> RegionCost:
    match region:
        case RowsRegion():
            kinds = dict.fromkeys(op.kind.name.lower() for op in region.ops)
            return RegionCost(" + ".join(kinds), region.rows)
        case LinearRegion():
            views = [view for part in region.parts for view in (part.weight, part.up_weight)]
            used = [view for view in views if view is not None]
            return RegionCost(
                " + ".join(dict.fromkeys(_short(view) for view in used)),
                region.rows,
                weight_bytes=sum(weight_bytes[view] for view in used),
                products=sum(math.prod(view.shape) for view in used),
            )
        case ExpertsRegion():
            return _experts_cost(region, weight_bytes)
        case AttentionRegion():
            op = region.op
            window = "" if op.window is None else f", window {op.window:,}"
            return RegionCost(
                f"attention{window}",
                RegionRows.TOKENS,
                position_bytes=cache_bytes[op.cache_id],
                position_products=op.num_heads * (op.key_size + op.value_size),
                window=op.window,
            )


def _experts_cost(region: ExpertsRegion, weight_bytes: Mapping[WeightView, int]) -> RegionCost:
    views = [view for view in (region.part.weight, region.part.up_weight) if view is not None]
    there = region.part.weight.shape[0]
    return RegionCost(
        " + ".join(map(_short, views)),
        region.rows,
        weight_bytes=sum(weight_bytes[view] for view in views),
        products=sum(math.prod(view.shape) for view in views) // there * region.num_used,
        experts=(region.num_used, there),
    )


def _short(view: WeightView) -> str:
    """`attn_q` for blk.7.attn_q.weight."""
    return _LAYER.sub("", view.tensor).removesuffix(".weight")
