"""What a server's list of models says of sampling, and what is made of one that says odd things."""

from __future__ import annotations

import httpx
import pytest

from edgeserve.remote_models import remote_models
from edgeserve.types import SamplingDefaults

_GIVEN = {
    "temperature": 0.6,
    "top_p": 1,
    "top_k": 20,
    "min_p": 0,
    "repetition_penalty": 1.1,
    "origin": "model file",
}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (_GIVEN, SamplingDefaults(0.6, 1.0, 20, 0.0, 1.1, "model file")),
        (None, None),
        ("greedy", None),
        ({**_GIVEN, "top_k": "all"}, None),
        ({"temperature": 1}, None),
    ],
)
def test_what_stands_in_for_what_is_not_asked(said: object, found: SamplingDefaults | None):
    def answer(_: httpx.Request) -> httpx.Response:
        entry = {"id": "tiny", "meta": {"default_sampling": said}}
        return httpx.Response(200, json={"data": [entry, {"id": "bare"}]})

    transport = httpx.MockTransport(answer)
    models = remote_models("http://x/v1", None, timeout_s=5, transport=transport)
    assert [each.id for each in models] == ["tiny", "bare"]
    assert [each.sampling for each in models] == [found, None]
