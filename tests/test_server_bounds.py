"""Bodies that are harmless are taken, and those that would make all others wait are not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from edgeserve.errors import InvalidRequestError
from edgeserve.server.errors import ApiError
from edgeserve.server.fields import Fields
from edgeserve.server.limits import decoded
from edgeserve.server.messages import conversation_of
from edgeserve.server.token_routes import detokenize


def test_in_a_large_body_a_nan_is_told_by_its_byte_and_not_looked_for() -> None:
    small = b'{"temperature": NaN}'
    assert set(cast("dict[str, object]", decoded(small))) == {"temperature"}
    large = b'{"user": "' + b"u" * (256 << 10) + b'", "temperature": NaN}'
    with pytest.raises(ApiError, match=r"the body is no JSON: .*byte 26\d{4}"):
        decoded(large)


def test_more_ids_than_any_context_holds_are_not_put_into_text() -> None:
    body = Fields({"tokens": [0] * ((1 << 20) + 1)})
    with pytest.raises(InvalidRequestError, match="at most 1,048,576 token ids"):
        detokenize(cast("Any", None), body, cast("Any", None))


@pytest.mark.parametrize("role", ["tool", "function"])
def test_a_tool_that_says_null_says_nothing(role: str) -> None:
    said = {"role": role, "name": "look", "content": None}
    user = {"role": "user", "content": "look"}
    assert conversation_of([user, said]).messages[1].get("content") == ""
