"""What a Markdown text is cut into."""

from __future__ import annotations

from typing import Literal

from edgeserve.frozen import frozen


@frozen
class Block:
    """A top-level block's source, or a piece of a code block or of a long table.

    `begins` is false for all pieces but the first; `info` is what stands behind the opening fence,
    or the part of the table by which its columns are measured, with its head.
    """

    kind: Literal["markdown", "code", "plain", "rows"]
    text: str
    info: str = ""
    begins: bool = True
