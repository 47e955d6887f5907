"""Feeds mutated model files to the GGUF reader: anything but a model or a ModelFileError is a bug.

Mutations know where a valid file's fields are and overwrite them with values that hurt; others
flip, cut, repeat and mix bytes. Runs on one seed give the same files. Findings are kept as files.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

from edgeserve.errors import ModelFileError
from edgeserve.loader.gguf import ModelFile, read_gguf

MAX_SECONDS = 0.5  # five times the bound, for busy machines
MAX_GROWTH_BYTES = 50_000_000
HANG_SECONDS = 10
ADDRESS_SPACE_BYTES = 4 << 30
REPORT_SECONDS = 60

HURTFUL = (
    *range(16),
    *(
        2**power + delta
        for power in (7, 8, 15, 16, 29, 31, 32, 48, 60, 62, 63)
        for delta in (-1, 0)
    ),
    2**64 - 1,
    2**64 - 8,
    2**64 - 32,
)


@dataclass(frozen=True, slots=True)
class Specimen:
    """A valid file and where its numbers are: (offset, width in bytes)."""

    content: bytes
    fields: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Outcome:
    """What came of the executions so far."""

    executions: int = 0
    loads: int = 0
    errors: Counter[str] = field(default_factory=Counter[str])
    findings: dict[str, Path] = field(default_factory=dict[str, Path])


# --- valid files -------------------------------------------------------------------------------


def write_specimens(folder: Path, target: Path, rng: random.Random) -> list[Specimen]:
    """Whole files of several sizes, and the first part of a split one whose second stays put.

    The specimens' bytes go to `target`, which has a first part's name.
    """
    specimens: list[Specimen] = []
    for num_tensors in (0, 1, 3, 12):
        whole = folder / "whole.gguf"
        write_model(whole, rng, num_tensors)
        specimens.append(specimen(whole))
    write_model(folder / "model.gguf", rng, 4, split_max_tensors=2)
    specimens.append(specimen(target))
    old = bytearray(specimens[1].content)
    old[4] = 2
    specimens.append(Specimen(bytes(old), specimens[1].fields))
    return specimens


def write_model(path: Path, rng: random.Random, num_tensors: int, **split: int) -> None:
    writer = gguf.GGUFWriter(path, "llama", **split)
    writer.add_uint32("general.alignment", 32)
    writer.add_string("general.name", "x" * rng.randrange(1, 40))
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_uint64("test.u64", rng.getrandbits(64))
    writer.add_array(
        "tokenizer.ggml.tokens", [f"t{index}" for index in range(rng.randrange(1, 30))]
    )
    writer.add_array("tokenizer.ggml.scores", [rng.random() for _ in range(rng.randrange(1, 30))])
    writer.add_array("test.flags", [True, False])
    for index in range(num_tensors):
        shape = (rng.randrange(1, 4), 32 * rng.randrange(1, 3))
        kind = rng.choice([gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0])
        weights = gguf.quantize(np.ones(shape, dtype=np.float32), kind)
        writer.add_tensor(f"blk.{index}.attn_q.weight", weights, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def specimen(path: Path) -> Specimen:
    content = path.read_bytes()
    model = read_gguf(path)
    fields = [(4, 4), (8, 8), (16, 8)]
    for offset in model.metadata.offsets.values():
        value = offset + 8 + int.from_bytes(content[offset : offset + 8], "little")
        # A key's length, its value's type; then a number, a length, or an array's type and length.
        fields += [(offset, 8), (value, 4), (value + 4, 4), (value + 4, 8), (value + 8, 8)]
    for tensor in model.tensors.values():
        if tensor.part > 0:
            continue
        dims = tensor.info_offset + 8 + len(tensor.name.encode())
        after = dims + 4 + 8 * len(tensor.shape)
        fields += [(tensor.info_offset, 8), (dims, 4), (after, 4), (after + 4, 8)]
        fields += [(dims + 4 + 8 * index, 8) for index in range(len(tensor.shape))]
    return Specimen(content, tuple(fields))


# --- mutations ---------------------------------------------------------------------------------


def mutate(specimens: Sequence[Specimen], rng: random.Random) -> bytes:
    base = rng.choice(specimens)
    content = bytearray(base.content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        rng.choice(_MUTATIONS)(content, base, specimens, rng)
    return bytes(content)


Mutation = Callable[[bytearray, Specimen, Sequence[Specimen], random.Random], None]


def overwrite_field(
    content: bytearray, base: Specimen, _others: Sequence[Specimen], rng: random.Random
) -> None:
    offset, width = rng.choice(base.fields)
    value = rng.choice(HURTFUL) if rng.random() < 0.8 else rng.getrandbits(64)
    content[offset : offset + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")


def nudge_field(
    content: bytearray, base: Specimen, _others: Sequence[Specimen], rng: random.Random
) -> None:
    offset, width = rng.choice(base.fields)
    value = int.from_bytes(content[offset : offset + width], "little")
    value += rng.choice((-32, -8, -1, 1, 8, 32))
    content[offset : offset + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")


def flip_bit(
    content: bytearray, _base: Specimen, _others: Sequence[Specimen], rng: random.Random
) -> None:
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def cut(
    content: bytearray, _base: Specimen, _others: Sequence[Specimen], rng: random.Random
) -> None:
    del content[rng.randrange(len(content) + 1) :]


def remove_span(
    content: bytearray, _base: Specimen, _others: Sequence[Specimen], rng: random.Random
) -> None:
    start = rng.randrange(len(content) + 1)
    del content[start : start + rng.randrange(1, 64)]


def insert_span(
    content: bytearray, _base: Specimen, others: Sequence[Specimen], rng: random.Random
) -> None:
    source = rng.choice((bytes(64), rng.randbytes(64), rng.choice(others).content))
    start = rng.randrange(len(source))
    at = rng.randrange(len(content) + 1)
    content[at:at] = source[start : start + rng.randrange(1, 128)]


def repeat_entry(
    content: bytearray, base: Specimen, _others: Sequence[Specimen], rng: random.Random
) -> None:
    """A key or a tensor twice, as fields begin entries more often than not; the count follows."""
    start, _ = rng.choice(base.fields)
    end, _ = rng.choice(base.fields)
    content[start:start] = content[min(start, end) : max(start, end)]
    count_at = rng.choice((8, 16))
    if len(content) > count_at:
        content[count_at] = (content[count_at] + 1) % 256


_MUTATIONS: tuple[Mutation, ...] = (
    overwrite_field,
    overwrite_field,
    overwrite_field,
    nudge_field,
    flip_bit,
    cut,
    remove_span,
    insert_span,
    repeat_entry,
)


# --- judging -----------------------------------------------------------------------------------


class Fuzzer:
    """Executes files one after another at `target` and keeps what is wrong in `findings`."""

    def __init__(self, target: Path, findings: Path) -> None:
        self.outcome = Outcome()
        self._target = target
        self._findings = findings
        self._peak_bytes = peak_bytes()

    def execute(self, content: bytes) -> None:
        # In place: some file systems flush a file that was emptied and written anew, which costs
        # ten times what reading it does.
        with open(self._target, "r+b", buffering=0) as file:
            file.write(content)
            file.truncate()
        self.outcome.executions += 1
        signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
        start = time.process_time()
        try:
            check_promises(read_gguf(self._target))
            self.outcome.loads += 1
        except ModelFileError as error:
            self.outcome.errors[type(error).__name__] += 1
        except (Exception, HangError) as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self._keep(content, f"{type(error).__name__} at {place.name}:{place.lineno}: {error}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        seconds = time.process_time() - start
        if seconds > MAX_SECONDS:
            self._keep(content, f"slow: {seconds:.2f} s of processor time")
        grown = peak_bytes() - self._peak_bytes
        if grown > MAX_GROWTH_BYTES:
            self._peak_bytes += grown
            self._keep(content, f"memory: {grown >> 20} MiB more than before")

    def _keep(self, content: bytes, what: str) -> None:
        if what in self.outcome.findings:
            return
        name = hashlib.sha256(content).hexdigest()[:16]
        path = self._findings / f"finding-{name}.gguf"
        path.write_bytes(content)
        self.outcome.findings[what] = path
        print(f"FINDING {what}\n  {path}", flush=True)


class HangError(BaseException):
    """Raised by the alarm; no Exception, so that nothing on the way swallows it."""


def check_promises(model: ModelFile) -> None:
    """Data inside its file and apart from other data; keys with a place."""
    ends = [0] * len(model.paths)
    for tensor in sorted(model.tensors.values(), key=lambda tensor: tensor.offset):
        if tensor.offset < ends[tensor.part] or tensor.num_bytes < 1:
            raise AssertionError(f"{tensor} overlaps")
        ends[tensor.part] = tensor.offset + tensor.num_bytes
    if any(end > size for end, size in zip(ends, model.file_bytes, strict=True)):
        raise AssertionError("a tensor ends outside its file")
    if set(model.metadata.offsets) != set(model.metadata.values):
        raise AssertionError("a key without an offset")


def peak_bytes() -> int:
    """The most memory that this process has had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def on_alarm(_signal: int, _frame: object) -> None:
    raise HangError(f"no answer in {HANG_SECONDS} s")


