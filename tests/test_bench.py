"""`edgeserve bench`: what it counts, how it compares and what it prints, on tiny models."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pytest

from edgeserve import cli
from edgeserve.bench import session
from edgeserve.bench.contestant import Native, open_native
from edgeserve.bench.profile import BEFORE, OUTSIDE, OperationTime, Profile, profile
from edgeserve.bench.report import Machine, Measured, ModelFacts, Report
from edgeserve.bench.roofline import roofline_svg
from edgeserve.bench.screen import lines_of
from edgeserve.bench.timing import Limits, Timing, alternate
from edgeserve.bench.workload import Kind, LeftOut, Measure, Sizes, Work, fitting, work_of
from edgeserve.binding.executor import kernel_sets
from edgeserve.binding.meter import NativeMeter
from edgeserve.errors import InvalidRequestError, LibraryError
from edgeserve.loader.gguf import read_gguf
from edgeserve.models import build_plan
from edgeserve.runner.batch import Batch, RowGroup
from edgeserve.runner.region_costs import RegionCost
from edgeserve.runner.regions import RegionRows

from .tiny_models import write_tiny_model

CONTEXT = 64
SHORT = ("--prefill", "8", "--decode", "2", "--depths", "0,16", "--sequences", "1,3")
ALONE = Measure(Kind.DECODE, 2)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return write_tiny_model(path, "llama", quant="Q8_0", context=CONTEXT)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gemma's: two cache groups, one of a window of 24."""
    path = tmp_path_factory.mktemp("model") / "windowed.gguf"
    return write_tiny_model(path, "gemma3", context=CONTEXT)


def native(path: Path, measures: Sequence[Measure]) -> Native:
    file = read_gguf(path)
    return open_native(file, build_plan(file.metadata, file.tensors), measures, num_threads=2)


# --- what is measured ----------------------------------------------------------------------------


