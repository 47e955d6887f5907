"""Responses that were given, for clients that go on from one by its id; bounded, in memory.

The least recently used go first. A restart forgets all: clients then send the whole history.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import cast

import msgspec

from edgeserve.errors.base import shown
from edgeserve.frozen import frozen
from edgeserve.server.errors import ApiError, Problem


@frozen
class StoredResponse:
    """A response as it was given, and its whole conversation as items."""

    response: Mapping[str, object]
    items: tuple[object, ...]


class ResponseStore:
    """Not thread-safe: for the event loop."""

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._responses: OrderedDict[str, bytes] = OrderedDict()  # as JSON: objects are larger

    def put(
        self, response_id: str, response: Mapping[str, object], items: tuple[object, ...]
    ) -> None:
        """Keeps it, unless it alone is more than may be kept."""
        encoded = msgspec.json.encode((response, items))
        if len(encoded) > self._max_bytes:
            return
        self._responses[response_id] = encoded
        self._num_bytes += len(encoded)
        while self._num_bytes > self._max_bytes:
            _, gone = self._responses.popitem(last=False)
            self._num_bytes -= len(gone)

    def get(self, response_id: str, param: str | None = None) -> StoredResponse:
        """`param` is the field of a body that names it. Raises ApiError: 404, or 400 with it."""
        found = self._responses.get(response_id)
        if found is None:
            message = f"Response with id {shown(response_id)} not found."
            if param is None:
                raise ApiError(Problem(404, message))
            message = f"Previous response with id {shown(response_id)} not found."
            raise ApiError(Problem(400, message, param=param, code="previous_response_not_found"))
        self._responses.move_to_end(response_id)
        return _decoded(found)

    def delete(self, response_id: str) -> None:
        """Raises ApiError: 404."""
        self.get(response_id)
        self._num_bytes -= len(self._responses.pop(response_id))

    def item(self, item_id: str) -> object:
        """An item of any conversation that is kept. Raises ApiError: 400."""
        named = msgspec.json.encode(item_id)
        for encoded in reversed(self._responses.values()):
            for item in reversed(_decoded(encoded).items if named in encoded else ()):
                if isinstance(item, dict) and cast("dict[str, object]", item).get("id") == item_id:
                    return cast(object, item)
        message = f"Item with id {shown(item_id)} not found."
        raise ApiError(Problem(400, message, param="input"))


def _decoded(encoded: bytes) -> StoredResponse:
    response, items = msgspec.json.decode(encoded, type=tuple[dict[str, object], list[object]])
    return StoredResponse(response, tuple(items))
