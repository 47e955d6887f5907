"""A draft model of a model's own: the same GGUF file with some layers left out.

    python tools/shallow_gguf.py MODEL.gguf OUT.gguf --layers 0-19,26-29

It has the model's vocabulary and embeddings, was never trained so, and agrees with it by so much:
good enough to measure what a pair of model and draft model does, where no smaller model is at hand.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import gguf

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")


def layers(text: str) -> list[int]:
    """Of 0-2,5: 0, 1, 2, 5."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def write_shallow(model: Path, out: Path, kept: list[int]) -> None:
    """Raises ValueError if the model lacks a layer that is to be kept."""
    reader = gguf.GGUFReader(model)
    architecture = str(reader.fields["general.architecture"].contents())
    count = f"{architecture}.block_count"
    if not set(kept) <= set(range(int(reader.fields[count].contents()))):
        raise ValueError(f"{model} has not all of the layers {kept}")
    writer = gguf.GGUFWriter(out, architecture)
    for name, entry in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = len(kept) if name == count else entry.contents()
        kind, *element = entry.types
        writer.add_key_value(name, value, kind, element[0] if element else None)
    for tensor in reader.tensors:
        name, match = tensor.name, _LAYER.fullmatch(tensor.name)
        if match is not None:
            if int(match[1]) not in kept:
                continue
            name = f"blk.{kept.index(int(match[1]))}.{match[2]}"
        writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=layers, required=True, help="those that stay: 0-19,26-29")
    args = parser.parse_args()
    write_shallow(args.model, args.out, args.layers)


if __name__ == "__main__":
    main()
