"""`/metrics`: the numbers are those of what was asked, and Prometheus's own programs take them."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from edgeserve import AsyncLLM, SamplingParams
from edgeserve.server.metrics import exposition
from edgeserve.server.models import OneModel

from .server_harness import SECONDS, USER, real_server, with_server
from .tiny_models import write_tiny_model

DOCS = Path(__file__).parent.parent / "docs"
ALERTS = DOCS / "prometheus" / "alerts.yml"
ALERTS_TEST = DOCS / "prometheus" / "alerts_test.yml"
VLLM = """
vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc
vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total vllm:prompt_tokens_total
vllm:generation_tokens_total vllm:num_preemptions_total vllm:request_success_total
vllm:spec_decode_num_drafts_total vllm:spec_decode_num_draft_tokens_total
vllm:spec_decode_num_accepted_tokens_total
vllm:time_to_first_token_seconds_bucket vllm:inter_token_latency_seconds_bucket
vllm:time_per_output_token_seconds_bucket vllm:request_time_per_output_token_seconds_bucket
vllm:e2e_request_latency_seconds_bucket vllm:request_queue_time_seconds_bucket
""".split()  # noqa: SIM905  names are read more easily without quotes

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=128)


def samples_of(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset({"model_name": "tiny", **labels}.items())]


async def ask(client: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    body = {"messages": USER, "max_tokens": 20, "ignore_eos": True, "temperature": 0, **more}
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    return answer.json()["usage"]


async def scraped(client: httpx.AsyncClient) -> str:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    answer = await client.get("/metrics", headers={"accept": accept})
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return answer.text


def test_the_numbers_are_those_of_what_was_asked(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        long = [{"role": "user", "content": "the inn by the river " * 4}]
        used = [
            await ask(client),
            await ask(client, messages=long),
            await ask(client, messages=long),
            await ask(client, max_tokens=1),
        ]
        found = samples_of(await scraped(client))
        prompts = [each["prompt_tokens"] for each in used]
        cached = sum(each["prompt_tokens_details"]["cached_tokens"] for each in used)
        assert cached > 0
        assert value(found, "vllm:prompt_tokens_total") == sum(prompts)
        assert value(found, "vllm:prefix_cache_queries_total") == sum(prompts)
        assert value(found, "vllm:prefix_cache_hits_total") == cached
        assert value(found, "edgeserve_prefix_hit_blocks_total", tier="memory") == cached / 16
        assert value(found, "vllm:generation_tokens_total") == 61
        assert value(found, "vllm:request_success_total", finished_reason="length") == 4
        assert value(found, "vllm:request_success_total", finished_reason="error") == 0
        assert value(found, "vllm:time_to_first_token_seconds_count") == 4
        assert value(found, "vllm:inter_token_latency_seconds_count") == 3 * 19
        assert value(found, "vllm:request_time_per_output_token_seconds_count") == 3
        assert value(found, "vllm:e2e_request_latency_seconds_bucket", le="+Inf") == 4
        whole = value(found, "vllm:e2e_request_latency_seconds_sum")
        assert whole > value(found, "vllm:time_to_first_token_seconds_sum") > 0
        assert value(found, "edgeserve_step_seconds_total", phase="forward") > 0
        assert value(found, "edgeserve_steps_total") > 0
        assert value(found, "edgeserve_model_state", state="loaded") == 1
        for idle in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            assert value(found, f"vllm:{idle}") == 0

    with_server(path, test, speculation="off", disk_cache=0)


def test_buckets_grow_to_the_count(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        await ask(client)
        found = samples_of(await scraped(client))
        buckets = sorted(
            (float(dict(labels)["le"]), count)
            for (name, labels), count in found.items()
            if name == "vllm:inter_token_latency_seconds_bucket"
        )
        counts = [count for _, count in buckets]
        assert counts == sorted(counts)
        assert counts[-1] == value(found, "vllm:inter_token_latency_seconds_count") == 19

    with_server(path, test, disk_cache=0)


def test_drafts_are_counted_by_proposer(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=80, ignore_eos=True)
        used = [(await llm.generate("the inn " * 8, params)).usage for _ in range(3)]
        num_drafted = sum(usage.num_draft_tokens for usage in used)
        num_accepted = sum(usage.num_accepted_tokens for usage in used)
        assert num_drafted >= num_accepted > 0
        found = samples_of(await scraped(client))
        assert value(found, "vllm:spec_decode_num_draft_tokens_total") == num_drafted
        assert value(found, "vllm:spec_decode_num_accepted_tokens_total") == num_accepted
        assert value(found, "edgeserve_draft_tokens_total", proposer="ngram") == num_drafted
        accepted = value(found, "edgeserve_accepted_draft_tokens_total", proposer="ngram")
        assert accepted == num_accepted

    with_server(path, test, disk_cache=0, speculation="ngram")


def test_names_are_vllms(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        names = {name for name, _ in samples_of(await scraped(client))}
        assert set(VLLM) <= names

    with_server(path, test, disk_cache=0)


def test_a_model_that_loads_is_said_to() -> None:
    found = samples_of(exposition(OneModel("tiny", created=1)).decode())
    assert found == {
        ("edgeserve_model_state", frozenset({("model_name", "tiny"), ("state", "loading")})): 1.0
    }


# --- what watches it -----------------------------------------------------------------------------


def expressions() -> dict[str, str]:
    """Of the alerts and the dashboard, by where they stand."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    found = {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}
    for panel in json.loads((DOCS / "grafana" / "dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    return found


def test_what_dashboard_and_alerts_name_exists(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        families = text_string_to_metric_families(await scraped(client))
        served = {sample.name for family in families for sample in family.samples}
        # Of a proposer nothing is served before there is one.
        served |= {"edgeserve_draft_tokens_total", "edgeserve_accepted_draft_tokens_total"}
        for where, expression in expressions().items():
            named = set(re.findall(r"\b(?:vllm:|edgeserve_)\w+", expression))
            assert named <= served, where
            assert named or where == "EdgeserveDown", where

    with_server(path, test, disk_cache=0)


def test_every_alert_is_tried_on_series_that_raise_it() -> None:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    tries = yaml.safe_load(ALERTS_TEST.read_text())["tests"]
    raised = {
        each["alertname"]
        for test in tries
        for each in test["alert_rule_test"]
        if each["exp_alerts"]
    }
    assert raised == {rule["alert"] for group in groups for rule in group["rules"]}


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install prometheus")
    return found


def test_promtool_takes_metrics_and_rules(path: Path, tmp_path: Path) -> None:
    promtool = program("promtool")
    subprocess.run([promtool, "test", "rules", ALERTS_TEST], check=True, capture_output=True)
    for kind, file in (("rules", ALERTS), ("config", DOCS / "prometheus" / "prometheus.yml")):
        subprocess.run([promtool, "check", kind, file], check=True, capture_output=True)
    for i, expression in enumerate(expressions().values()):
        plain = expression.replace("$__rate_interval", "5m").replace("$model", ".*")
        rule = {"groups": [{"name": "g", "rules": [{"record": "r", "expr": plain}]}]}
        (tmp_path / f"{i}.yml").write_text(yaml.safe_dump(rule))
    rules = [str(file) for file in tmp_path.glob("*.yml")]
    subprocess.run([promtool, "check", "rules", *rules], check=True, capture_output=True)

    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        await ask(client)
        text = await scraped(client)
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        # The colon is vLLM's; it advises against nothing else.
        said = [line for line in done.stderr.splitlines() if "contain ':'" not in line]
        assert said == []
        assert done.returncode in (0, 3)

    with_server(path, test, disk_cache=0)


def test_a_prometheus_scrapes_it(path: Path, tmp_path: Path) -> None:
    prometheus = program("prometheus")
    with real_server(path, disk_cache=0) as (url, _):
        body = {"messages": USER, "max_tokens": 5, "ignore_eos": True}
        httpx.post(f"{url}/v1/chat/completions", json=body, timeout=SECONDS).raise_for_status()
        config = yaml.safe_load((DOCS / "prometheus" / "prometheus.yml").read_text())
        config["global"]["scrape_interval"] = "200ms"
        config["rule_files"] = [str(ALERTS)]
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [url.removeprefix("http://")]
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = {
            "config.file": tmp_path / "prometheus.yml",
            "storage.tsdb.path": tmp_path / "data",
            "web.listen-address": f"127.0.0.1:{port}",
        }
        with subprocess.Popen(
            [prometheus, *(f"--{name}={given}" for name, given in options.items())],
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                found = answered(f"http://127.0.0.1:{port}", "vllm:generation_tokens_total")
            finally:
                process.terminate()
    assert found["metric"]["model_name"] == "tiny"
    assert found["metric"]["job"] == "edgeserve"
    assert found["value"][1] == "5"


def answered(url: str, query: str) -> Any:
    """The first series that a Prometheus has of a query, once it has one."""
    pause = threading.Event()
    for _ in range(SECONDS * 10):
        try:
            answer = httpx.get(f"{url}/api/v1/query", params={"query": query})
        except httpx.TransportError:
            answer = None  # it is starting
        if answer is not None and answer.is_success and answer.json()["data"]["result"]:
            return answer.json()["data"]["result"][0]
        pause.wait(0.1)
    pytest.fail(f"{query} was never scraped")