def test_one_sequence_is_measured_by_depth_and_then_several() -> None:
    sizes = Sizes(prefill=8, decode=2, depths=(16, 0), sequences=(4, 1))
    names = [measure.name for measure in sizes.measures()]
    assert names == ["pp8", "tg2", "pp8 at 16", "tg2 at 16", "tg2 at 16 x 4"]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("--prefill", {"prefill": 0}),
        ("--decode", {"decode": 0}),
        ("--depths", {"depths": (0, -1)}),
        ("--sequences", {"sequences": (0,)}),
    ],
)
def test_sizes_that_mean_nothing_are_refused(name: str, sizes: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Sizes(**sizes)  # type: ignore[arg-type]
    assert caught.value.parameter == name


def test_a_prefill_is_cut_into_pieces_and_a_decode_into_tokens() -> None:
    prefill = list(Measure(Kind.PREFILL, 600, 10).steps())
    assert [(s.first, s.num_rows, s.num_logits_rows) for s in prefill] == [
        (10, 512, 0),
        (522, 88, 1),
    ]
    decode = list(Measure(Kind.DECODE, 2, 10, 3).steps())
    assert [(s.first, s.num_rows, s.num_sequences, s.num_logits_rows) for s in decode] == [
        (10, 1, 3, 1),
        (11, 1, 3, 1),
    ]


def test_what_does_not_fit_is_left_out_with_the_reason() -> None:
    deep, wide = Measure(Kind.DECODE, 2, 100), Measure(Kind.DECODE, 2, 50, 32)
    kept, left_out = fitting([ALONE, deep, wide], max_position=64, max_kv_tokens=1000)
    assert kept == (ALONE,)
    assert left_out == (
        LeftOut(deep, "the model's context is 64 tokens"),
        LeftOut(wide, "memory holds keys and values of 1,000 tokens, not 1,664"),
    )


def test_work_is_weights_once_a_step_and_positions_once_a_sequence() -> None:
    costs = [
        RegionCost("weights", RegionRows.TOKENS, weight_bytes=100, products=10),
        RegionCost("attention", RegionRows.TOKENS, position_bytes=4, position_products=3),
        RegionCost("output", RegionRows.LOGITS, weight_bytes=1000, products=7),
    ]
    # Two steps of two sequences, which see 6 and 7 positions.
    decode = work_of(costs, Measure(Kind.DECODE, 2, 5, 2).steps())
    assert decode.num_bytes == 2 * (100 + 1000) + 2 * 4 * (6 + 7)
    assert decode.weight_operations == 2 * (2 * 2) * (10 + 7)
    assert decode.operations == decode.weight_operations + 2 * 3 * 2 * (6 + 7)
    # One step: its rows see 1, 2 and 3 positions, and its last one has logits.
    prefill = work_of(costs, Measure(Kind.PREFILL, 3).steps())
    assert prefill.num_bytes == 1100 + 4 * 3
    assert prefill.weight_operations == 2 * (3 * 10 + 7)
    assert prefill.operations == prefill.weight_operations + 2 * 3 * (1 + 2 + 3)


def test_a_window_bounds_what_attention_reads() -> None:
    cost = RegionCost(
        "attention", RegionRows.TOKENS, position_bytes=4, position_products=3, window=4
    )
    decode = work_of([cost], Measure(Kind.DECODE, 1, 9).steps())
    assert (decode.num_bytes, decode.operations) == (4 * 4, 2 * 3 * 4)
    prefill = work_of([cost], Measure(Kind.PREFILL, 2, 9).steps())
    assert (prefill.num_bytes, prefill.operations) == (4 * 5, 2 * 3 * 8)


def test_costs_name_every_region_and_count_every_weight(windowed: Path) -> None:
    ours = native(windowed, [ALONE])
    costs = ours.runner.region_costs()
    names = list(dict.fromkeys(cost.name for cost in costs))
    assert names == [
        "embed",
        "attn_q + attn_k + attn_v",
        "attention, window 24",
        "attn_output",
        "rms_norm + add",
        "ffn_gate + ffn_up",
        "ffn_down",
        "attention",
        "select",
        "rms_norm + select + add",
        "token_embd",
        "rms_norm",
    ]
    assert sum(cost.weight_bytes for cost in costs) == ours.runner.weight_bytes
    token_bytes = sum(ours.runner.block_bytes(group) for group in range(2)) / 16
    assert sum(cost.position_bytes for cost in costs) == token_bytes
    ours.close()


# --- our contestant ------------------------------------------------------------------------------


def test_every_sequence_holds_the_depth_before_it_decodes(tiny: Path) -> None:
    """Their last logits are those of one that read everything at once."""
    alone, together = Measure(Kind.DECODE, 2, 20), Measure(Kind.DECODE, 2, 20, 3)
    ours = native(tiny, [alone, together])
    ours.prepare(alone)
    ours.run(alone)
    expected = ours.runner.logits()
    for _ in range(2):
        ours.prepare(together)
        ours.run(together)
    found = ours.runner.logits()
    ours.close()
    assert found.shape[0] == 3
    assert all(np.array_equal(row, expected[0]) for row in found)

    again = native(tiny, [Measure(Kind.PREFILL, 22)])
    whole = Measure(Kind.PREFILL, 22)
    again.prepare(whole)
    again.run(whole)
    assert np.array_equal(again.runner.logits()[0], expected[0])
    again.close()


def test_a_profile_changes_no_bit_and_adds_up(tiny: Path) -> None:
    measure = Measure(Kind.DECODE, 3, 5)
    ours = native(tiny, [measure])
    ours.prepare(measure)
    ours.run(measure)
    expected = ours.runner.logits()
    now = iter((10.0, 12.0))
    found = profile(ours, measure, Limits(1e9, 1e9), lambda: next(now))
    assert np.array_equal(ours.runner.logits(), expected)
    names = [op.name for op in found.operations]
    assert {"embed", "attention", "ffn_down", BEFORE, OUTSIDE} <= set(names)
    assert all(op.seconds > 0 for op in found.operations)
    assert found.seconds == 2.0
    assert sum(op.seconds for op in found.operations) == pytest.approx(2.0)
    assert sum(op.share for op in found.operations) == pytest.approx(1.0)
    ours.run(measure)  # and it has ended: nothing more is added
    ours.close()


def test_a_profile_of_another_length_is_refused(tiny: Path) -> None:
    ours = native(tiny, [ALONE])
    with pytest.raises(LibraryError, match="profiling"):
        ours.runner.profile_into(np.zeros(3, np.uint64))
    ours.close()


def test_regions_are_timed_while_asked_and_no_longer(tiny: Path) -> None:
    ours = native(tiny, [ALONE])
    nanoseconds = np.zeros(len(ours.runner.region_costs()) + 1, np.uint64)
    batch = Batch.from_groups([RowGroup([5], 0, [[0]], 1)], 1)
    ours.runner.profile_into(nanoseconds)
    ours.runner.execute(batch)
    assert (nanoseconds > 0).all()
    before = nanoseconds.copy()
    ours.runner.execute(batch)
    assert (nanoseconds > before).all()
    ours.runner.profile_into(None)
    before = nanoseconds.copy()
    ours.runner.execute(batch)
    assert (nanoseconds == before).all()
    ours.close()


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", [None, *(name for name, runs in kernel_sets() if runs)])
def test_limits_are_measured(kernels: str | None) -> None:
    meter = NativeMeter(num_threads=2, kernels=kernels, num_bytes=16 << 20)
    assert 1e8 < meter.read_bytes_per_s() < 1e13
    assert 1e7 < meter.int8_per_s() < 1e15
    meter.close()
    meter.close()


def test_limits_of_an_unknown_kernel_set_are_refused() -> None:
    with pytest.raises(LibraryError, match="no such kernel set"):
        NativeMeter(num_threads=1, kernels="mmx", num_bytes=16 << 20)


# --- comparing -----------------------------------------------------------------------------------


class FakeClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeContestant:
    """Takes the seconds given, one run after the other, and says what is done to it."""

    def __init__(
        self, name: str, clock: FakeClock, seconds: Sequence[float], log: list[str]
    ) -> None:
        self.name = name
        self._clock, self._seconds, self._log = clock, iter(seconds), log

    def prepare(self, measure: Measure) -> None:
        self._clock.now += 100  # is not timed
        self._log.append(f"{self.name} prepares {measure.name}")

    def run(self, measure: Measure) -> None:
        self._clock.now += next(self._seconds)
        self._log.append(f"{self.name} runs {measure.name}")

    def close(self) -> None: ...


class FakeMeter:
    def __init__(self, *read: float) -> None:
        self._read = iter(read)

    def read_bytes_per_s(self) -> float:
        return next(self._read)

    def int8_per_s(self) -> float:
        return 1000.0


def test_contestants_alternate_and_the_first_round_does_not_count() -> None:
    clock, log = FakeClock(), []
    who = [
        FakeContestant("a", clock, (50, 1, 2, 4), log),
        FakeContestant("b", clock, (50, 8, 6, 4), log),
        FakeContestant("c", clock, (50, 5, 5, 5), log),
    ]
    timing = alternate(who, ALONE, 3, meter=FakeMeter(1, 10, 20, 40), clock=clock)
    assert log[:6] == [f"{name} {does} tg2" for name in "abc" for does in ("prepares", "runs")]
    assert len(log) == 4 * 6
    assert timing.seconds == {"a": (1, 2, 4), "b": (8, 6, 4), "c": (5, 5, 5)}
    assert [limits.read_bytes_per_s for limits in timing.limits] == [10, 20, 40]


def timing(**seconds: tuple[float, ...]) -> Timing:
    limits = (Limits(10, 1000), Limits(20, 2000), Limits(40, 1000))
    return Timing(ALONE, seconds, limits)


def test_rates_and_ratios_are_of_medians_and_of_the_best_other() -> None:
    found = timing(ours=(1, 2, 4), b=(8, 6, 4), c=(5, 5, 5))
    assert found.tokens_per_s("ours") == 1.0  # 2 tokens in 2 s
    assert found.best_other == "c"
    assert found.ratio == 2.5
    assert timing(ours=(1, 2, 4)).ratio is None


def test_fractions_are_of_the_limit_in_the_same_round() -> None:
    found = timing(ours=(1, 2, 4))
    # 80 bytes: 80/1/10 = 8, 80/2/20 = 2, 80/4/40 = 0.5; 4000 operations: 4, 1, 1
    work = Work(num_bytes=80, weight_operations=4000, operations=9000)
    assert found.of_read(work) == 2.0
    assert found.of_int8(work) == 1.0


# --- the command ---------------------------------------------------------------------------------


def test_the_command_writes_what_it_measured(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written, plot = tmp_path / "bench.json", tmp_path / "bench.svg"
    arguments = [*SHORT, "--rounds", "2", "--threads", "2", "--json", str(written)]
    assert cli.main(["bench", str(tiny), *arguments, "--plot", str(plot)]) == 0
    screen = capsys.readouterr().out
    found = json.loads(written.read_text())

    names = ["pp8", "tg2", "pp8 at 16", "tg2 at 16", "tg2 x 3"]
    assert [measure["name"] for measure in found["measures"]] == names
    for measure in found["measures"]:
        (ours,) = measure["tokens_per_s"]
        assert ours == f"edgeserve ({found['machine']['kernels']})"
        assert len(measure["seconds"][ours]) == len(measure["limits"]) == found["rounds"] == 2
        positive = ("bytes_per_token", "operations_per_token", "of_read", "of_int8")
        assert all(measure[key] > 0 for key in positive)
        assert measure["tokens_per_s"][ours] > 0
        assert measure["ratio"] is None
        assert f"\n{measure['name']} " in screen
    shallow, deep = found["measures"][1], found["measures"][3]
    assert deep["bytes_per_token"] > shallow["bytes_per_token"] > found["model"]["weight_bytes"] / 2
    assert found["machine"]["threads"] == 2
    assert found["limits"]["read_bytes_per_s"] > 0
    assert [p["measure"] for p in found["profiles"]] == ["pp8", "tg2", "tg2 at 16", "tg2 x 3"]
    for each in found["profiles"]:
        assert sum(op["share"] for op in each["operations"]) == pytest.approx(1, abs=0.01)
    assert ElementTree.parse(plot).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_depth_beyond_the_context_is_said_and_left_out(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--prefill", "8", "--decode", "1", "--depths", "0,4096", "--sequences", "1"]
    assert cli.main(["bench", str(tiny), *arguments, "--rounds", "1"]) == 0
    assert "\ntg1 at 4,096 left out: the model's context is 64 tokens\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--depths", "4096"], "--depths = (4096,): must be such that something fits"),
        (["--rounds", "0"], "--rounds = 0: must be 1 or more"),
        (["--against", "llama.cpp", "--rounds", "4"], "--rounds = 4: must be 5 or more"),
        (["--threads", "0"], "--threads = 0: must be from 1 to 1024"),
        (["--decode", "-1"], "--decode = -1: must be 1 or more"),
        (["--json", "/no/such/folder/a.json"], "--json = '/no/such/folder/a.json': must be a file"),
    ],
)
def test_wrong_arguments_are_one_line(
    tiny: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert cli.main(["bench", str(tiny), *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"edgeserve: error: {message}")
    assert printed.err.count("\n") == 1


def test_without_llama_cpp_the_error_says_what_to_install(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    assert cli.main(["bench", str(tiny), *SHORT, "--against", "llama.cpp"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("edgeserve: error: llama.cpp is not here to be compared with (")
    assert "pip install llama-cpp-python (or leave out --against llama.cpp)" in printed


def test_a_model_that_memory_does_not_hold_is_refused_before_it_is_loaded(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "available_memory", lambda: tiny.stat().st_size - 1)
    assert cli.main(["bench", str(tiny), *SHORT]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("edgeserve: error: no memory for a model of ")


def test_llama_cpp_is_measured_in_both_modes(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], llama_cpp: ModuleType
) -> None:
    written = tmp_path / "bench.json"
    arguments = [*SHORT, "--against", "llama.cpp", "--json", str(written)]
    assert cli.main(["bench", str(tiny), *arguments]) == 0
    found = json.loads(written.read_text())
    for measure in found["measures"]:
        ours, repacked, plain = measure["tokens_per_s"].values()
        assert measure["ratio"] == ours / max(repacked, plain)
        assert list(measure["tokens_per_s"])[1:] == [
            "llama.cpp (repacked)",
            "llama.cpp (as in the file)",
        ]
    assert found["versions"]["llama-cpp-python"] == llama_cpp.__version__
    assert found["measures"][0]["best_other"] in capsys.readouterr().out


# --- what is printed and drawn -------------------------------------------------------------------


def report(*, load: float | None = None) -> Report:
    """Made up; 1e9 bytes and 4e9 operations for two tokens."""
    work = Work(num_bytes=1e9, weight_operations=4e9, operations=5e9)
    seconds = {"edgeserve (avx2)": (0.1,) * 3, "llama.cpp (repacked)": (0.2,) * 3}
    found = Timing(ALONE, seconds, (Limits(20e9, 200e9),) * 3)
    operations = (
        OperationTime("ffn_down", 0.06, 0.6, Work(6e8, 3e9, 3e9)),
        OperationTime("attention", 0.0395, 0.395, Work(4e8, 0, 1e9)),
        OperationTime("embed", 0.0004, 0.004, Work()),
        OperationTime(OUTSIDE, 0.0001, 0.001, Work()),
    )
    return Report(
        model=ModelFacts("a.gguf", Path("/models/a.gguf"), "llama", 10**9, 9 * 10**8, 2048),
        machine=Machine("A Processor", "Linux x86_64", 2, 2, "avx2", load),
        versions={"edgeserve": "1.0", "llama-cpp-python": "2.0", "python": "3.11.7"},
        rounds=3,
        measured=(Measured(found, work),),
        left_out=(LeftOut(Measure(Kind.PREFILL, 8, 4096), "it is too deep"),),
        profiles=(Profile(ALONE, 2, 0.1, Limits(20e9, 200e9), operations),),
    )


def test_the_screen_is_aligned_tables() -> None:
    assert (
        "\n".join(lines_of(report()))
        == """\
model      a.gguf (llama, 1.0 GB, 900 MB of weights in memory)
machine    A Processor, 2 cores, Linux x86_64
computing  2 threads, kernel set avx2, KV cache f16
limits     memory is read at 20.0 GB/s, int8 multiplies at 200 GOP/s
versions   edgeserve 1.0, llama-cpp-python 2.0, python 3.11.7
method     medians of 3 alternated rounds; forward passes only

tokens/s  edgeserve  of read  of int8  llama.cpp (repacked)   ratio
tg2            20.0     0.50     0.20                  10.0  2.00 x
pp8 at 4,096 left out: it is too deep

tg2: a step of 2      ms   share  GB/s  of read  GOP/s  of int8
ffn_down          30.000   60.0%  10.0     0.50     50     0.25
attention         19.750   39.5%  10.1     0.51     25
the rest           0.250    0.5%
all               50.000  100.0%"""
    )


def test_a_busy_machine_is_said() -> None:
    lines = list(lines_of(report(load=3.0)))
    assert "busy       other programs were running (load 3.0): figures are low" in lines
    assert not any(line.startswith("busy") for line in lines_of(report(load=0.1)))


def test_the_plot_has_a_roof_and_a_point_for_each_contestant() -> None:
    root = ElementTree.fromstring(roofline_svg(report()))
    tag = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in root.iter(f"{tag}text")]
    assert {"tg2", "int8 200 GOP/s", "memory 20.0 GB/s", "edgeserve (avx2)"} <= set(texts)
    titles = [title.text for title in root.iter(f"{tag}title")]
    # 2.5e9 operations a token, at 20 and at 10 tokens a second.
    assert titles == ["edgeserve (avx2): 50.0 GOP/s", "llama.cpp (repacked): 25.0 GOP/s"]
    (roof,) = root.iter(f"{tag}polyline")
    corners = [tuple(map(float, pair.split(","))) for pair in roof.attrib["points"].split()]
    assert corners[0][1] > corners[1][1] == corners[2][1]  # a slope, then a ceiling
