"""What the names of GGUF files say: quantisation, part of a split, or no language model at all.

Names only; opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from edgeserve.errors import AmbiguousModelError, ModelNotFoundError
from edgeserve.frozen import frozen

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.I | re.S)
_QUANT = re.compile(
    r"(?:^|[-._/])(?P<quant>(?:UD-)?I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4|NVFP4|BF16|FP?16|FP?32)"
    r"(?=$|[-._/])",
    re.I,
)
_NO_MODEL = re.compile(r"(?:^|[-._/])(?:mmproj|imatrix|ggml-vocab|lora|adapter)(?=$|[-._/])", re.I)
# What to take when nobody said: small enough to be quick, large enough to be as good.
_PREFERENCE = (
    *("Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q6_K", "Q8_0"),
    *("Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K", "F16", "BF16", "F32"),
)


@frozen
class GGUFGroup:
    """A model as file names: one file, or all parts of a split that are there, in order.

    `count` is how many parts there should be.
    """

    names: tuple[str, ...]
    count: int
    quant: str | None

    @property
    def first(self) -> str:
        return self.names[0]

    @property
    def is_complete(self) -> bool:
        return len(self.names) == self.count


def is_language_model(name: str) -> bool:
    """Whether the name is that of a model, and not of a projector, an adapter or a vocabulary."""
    return name.lower().endswith(".gguf") and _NO_MODEL.search(_stem(name)) is None


def quant_of(name: str) -> str | None:
    """The quantisation that the name tells, as GGML writes it."""
    found = [match["quant"].upper() for match in _QUANT.finditer(_stem(name))]
    if not found:
        return None
    return {"FP16": "F16", "FP32": "F32"}.get(found[-1], found[-1])


def part_names(name: str) -> tuple[str, ...]:
    """The names of all parts of the split that `name` is one of; `(name,)` when it is none."""
    match = _PART.fullmatch(name)
    if match is None:
        return (name,)
    count = int(match["count"])
    return tuple(f"{match['stem']}-{n:05d}-of-{count:05d}.gguf" for n in range(1, count + 1))


def group_parts(names: Iterable[str]) -> tuple[GGUFGroup, ...]:
    """The models among file names, split ones put together; no projectors and the like."""
    present = sorted({name for name in names if is_language_model(name)})
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in present:
        groups.setdefault(part_names(name), []).append(name)
    return tuple(
        GGUFGroup(tuple(found), len(parts), quant_of(parts[0])) for parts, found in groups.items()
    )


def choose(source: str, names: Iterable[str], selector: str | None) -> GGUFGroup:
    """The model that `selector` (a file name, a quantisation, or None) means among `names`.

    Raises ModelNotFoundError or AmbiguousModelError, which name the files that there are.
    """
    every = tuple(names)
    groups = group_parts(every)
    if selector is not None and selector.lower().endswith(".gguf"):
        return _by_file(source, every, selector)
    if not groups:
        raise ModelNotFoundError(f"{source}: there are no GGUF model files in it")
    if selector is None:
        return _preferred(source, groups)
    matches = tuple(g for g in groups if _is_quant(g, selector))
    return _only(source, f"{selector} names several files", matches, groups, selector)


def _stem(name: str) -> str:
    match = _PART.fullmatch(name)
    return match["stem"] if match else name.removesuffix(".gguf").removesuffix(".GGUF")


def _is_quant(group: GGUFGroup, selector: str) -> bool:
    wanted = selector.lower()
    if group.quant is not None and group.quant.lower() == wanted:
        return True
    stem = _stem(group.first).lower()
    return stem.endswith((f"-{wanted}", f".{wanted}", f"_{wanted}"))


def _by_file(source: str, names: tuple[str, ...], selector: str) -> GGUFGroup:
    """A file named in full, which may be one that a bare quantisation would pass over."""
    exact = [n for n in names if n == selector] or [
        n for n in names if n.lower() == selector.lower()
    ]
    if not exact:
        raise ModelNotFoundError(f"{source}: no file {selector}; {_there_is(names)}")
    parts = part_names(exact[0])
    return GGUFGroup(tuple(p for p in parts if p in names), len(parts), quant_of(exact[0]))


def _preferred(source: str, groups: tuple[GGUFGroup, ...]) -> GGUFGroup:
    if len(groups) == 1:
        return groups[0]
    for quant in _PREFERENCE:
        matches = tuple(g for g in groups if g.quant == quant)
        if matches:
            return _only(source, f"{quant} names several files", matches, groups, quant)
    raise AmbiguousModelError(source, "it holds several files", tuple(g.first for g in groups))


def _only(
    source: str,
    reason: str,
    matches: tuple[GGUFGroup, ...],
    groups: tuple[GGUFGroup, ...],
    selector: str,
) -> GGUFGroup:
    if len(matches) > 1:
        raise AmbiguousModelError(source, reason, tuple(g.first for g in matches))
    for match in matches:
        return match
    raise ModelNotFoundError(
        f"{source}: no {selector} in it; {_there_is([g.first for g in groups])}"
    )


def _there_is(names: Iterable[str]) -> str:
    files = [name for name in names if name.lower().endswith(".gguf")]
    return f"there are: {', '.join(files)}" if files else "there are no GGUF files in it"
