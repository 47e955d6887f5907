"""Breaks the numerics contract in a copy of the core, one way at a time; names the tests that see.

    python tools/mutate_native.py [NAME ...] [--folder build/mutants] [--all-tests]

The copy is of the last commit. A mutation that no test sees is an error: tests are missing then.
Built without much optimisation and for ref and AVX2 only: a mutation of the common bodies is in
both, so that comparing sets does not help, and what is left has to.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("contract_test", "kernels_test", "matmul_test")
TESTS = (
    "tests/test_native_sampler.py",
    "tests/test_native_samplers.py",
    "tests/test_native_runner.py",
    "tests/test_native_hostile.py",
)
COPIED = (
    "CMakeLists.txt",
    "native",
    "benches",
    "tools",
    "tests",
    "edgeserve",
    "models",
    "pyproject.toml",
)
_MINUTES = 15


@dataclass(frozen=True)
class Mutation:
    """`old`, which stands once in the file, becomes `new`; `also` becomes `also_new`."""

    name: str
    file: str
    old: str
    new: str
    also: str = ""
    also_new: str = ""


MUTATIONS = (
    Mutation(
        "attention partials merged right to left",
        "native/plan/attention.c",
        "for (int64_t chunk = start + 1; chunk * ES_KV_CHUNK < seen.end; chunk++) {",
        "for (int64_t chunk = (seen.end - 1) / ES_KV_CHUNK; chunk > start; chunk--) {",
    ),
    Mutation(
        "one activation scale for the whole row",
        "native/kernels/generic/rows.h",
        "d[block] = block_scale(largest_magnitude(parts, 2), &factor);",
        "float top = largest_magnitude(parts, 2);\n"
        "for (int64_t j = 0; j < n; j++) { top = fabsf(x[j]) > top ? fabsf(x[j]) : top; }\n"
        "d[block] = block_scale(top, &factor);",
    ),
    Mutation(
        "k summed in stretches for many rows",
        "native/kernels/generic/matmul_32.h",
        "F[i] = source == PACKED || p->first_block == 0 ? f32_zero() : "
        "f32_load(p->out + i * p->ld);",
        "F[i] = f32_zero();",
        "f32_store(p->out + r * p->ld + panel * ES_LANES, F[panel * R + r]);",
        "f32_store(p->out + r * p->ld + panel * ES_LANES, source == PACKED || p->first_block == 0\n"
        "? F[panel * R + r] : f32_add(f32_load(p->out + r * p->ld), F[r]));",
    ),
    Mutation(
        "one sum for q.k instead of even and odd",
        "native/kernels/generic/attention_scores.h",
        "add_products(n, type, keys, i, 1, q, odd);",
        "add_products(n, type, keys, i, 1, q, even);",
    ),
    Mutation(
        "invisible scores multiplied away",
        "native/kernels/generic/attention.h",
        "f32_store(line, f32_select(visible, f32_load(line), f32_splat(-INFINITY)));",
        "f32_store(line, f32_fma(f32_load(line),\n"
        "f32_select(visible, f32_splat(1.0f), f32_zero()),\n"
        "f32_select(visible, f32_zero(), f32_splat(-INFINITY))));",
    ),
    Mutation(
        "rope's angle rounded before its cosine",
        "native/plan/rope_table.c",
        "cos_sin(position * rope->frequencies[pair], &cosine, &sine);",
        "cos_sin((float)(position * rope->frequencies[pair]), &cosine, &sine);",
    ),
    Mutation(
        "noise keyed by the length of the history, not the position",
        "native/sampling/sampler.c",
        "es_noise_key(row->seed, row->position, ES_TOKEN_STREAM)",
        "es_noise_key(row->seed, row->n_history, ES_TOKEN_STREAM)",
    ),
    Mutation(
        "groups of a float sum go on from the sum before",
        "native/kernels/generic/matmul_float.h",
        "for (int i = 0; i < P * R; i++) { group[i] = f32_zero(); }",
        "for (int i = 0; i < P * R; i++) { group[i] = F[i]; }",
        "{ F[i] = f32_add(F[i], group[i]); }",
        "{ F[i] = group[i]; }",
    ),
    Mutation(
        "a window one position short",
        "native/plan/attention.c",
        "end > window ? end - window : 0",
        "end > window ? end - window + 1 : 0",
    ),
    Mutation(
        "sinks without weight",
        "native/plan/attention.c",
        "if (c->attention->sinks >= 0) {",
        "if (c->attention->sinks >= executor->plan.n_vectors) {",
    ),
    Mutation(
        "equals go to the highest id",
        "native/sampling/candidates.h",
        "a.logit > b.logit : a.id < b.id",
        "a.logit > b.logit : a.id > b.id",
    ),
    Mutation(
        "a chained row keeps its own mu",
        "native/plan/sample.c",
        "mu = c->out[i].mu;",
        "mu = c->rows[i].mu;",
    ),
    Mutation(
        "repetitions reach across what breaks them",
        "native/sampling/dry.c",
        "scratch->repeats[k] < limit ? scratch->repeats[k] : limit",
        "scratch->repeats[k]",
    ),
    Mutation(
        "XTC keeps the likeliest of the top choices",
        "native/sampling/samplers.c",
        "n_top == 0 || es_before(last, running->first[i])",
        "n_top == 0 || es_before(running->first[i], last)",
    ),
    Mutation(
        "a worker keeps the prepared input of the region before",
        "native/plan/linear.c",
        "if (own->prepared != c->executor->region_serial) {",
        "if (own->prepared / 2 != c->executor->region_serial / 2) {",
    ),
    Mutation(
        "a plan's region may write what it reads",
        "native/plan/plan_check.c",
        "return linears_are_apart(plan, region);",
        "return linears_are_apart(plan, region) + 1;",
        "return selections_are_apart(plan, region);",
        "return selections_are_apart(plan, region) + 1;",
    ),
)


def copy_tree(folder: Path) -> None:
    """The last commit's files. Files that have not changed keep their time: little is rebuilt."""
    archive = subprocess.run(
        ["git", "archive", "HEAD", *COPIED], cwd=ROOT, stdout=subprocess.PIPE, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            path = folder / member.name
            file = tar.extractfile(member) if member.isfile() else None
            data = file.read() if file is not None else b""
            if file is None:
                tar.extract(member, folder, filter="data")
            elif not path.is_file() or path.read_bytes() != data:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)


