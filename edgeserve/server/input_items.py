"""What a kept response was an answer to, as items, a page at a time.

Items that came without an id get one of the response's and their place, so that pages can be asked
for behind any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from edgeserve.errors import InvalidRequestError
from edgeserve.server.responses_store import StoredResponse

_ORDERS = ("asc", "desc")
_MOST = 100
_USUAL = 20
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}


def page_of(stored: StoredResponse, query: Mapping[str, str]) -> dict[str, object]:
    """OpenAI's list, by `limit`, `order` (the newest first, unless it is asc) and `after`.

    Raises InvalidRequestError.
    """
    limit, order = _limit(query.get("limit")), query.get("order", "desc")
    if order not in _ORDERS:
        raise InvalidRequestError("order", order, f"one of {', '.join(_ORDERS)}")
    items = input_items(stored)
    if order == "desc":
        items = items[::-1]
    items = _behind(items, query.get("after"))
    page = items[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > limit,
    }


def input_items(stored: StoredResponse) -> Sequence[dict[str, object]]:
    """All of them, those of the responses before it included."""
    output = cast("Sequence[object]", stored.response["output"])
    given = stored.items[: len(stored.items) - len(output)]
    key = str(stored.response["id"]).removeprefix("resp_")
    return [_item(cast("dict[str, object]", item), f"{key}_{at}") for at, item in enumerate(given)]


def _item(item: dict[str, object], key: str) -> dict[str, object]:
    kind = str(item.get("type") or "message")
    found: dict[str, object] = {"type": kind, "id": f"{_PREFIXES.get(kind, 'item')}_{key}"}
    found |= {name: value for name, value in item.items() if value is not None}
    if kind == "message":
        found.setdefault("status", "completed")
        if isinstance(found.get("content"), str):
            said = "output_text" if found.get("role") == "assistant" else "input_text"
            part: dict[str, object] = {"type": said, "text": found["content"]}
            found["content"] = [{**part, "annotations": []} if said == "output_text" else part]
    return found


def _limit(text: str | None) -> int:
    if text is None:
        return _USUAL
    if not text.isdecimal() or not 1 <= int(text[:9]) <= _MOST:
        raise InvalidRequestError("limit", text, f"from 1 to {_MOST}")
    return int(text[:9])


def _behind(items: Sequence[dict[str, object]], after: str | None) -> Sequence[dict[str, object]]:
    if after is None:
        return items
    ids = [item["id"] for item in items]
    if after not in ids:
        raise InvalidRequestError("after", after, "the id of an item of this response")
    return items[ids.index(after) + 1 :]
