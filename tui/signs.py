"""What is drawn besides text, in Unicode or in ASCII alone."""

from __future__ import annotations

from edgeserve.frozen import frozen


@frozen(kw_only=True)
class Signs:
    dot: str = "·"
    ellipsis: str = "…"
    full: str = "━"
    half: str = "╸"
    empty: str = "─"
    left: str = ""
    right: str = ""
    pin: str = "▪"
    here: str = "●"
    about: str = "≈"
    bar: str = "▎"
    rule: str = "─"
    prompt: str = "›"
    up: str = "↑"

    def meter(self, share: float, cells: int) -> str:
        """A bar that is full where the share is 1; something is seen of every share above 0."""
        bar = self.bar_of(share, cells)
        return f"{self.left}{bar}{self.empty * (cells - len(bar))}{self.right}"

    def bar_of(self, share: float, cells: int) -> str:
        """Its full part, to half a cell where there is a sign for that."""
        steps = 2 if self.half else 1
        filled = min(cells * steps, max(int(share > 0), round(share * cells * steps)))
        return self.full * (filled // steps) + self.half * (filled % steps)

    def joined(self, *parts: str) -> str:
        return f" {self.dot} ".join(part for part in parts if part)


UNICODE = Signs()
ASCII = Signs(
    dot="-",
    ellipsis="...",
    full="#",
    half="",
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
