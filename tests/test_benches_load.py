"""The measuring programs of the engine, short and on a tiny model: that they run, that what they
print follows from what happened, and that the soak sees a wrong answer.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .tiny_models import write_tiny_model

ROOT = Path(__file__).resolve().parents[1]
CONTEXT = 256
LONG_CONTEXT = 4096  # streams must outlast a machine's hiccups
THREADS = ("--threads", "2")

SERVER = """#!{python}
# Answers as llama.cpp's server does: SSE in chunks, of which one is cut in two, and slots.
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

saved = []

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply({{"status": "ok"}})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith("/slots"):
            saved.append(asked["filename"])
            self.reply({{}})
        elif not asked.get("stream"):
            self.reply({{"content": ""}})
        else:
            self.stream(asked)

    def reply(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, asked):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = asked["n_predict"]
        timings = {{"cache_n": len(saved), "predicted_n": count}}
        events = [{{"tokens": [7]}} for _ in range(count - 1)]  # one is half a character
        events.append({{"tokens": [], "stop": True, "timings": timings}})
        text = "".join("data: " + json.dumps(e) + "\\n\\n" for e in events).encode()
        for part in (text[:11], text[11:]):
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(part), part))
        self.wfile.write(b"0\\r\\n\\r\\n")

port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return write_tiny_model(path, "llama", quant="Q8_0", context=CONTEXT)


