"""An engine's figures out of a server's `/metrics`, by the names that vLLM gives them."""

from __future__ import annotations

from collections import defaultdict

from edgeserve.tui.client import EngineFigures

_BLOCK_TOKENS = 16
_DISK = ("edgeserve_prefix_hit_blocks_total", "disk")


def figures_of(text: str, model: str) -> EngineFigures | None:
    """Of one model; None where the text has no such names, or is no metrics."""
    from prometheus_client.parser import text_string_to_metric_families  # for the cockpit only

    found: defaultdict[str, float] = defaultdict(float)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.labels.get("model_name", model) == model:
                    found[sample.name] += sample.value
                    if (sample.name, sample.labels.get("tier")) == _DISK:
                        found["disk"] += sample.value
    except (ValueError, KeyError, IndexError):
        return None
    if "vllm:num_requests_running" not in found:
        return None
    return EngineFigures(
        occupancy=found["vllm:kv_cache_usage_perc"],
        running=int(found["vllm:num_requests_running"]),
        waiting=int(found["vllm:num_requests_waiting"]),
        prompt_tokens=int(found["vllm:prefix_cache_queries_total"]),
        hit_tokens=int(found["vllm:prefix_cache_hits_total"]),
        disk_hit_tokens=int(found["disk"]) * _BLOCK_TOKENS,
        memory_bytes=int(found["process_resident_memory_bytes"]) or None,
    )