def report(outcome: Outcome, seconds: float) -> None:
    kinds = ", ".join(f"{name} {count:,}" for name, count in outcome.errors.most_common())
    print(
        f"{outcome.executions:,} executions in {seconds:.0f} s: {outcome.loads:,} valid, "
        f"{len(outcome.findings)} findings; {len(outcome.errors)} kinds of error: {kinds}",
        flush=True,
    )


def fuzz(minutes: float, seed: int, findings: Path) -> Outcome:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model-00001-of-00002.gguf"
        specimens = write_specimens(Path(folder), target, rng)
        fuzzer = Fuzzer(target, findings)
        start = last_report = time.monotonic()
        while (now := time.monotonic()) < start + 60 * minutes:
            fuzzer.execute(mutate(specimens, rng))
            if now > last_report + REPORT_SECONDS:
                last_report = now
                report(fuzzer.outcome, now - start)
    report(fuzzer.outcome, time.monotonic() - start)
    return fuzzer.outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (default 0)")
    parser.add_argument(
        "--findings", type=Path, default=Path("build/fuzz"), help="folder for files that fail"
    )
    arguments = parser.parse_args()
    arguments.findings.mkdir(parents=True, exist_ok=True)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    signal.signal(signal.SIGALRM, on_alarm)
    outcome = fuzz(arguments.minutes, arguments.seed, arguments.findings)
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
