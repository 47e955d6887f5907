"""What every surface of one server shares. Made once, in commands/serve.py or by a test."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from edgeserve.frozen import frozen
from edgeserve.server.limits import BodyLimits
from edgeserve.server.models import ModelRegistry
from edgeserve.server.security import SecurityPolicy
from edgeserve.server.sse import Pings

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


def _new_id() -> str:
    return uuid.uuid4().hex


@frozen
class ServerContext:
    """`now` is wall time in seconds, for `created`; `new_id` makes ids that nobody else has.
    With a `tracer` every answer is a span."""

    registry: ModelRegistry
    security: SecurityPolicy = field(default_factory=SecurityPolicy)
    limits: BodyLimits = field(default_factory=BodyLimits)
    pings: Pings = field(default_factory=Pings)
    strict_templates: bool = False
    now: Callable[[], float] = time.time
    new_id: Callable[[], str] = _new_id
    tracer: Tracer | None = None
