"""Parts of OpenAI's answers that several surfaces share: usage, timings, logprobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgeserve.server.turn import PromptProgress
from edgeserve.types import LogprobsAt, RequestOutput

_LEAST_LOGPROB = -9999.0
"""What stands for minus infinity, which JSON has not."""

TokenBytes = Callable[[int], bytes]


def usage_shape(outputs: Sequence[RequestOutput], reasoning_tokens: int = 0) -> dict[str, object]:
    prompt = sum(output.usage.prompt_tokens for output in outputs)
    completion = sum(output.usage.completion_tokens for output in outputs)
    cached = sum(output.usage.cached_tokens for output in outputs)
    accepted = sum(output.usage.num_accepted_tokens for output in outputs)
    drafted = sum(output.usage.num_draft_tokens for output in outputs)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        },
    }


def timings_shape(output: RequestOutput) -> dict[str, object]:
    """As llama-server has them."""
    usage, timings = output.usage, output.timings
    num_read = usage.prompt_tokens - usage.cached_tokens
    read_ms = timings.first_token_ms - timings.queue_ms
    write_ms = timings.total_ms - timings.first_token_ms
    shape: dict[str, object] = {
        "cache_n": usage.cached_tokens,
        "prompt_n": num_read,
        "prompt_ms": read_ms,
        "prompt_per_token_ms": read_ms / max(1, num_read),
        "prompt_per_second": timings.prompt_tokens_per_s,
        "predicted_n": usage.completion_tokens,
        "predicted_ms": write_ms,
        "predicted_per_token_ms": write_ms / max(1, usage.completion_tokens),
        "predicted_per_second": timings.decode_tokens_per_s,
    }
    if usage.num_draft_tokens:
        shape |= {"draft_n": usage.num_draft_tokens, "draft_n_accepted": usage.num_accepted_tokens}
    return shape


def progress_shape(progress: PromptProgress) -> dict[str, object]:
    return {
        "total": progress.total,
        "cache": progress.cached,
        "processed": progress.processed,
        "time_ms": progress.time_ms,
    }


def chat_logprobs(
    entries: Sequence[LogprobsAt], num_top: int, token_bytes: TokenBytes
) -> dict[str, object]:
    """`logprobs` of a chat choice: an entry a token, and its likeliest rivals."""
    return {"content": [_entry(at, num_top, token_bytes) for at in entries], "refusal": None}


def _entry(at: LogprobsAt, num_top: int, token_bytes: TokenBytes) -> dict[str, object]:
    shown = [
        {
            "token": logprob.decoded_token,
            "logprob": finite(logprob.logprob),
            "bytes": list(token_bytes(token_id)),
        }
        for token_id, logprob in at.items()
    ]
    ranks = [logprob.rank for logprob in at.values()]
    ranked = sorted(zip(ranks, shown, strict=True), key=lambda pair: pair[0])
    return {**shown[0], "top_logprobs": [entry for rank, entry in ranked if rank <= num_top]}


def finite(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)
