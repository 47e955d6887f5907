"""Whether the parts of a split model belong together: their `split.*` keys against their names."""

from __future__ import annotations

import os
from pathlib import Path

from edgeserve.errors import MissingPartError, SplitError
from edgeserve.loader.gguf_names import part_names
from edgeserve.loader.header_reader import shown
from edgeserve.types import Metadata

_COUNT = "split.count"
_NUMBER = "split.no"
_NUM_TENSORS = "split.tensors.count"


def part_paths(path: Path, metadata: Metadata) -> list[Path]:
    """The paths of all parts in order; `[path]` when the metadata of `path` tells of no split."""
    count = _integer(path, metadata, _COUNT) or 1
    if count == 1:
        return [path]
    names = part_names(path.name)
    if len(names) != count or path.name not in names:
        raise SplitError(
            _COUNT,
            f"this is one of {count} parts, so its name must end in -00001-of-{count:05d}.gguf, "
            "or the number that it has; give the files their original names",
            offset=metadata.offsets[_COUNT],
            path=path,
        )
    paths = [path.with_name(name) for name in names]
    for part in paths:
        if not os.path.exists(part):
            raise MissingPartError(
                _COUNT,
                f"the model has {count} parts, and {part.name} is not beside this one; "
                "download it into the same folder",
                offset=metadata.offsets[_COUNT],
                path=path,
            )
    return paths


def check_part(path: Path, metadata: Metadata, index: int, count: int) -> None:
    """That the part at `path` says of itself that it is number `index` (from 0) of `count`."""
    for key, expected in ((_COUNT, count), (_NUMBER, index)):
        found = _integer(path, metadata, key)
        if found != expected:
            raise SplitError(
                key,
                f"is {'absent' if found is None else found} where the file's name calls for "
                f"{expected}; the part is another model's, or was renamed",
                offset=metadata.offsets.get(key),
                path=path,
            )


def check_tensor_count(path: Path, metadata: Metadata, num_tensors: int) -> None:
    """That all parts together have the tensors that the first one, at `path`, promises."""
    expected = _integer(path, metadata, _NUM_TENSORS)
    if expected is not None and expected != num_tensors:
        raise SplitError(
            _NUM_TENSORS,
            f"promises {expected} tensors and the parts have {num_tensors}; "
            "download the model again",
            offset=metadata.offsets[_NUM_TENSORS],
            path=path,
        )


def _integer(path: Path, metadata: Metadata, key: str) -> int | None:
    value = metadata.values.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SplitError(
            key,
            f"must be a whole number, not {shown(repr(value))}",
            offset=metadata.offsets[key],
            path=path,
        )
    return value