def build(folder: Path) -> str | None:
    """Builds what has changed; the compiler's last lines when it refuses."""
    cmake = str(Path(sys.executable).with_name("cmake"))
    target = folder / "build"
    commands = [
        [cmake, "-S", str(folder), "-B", str(target), "-DEDGESERVE_KERNEL_SETS=ref;avx2"],
        [cmake, "--build", str(target), "--parallel", "2", "--target", "edgeserve", *PROGRAMS],
    ]
    commands[0] += ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS_RELEASE=-O1"]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return (done.stdout + done.stderr)[-2000:]
    return None


def stage(folder: Path) -> dict[str, str]:
    """A package with the library just built, and the environment in which Python finds it."""
    package = folder / "python" / "edgeserve"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(folder / "edgeserve", package)
    shutil.copy(folder / "build" / "libedgeserve.so", package / "binding")
    header = folder / "native" / "include" / "edgeserve.h"
    declarations = package / "binding" / "_edgeserve_cdef.py"
    generator = [sys.executable, str(folder / "tools" / "generate_cdef.py")]
    subprocess.run([*generator, header, declarations], stdout=subprocess.DEVNULL, check=True)
    path = os.pathsep.join((str(package.parent), sysconfig.get_path("purelib")))
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def red_tests(folder: Path, *, max_failures: int) -> list[str]:
    """Names of the programs and tests that fail, until there are `max_failures`."""
    red: list[str] = []
    for program in PROGRAMS:
        arguments = [] if program == "contract_test" else ["quick"]
        done = subprocess.run(
            [folder / "build" / program, *arguments], capture_output=True, check=False
        )
        red += [program] if done.returncode != 0 else []
        if len(red) >= max_failures:
            return red
    # Without site (-S) the installed package's import hook is not there.
    options = ["-S", "-P", "-m", "pytest", "-p", "no:cacheprovider", "-rf", "--tb=no"]
    options += [f"--maxfail={max_failures}"]
    done = subprocess.run(
        [sys.executable, *options, *TESTS],
        cwd=folder,
        env=stage(folder),
        capture_output=True,
        text=True,
        timeout=_MINUTES * 60,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE)
    return red + list(dict.fromkeys(found))


def mutate(folder: Path, mutation: Mutation, max_failures: int) -> list[str]:
    path = folder / mutation.file
    text = path.read_text(encoding="utf-8")
    mutated = text
    for old, new in ((mutation.old, mutation.new), (mutation.also, mutation.also_new)):
        if old and text.count(old) != 1:
            raise SystemExit(f"{mutation.file}: {old!r} stands {text.count(old)} times")
        mutated = mutated.replace(old, new) if old else mutated
    path.write_text(mutated, encoding="utf-8")
    try:
        refused = build(folder)
        if refused is not None:
            raise SystemExit(f"{mutation.name}: does not compile:\n{refused}")
        return red_tests(folder, max_failures=max_failures)
    finally:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="words of a mutation's name")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--all-tests", action="store_true", help="do not stop at the first red one")
    parser.add_argument(
        "--no-baseline", action="store_true", help="the tests are known to be green"
    )
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    copy_tree(folder)
    if (refused := build(folder)) is not None:
        raise SystemExit(f"the copy does not compile:\n{refused}")
    if not given.no_baseline and (red := red_tests(folder, max_failures=1)):
        raise SystemExit(f"red without any mutation: {', '.join(red)}")
    unseen = 0
    for mutation in MUTATIONS:
        if given.names and not any(name in mutation.name for name in given.names):
            continue
        start = time.monotonic()
        red = mutate(folder, mutation, 1000 if given.all_tests else 1)
        unseen += not red
        seen_by = ", ".join(red) or "NO TEST SEES IT"
        print(f"{mutation.name}: {seen_by} ({time.monotonic() - start:.0f} s)", flush=True)
    return int(unseen > 0)


if __name__ == "__main__":
    sys.exit(main())