@pytest.fixture(scope="module")
def long_tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "long.gguf"
    return write_tiny_model(path, "llama", context=LONG_CONTEXT)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a program by name."""
    monkeypatch.syspath_prepend(ROOT / "benches")
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module


def run(program: str, *arguments: object) -> str:
    """What a program prints."""
    command = [sys.executable, str(ROOT / program), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return ran.stdout


# --- a load, and what it adds up to --------------------------------------------------------------


def test_prompts_of_a_load_begin_alike_and_end_anew(bench: Any) -> None:
    load = bench("load")
    shape = load.Shape(num_chats=3, shared=20, own=5, max_tokens=4)

    def tokenize(text: str) -> list[int]:
        return [sum(word.encode()) for word in text.split()]

    first, second = (shape.load(tokenize, number=number, temperature=0.0) for number in (1, 2))
    chats = [*first.chats, *second.chats]
    assert {chat.prompt_token_ids[:20] for chat in chats} == {first.shared}
    assert len({chat.prompt_token_ids[20:] for chat in chats}) == 6
    assert {len(chat.prompt_token_ids) for chat in chats} == {25}


def test_a_round_is_measured_from_when_all_were_asked(bench: Any) -> None:
    load = bench("load")
    asked = load.Load((load.Chat((1, 2), 0),), (), max_tokens=3, temperature=0.0)
    answer = load.Answer()
    for seconds, ids in ((0.5, [4]), (0.6, []), (0.75, [5, 6])):
        answer.add(seconds, ids)
    found = load.Round.of(asked, [answer], 0.8)
    assert (found.num_tokens, found.num_prompt_tokens) == (3, 2)
    assert (found.ttft_ms.p50, found.itl_ms.largest) == (500.0, 250.0)
    answer.num_tokens -= 1
    with pytest.raises(RuntimeError, match="2 tokens of 3"):
        load.Round.of(asked, [answer], 0.8)


# --- throughput.py -------------------------------------------------------------------------------


def test_throughput_is_compared_with_a_server_in_its_better_mode(
    tiny: Path, tmp_path: Path
) -> None:
    server, figures = tmp_path / "llama-server", tmp_path / "figures.json"
    server.write_text(SERVER.format(python=sys.executable))
    server.chmod(0o755)
    sizes = ("--chats", 3, "--shared", 40, "--own", 10, "--max-tokens", 4, "--rounds", 2)
    printed = run(
        "benches/throughput.py", tiny, "--server", server, *sizes, *THREADS, "--json", figures
    )
    assert printed.count("for a shorter load") == 2
    found = json.loads(figures.read_text())
    assert [(each["prefix"], each["temperature"]) for each in found] == [
        ("shared", 0.0),
        ("shared", 1.0),
        ("none", 0.0),
        ("none", 1.0),
    ]
    for each in found:
        ours, theirs = each["rounds"].values()
        assert [one["num_tokens"] for one in (*ours, *theirs)] == [12] * 4
        assert {one["num_prompt_tokens"] for one in ours} == {150}
        # 40 shared tokens are two full blocks and a half.
        assert {one["num_cached_tokens"] for one in ours} == {
            3 * 32 if each["prefix"] == "shared" else 0
        }
        assert theirs[0]["num_cached_tokens"] > 0, "the server's slots were warmed"
        assert f"ratio {each['ratio']:.3f}" in printed


def test_a_server_that_does_not_start_says_why(tiny: Path, bench: Any, tmp_path: Path) -> None:
    module = bench("llama_server")
    program = tmp_path / "llama-server"
    program.write_text(f"#!{sys.executable}\nraise SystemExit('no such option')\n")
    program.chmod(0o755)

    async def start() -> None:
        async with module.LlamaServer(program, module.ServerOptions(tiny, 1, 256, 1, True)):
            pass

    with pytest.raises(RuntimeError, match="no such option"):
        asyncio.run(start())


# --- stall.py ------------------------------------------------------------------------------------


def test_what_a_prompt_is_permitted_follows_from_the_steps_times(bench: Any) -> None:
    stall = bench("stall")
    # A step of n rows takes 10 ms and n more; at depth 100 twice as much.
    table = stall.StepTable(
        {(0, d, n): (1 + d / 100) * (10 + n) / 1e3 for d in (0, 100) for n in (1, 8, 64)}
    )
    assert table.at(0, 50)[10 - 1] == pytest.approx(0.030)
    flat = stall.StepTable({(0, 0, n): (10 + n) / 1e3 for n in (1, 64)})
    permitted = flat.permitted(100, target_s=0.030)
    assert (permitted.seconds, permitted.out_of_reach) == (pytest.approx(5 * 0.030), 0)
    # A step that does not fit takes a row all the same.
    permitted = flat.permitted(10, target_s=0.005)
    assert (permitted.seconds, permitted.out_of_reach) == (pytest.approx(10 * 0.011), 1)


def test_streams_get_deeper_with_every_step_that_the_prompt_takes(bench: Any) -> None:
    stall = bench("stall")
    # A millisecond more for every token that the streams have got, in the second step and so on.
    table = stall.StepTable(
        {(s, 0, n): (10 + n + s) / 1e3 for s in (0, 10) for n in (1, 8)},
    )
    permitted = table.permitted(15, target_s=0.015)
    # 5 rows, 4, 3, 2 and 1, each step up to the target.
    assert (permitted.seconds, permitted.out_of_reach) == (pytest.approx(5 * 0.015), 0)
    permitted = table.permitted(17, target_s=0.015)
    assert permitted.seconds == pytest.approx(5 * 0.015 + 0.016 + 0.017)
    assert permitted.out_of_reach == pytest.approx(2 / 7)


def test_a_prompt_arrives_while_streams_decode(long_tiny: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    sizes = ("--streams", 2, "--prompt", 64, "--times", "4", "--rounds", 1, *THREADS)
    run("benches/stall.py", long_tiny, *sizes, "--json", figures)
    (found,) = json.loads(figures.read_text())
    assert found["target_ms"] == pytest.approx(4 * found["alone_ms"])
    (arrival,) = found["arrivals"]
    assert 0 < arrival["gaps_ms"]["p50"] <= arrival["gaps_ms"]["p99"]
    assert arrival["first_token_s"] > 0 < arrival["permitted_s"]


# --- engine_cost.py ------------------------------------------------------------------------------


def test_a_steps_parts_lie_within_each_other(long_tiny: Path, bench: Any) -> None:
    module = bench("engine_cost")
    recorder = module.Recorder()
    given = argparse.Namespace(
        model=long_tiny,
        sequences=5,
        tokens=300,
        threads=2,
        temperature=1.0,
        speculation="auto",
        rounds=1,
        profile=60,
    )
    asyncio.run(module.record(given, recorder))
    steps = [step for step in recorder.steps if step.num_decodes == 5]
    assert steps
    for step in steps:
        assert 0 < step.forward + step.sampling < step.runner < step.engine_step < step.whole
    cost = module.Cost.of("tiny", 5, steps)
    assert 0 < cost.engine < cost.whole
    assert "engine.py" in module.functions(given)


# --- soak.py -------------------------------------------------------------------------------------


def soaked(soak: ModuleType, tiny: Path, *, wrong: bool) -> Any:
    given = argparse.Namespace(model=tiny, minutes=0.03, over=3.0, seed=0, threads=2)
    kv_bytes = int(CONTEXT * soak.plan_of(tiny).kv_bytes_per_token(2))
    asked = soak.record(given, kv_bytes)
    if wrong:
        answers = [(replace(each.answer[0], text="?"), *each.answer[1:]) for each in asked]
        asked = [replace(e, answer=a) for e, a in zip(asked, answers, strict=True)]
    return asyncio.run(soak.soak(given, asked, kv_bytes))


def test_a_soak_answers_and_refuses_and_nothing_fails(tiny: Path, bench: Any) -> None:
    report = soaked(bench("soak"), tiny, wrong=False)
    # On a slow machine two seconds may be too short for every kind of event; and the memory is that
    # of a process which ran other tests before.
    excused = ("proves little", "memory reached")
    assert [each for each in report.failures if not any(e in each for e in excused)] == []
    assert report.counts["answered"] > 0


def test_a_soak_sees_a_wrong_text(tiny: Path, bench: Any) -> None:
    report = soaked(bench("soak"), tiny, wrong=True)
    assert any("alone '?'" in failure for failure in report.failures)


# --- crowded.py ----------------------------------------------------------------------------------


def test_a_crowd_is_answered_with_and_without_room_for_growth(bench: Any) -> None:
    crowded = bench("crowded")
    crowds = [crowded.Crowd(kept, (5, 20), (5, 60), random.Random(1)) for kept in (0.0, 3.0)]
    for crowd in crowds:
        while crowd.ended < 100:
            crowd.step()
        crowd.scheduler.check()
    without, kept = crowds
    assert kept.preempted < without.preempted / 3
    assert kept.rows / kept.tokens < without.rows / without.tokens
    assert len(kept.waits) >= 100
