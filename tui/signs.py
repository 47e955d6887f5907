"""What is drawn besides text, in Unicode or in ASCII alone."""

from __future__ import annotations

from edgeserve.frozen import frozen


@frozen(kw_only=True)
class Signs:
    dot: str = "·"
    ellipsis: str = "…"
    full: str = "█"
    empty: str = "░"
    left: str = "▕"
    right: str = "▏"
    pin: str = "▪"
    here: str = "●"
    about: str = "≈"
    bar: str = "▎"
    rule: str = "─"
    prompt: str = "›"
    up: str = "↑"

    def meter(self, share: float, cells: int) -> str:
        """A bar that is full where the share is 1; something is seen of every share above 0."""
        filled = min(cells, max(int(share > 0), round(share * cells)))
        bar = self.full * filled + self.empty * (cells - filled)
        return f"{self.left}{bar}{self.right}"

    def joined(self, *parts: str) -> str:
        return f" {self.dot} ".join(part for part in parts if part)


UNICODE = Signs()
ASCII = Signs(
    dot="-",
    ellipsis="...",
    full="#",
    empty=".",
    left="[",
    right="]",
    pin="*",
    here="*",
    about="~",
    bar="|",
    rule="-",
    prompt=">",
    up="^",
)
