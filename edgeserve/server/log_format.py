"""A log's lines as JSON, one object each, for programs that collect them."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import cast

import msgspec


class JsonFormatter(logging.Formatter):
    """`time`, `level`, `logger` and `message`; instead of the message the `facts` of a record that
    has some. Errors that are logged bring their traceback as `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        facts = cast("dict[str, object] | None", getattr(record, "facts", None))
        said = {"message": record.getMessage()} if facts is None else facts
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **said,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def log_handler(style: str) -> logging.Handler:
    """To standard error, as "text" or "json"."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if style == "json" else plain)
    return handler
