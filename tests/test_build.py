"""Wiring: options and their bounds, how large context and pool become, what a file decides."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from edgeserve import AsyncLLM
from edgeserve.binding.weights import WeightRows
from edgeserve.build import LoadedModel, load_model
from edgeserve.config import Config
from edgeserve.constrained_models import ConstrainedModels
from edgeserve.engine_options import EngineOptions
from edgeserve.errors import (
    AbortedError,
    ConstraintError,
    FileChangedError,
    InvalidRequestError,
    KVMemoryError,
    ModelFileError,
    ModelNotFoundError,
    TemplateError,
    TensorShapeError,
    TokenizerError,
    UnsupportedModelError,
)
from edgeserve.loader.tensors import TensorReader
from edgeserve.runner.native_runner import NativeRunner
from edgeserve.runner.native_weights import NativeWeights
from edgeserve.runner.oracle_runner import OracleRunner
from edgeserve.runner.runner import TensorSource
from edgeserve.text.tokenizer import Tokenizer, build_tokenizer
from edgeserve.types import Constraint, Metadata, SamplingParams

from .hub_server import FakeHub, serving
from .tiny_models import write_tiny_model
from .tiny_vocabularies import byte_level_vocabulary

CONTEXT = 128
BLOCK_TOKENS = 16
# Two layers, two KV heads of 16, K and V: 128 numbers a token.
NUMBERS_PER_BLOCK = 128 * BLOCK_TOKENS
ELEMENT_BYTES = {"oracle": 4, "cpu": 2}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=CONTEXT)


def load(
    path: Path | str, constrained: ConstrainedModels | None = None, **options: Any
) -> LoadedModel:
    config = Config(Path("cache-that-is-not-there"), Path("hub-that-is-not-there"), hf_offline=True)
    given = EngineOptions(**options)
    clock = time.monotonic
    return load_model(str(path), given, config=config, clock=clock, constrained=constrained)


def num_blocks(model: LoadedModel) -> int:
    return model.engine._runner.num_blocks  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("device", value) for value in ("tpu", "", None, [])),
        *(("dtype", value) for value in ("float16", None, [])),
        *(("num_threads", value) for value in (0, -1, True, 1.0, "4", 1025, 10**9)),
        *(("max_model_len", value) for value in (0, 1, -5, True, 2.5)),
        *(("kv_cache_memory", value) for value in (0, -1, "2G", True)),
        *(("kv_cache_dtype", value) for value in ("q8_1", "", None, [])),
        *(("max_num_batched_tokens", value) for value in (0, None, True, 65537, 2**40)),
        *(("max_num_seqs", value) for value in (0, None, False)),
        *(("chat_template", value) for value in (5, Path("file.jinja"), b"x")),
        *(("speculation", value) for value in ("on", "", None, True, [])),
        *(("prefix_caching", value) for value in (None, 1, "no")),
    ],
)
def test_option_that_is_not_allowed_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        EngineOptions(**{name: value})
    assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("device", "kind"), [("auto", NativeRunner), ("cpu", NativeRunner), ("oracle", OracleRunner)]
)
def test_device_decides_what_computes(path: Path, device: str, kind: type) -> None:
    model = load(path, device=device)
    assert type(model.engine._runner) is kind  # pyright: ignore[reportPrivateUsage]
    model.engine.close()


def test_float64_is_the_oracles_other_type(path: Path) -> None:
    model = load(path, device="oracle", dtype="float64")
    assert model.engine._runner.numerics_class == "oracle-float64"  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("device", ["oracle", "cpu"])
def test_pool_is_what_the_memory_holds(path: Path, device: str) -> None:
    block = NUMBERS_PER_BLOCK * ELEMENT_BYTES[device]
    for blocks, context in ((3, 48), (8, CONTEXT), (20, CONTEXT)):
        model = load(path, device=device, kv_cache_memory=blocks * block + block - 1)
        assert model.engine.limits.max_model_len == context
        assert num_blocks(model) == blocks
        model.engine.close()


@pytest.mark.parametrize(("kv_cache_dtype", "group_bytes"), [("q8_0", 34), ("q4_0", 18)])
def test_pool_of_an_integer_cache_is_what_the_memory_holds(
    tmp_path: Path, kv_cache_dtype: str, group_bytes: int
) -> None:
    path = write_tiny_model(
        tmp_path / "m.gguf", "llama", context=CONTEXT, layers=1, kv_heads=2, head_size=64
    )
    block = 16 * 2 * 2 * 2 * group_bytes  # tokens, K and V, heads, groups of 32
    model = load(path, kv_cache_memory=3 * block + 1, kv_cache_dtype=kv_cache_dtype)
    assert num_blocks(model) == 3
    model.engine.close()


@pytest.mark.parametrize("kv_cache_dtype", ["q8_0", "q4_0"])
def test_the_oracle_has_no_integer_cache(kv_cache_dtype: str) -> None:
    with pytest.raises(InvalidRequestError, match="device oracle"):
        EngineOptions(device="oracle", kv_cache_dtype=kv_cache_dtype)


def test_pool_is_no_larger_than_all_sequences_could_fill(path: Path) -> None:
    model = load(path, kv_cache_memory=1 << 40, max_num_seqs=3)
    assert num_blocks(model) == 3 * CONTEXT // BLOCK_TOKENS
    model.engine.close()


@pytest.mark.parametrize(
    ("memory", "max_model_len", "needed_blocks"), [(1, None, 1), (4096 * 4, 100, 7)]
)
def test_memory_that_does_not_hold_one_request_is_refused_with_both_numbers(
    path: Path, memory: int, max_model_len: int | None, needed_blocks: int
) -> None:
    with pytest.raises(KVMemoryError) as caught:
        load(path, device="cpu", kv_cache_memory=memory, max_model_len=max_model_len)
    assert caught.value.needed_bytes == needed_blocks * NUMBERS_PER_BLOCK * 2
    assert caught.value.allowed_bytes == memory


def test_context_beyond_the_trained_one_is_refused_with_the_limit(path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"max_model_len = 129: must be at most 128"):
        load(path, max_model_len=CONTEXT + 1)
    assert load(path, max_model_len=CONTEXT).engine.limits.max_model_len == CONTEXT


def test_sampling_defaults_come_from_the_file(tmp_path: Path) -> None:
    metadata = {"general.sampling.temp": 0.25, "general.sampling.top_k": 7}
    model = load(write_tiny_model(tmp_path / "m.gguf", "llama", metadata=metadata))
    assert (model.defaults.temperature, model.defaults.top_k) == (0.25, 7)
    assert (model.defaults.top_p, model.defaults.origin) == (0.95, "model file")
    assert model.engine.defaults == model.defaults


FILES_SAMPLING = {
    "temp": 0.5,
    "penalty_last_n": 64,
    "penalty_repeat": 1.25,
    "xtc_probability": 0.25,
    "xtc_threshold": 0.125,
    "mirostat": 2,
    "mirostat_tau": 4.0,
    "mirostat_eta": 0.5,
    "sequence": "temp;typ-p;xtc;topk;penalties",
}


def test_every_sampling_key_of_the_file_reaches_requests_that_do_not_say(tmp_path: Path) -> None:
    metadata = {f"general.sampling.{key}": value for key, value in FILES_SAMPLING.items()}
    defaults = load(write_tiny_model(tmp_path / "m.gguf", "llama", metadata=metadata)).defaults
    own = SamplingParams().resolved(defaults)
    assert (own.penalty_window, own.repetition_penalty) == (64, 1.25)
    assert (own.mirostat, own.mirostat_tau, own.mirostat_eta) == (True, 4.0, 0.5)
    assert own.samplers == ("temperature", "penalties", "mirostat")
    other = SamplingParams(mirostat=0, top_k=5, typical_p=0.5).resolved(defaults)
    assert (other.xtc_probability, other.xtc_threshold) == (0.25, 0.125)
    assert other.samplers == ("temperature", "typical_p", "xtc", "top_k", "penalties")
    ordered = SamplingParams(samplers=["top_k"], top_k=5, mirostat=0).resolved(defaults)
    assert (ordered.top_k, ordered.temperature, ordered.samplers) == (5, 1.0, ())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("top_p", 1.5),
        ("mirostat", 1),
        ("penalty_last_n", 2**31),
        ("xtc_threshold", 2.0),
        ("sequence", "top_k;infill"),
        ("sequence", "top_k;top-k"),
        ("sequence", 3),
    ],
)
def test_sampling_default_that_no_request_may_have_is_the_files_defect(
    tmp_path: Path, key: str, value: object
) -> None:
    metadata = {f"general.sampling.{key}": value}
    file = write_tiny_model(tmp_path / "m.gguf", "llama", metadata=metadata)
    with pytest.raises(ModelFileError, match=rf"general\.sampling\.{key} \(byte \d+\)"):
        load(file)


def test_template_of_the_file_is_used_unless_another_is_given(path: Path, tmp_path: Path) -> None:
    model = load(path)
    assert model.template is not None
    assert "<|im_start|>" in model.template.source
    other = load(path, chat_template="{{ messages }}")
    assert other.template is not None
    assert other.template.source == "{{ messages }}"
    bare = write_tiny_model(tmp_path / "b.gguf", "llama", chat_template=None)
    assert load(bare).template is None


def test_template_that_cannot_be_parsed_is_found_before_a_runner_is_made(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a runner was made")

    monkeypatch.setattr("edgeserve.build._native_runner", never)
    with pytest.raises(TemplateError):
        load(path, chat_template="{% for %}")


def test_model_that_is_not_there_is_said_so() -> None:
    with pytest.raises(ModelNotFoundError):
        load("no-such-model")


@pytest.mark.parametrize("name", ["hf:ada/tiny-GGUF", "hf:ada/tiny-GGUF:tiny-Q8_0.gguf"])
def test_a_name_on_the_hub_is_no_path_though_it_has_a_slash(
    path: Path, tmp_path: Path, name: str
) -> None:
    hub = FakeHub("ada/tiny-GGUF", {"tiny-Q8_0.gguf": path.read_bytes()})
    with serving(hub):
        config = Config(tmp_path / "cache", tmp_path / "hub", hf_endpoint=hub.endpoint)
        model = load_model(name, EngineOptions(), config=config, clock=time.monotonic)
    model.engine.close()
    assert model.path.is_relative_to(tmp_path / "cache")


def test_damaged_file_and_unknown_architecture_are_typed(path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ModelFileError):
        load(cut)
    odd = write_tiny_model(tmp_path / "odd.gguf", "llama", written_as="mamba9")
    with pytest.raises(UnsupportedModelError):
        load(odd)


@pytest.mark.parametrize("num_tokens", [290, 299])
def test_vocabulary_that_is_not_the_embeddings_is_a_typed_error(
    tmp_path: Path, num_tokens: int
) -> None:
    vocabulary = byte_level_vocabulary(300)
    metadata = {
        "tokenizer.ggml.model": vocabulary.model,
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": vocabulary.tokens[:num_tokens],
        "tokenizer.ggml.token_type": vocabulary.types[:num_tokens],
        "tokenizer.ggml.merges": list(vocabulary.merges[:5]),
    }
    file = write_tiny_model(tmp_path / "m.gguf", "llama", tokenizer=None, metadata=metadata)
    with pytest.raises(TensorShapeError, match=f"300 rows for the {num_tokens} tokens"):
        load(file)


def test_weights_are_given_back_when_the_tokenizer_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, closed = threading.Event(), threading.Event()

    class Watched(NativeWeights):
        def fill(self, source: TensorSource, num_threads: int) -> None:
            super().fill(source, num_threads)
            loaded.set()

        def close(self) -> None:
            super().close()
            closed.set()

    def failing(_metadata: Metadata) -> NoReturn:
        assert loaded.wait(30)
        raise TokenizerError("tokenizer.ggml.tokens", "is damaged")

    monkeypatch.setattr("edgeserve.loading_weights.NativeWeights", Watched)
    monkeypatch.setattr("edgeserve.build.build_tokenizer", failing)
    with pytest.raises(TokenizerError, match="is damaged"):
        load(path)
    assert closed.is_set()


def test_weights_are_not_waited_for_when_the_tokenizer_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[AbortedError] = []

    def endless(_weights: NativeWeights, tensors: TensorReader, _num_threads: int) -> None:
        tensors.load_weights([], 1)
        try:
            while True:
                tensors.read("token_embd.weight")
        except AbortedError as error:
            ended.append(error)
            raise

    monkeypatch.setattr(NativeWeights, "fill", endless)
    metadata = {"tokenizer.ggml.eot_token_id": 1 << 20}
    with pytest.raises(TokenizerError, match="eot_token_id: is 1048576"):
        load(write_tiny_model(tmp_path / "m.gguf", "llama", metadata=metadata))
    assert len(ended) == 1


def test_the_tokenizer_is_made_while_weights_are_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for the other to have begun: in any other order one would wait in vain."""
    tokenizing = threading.Event()
    load_weights, make_tokenizer = TensorReader.load_weights, build_tokenizer

    def load_slowly(reader: TensorReader, wanted: Sequence[WeightRows], threads: int) -> None:
        load_weights(reader, wanted, threads)
        assert tokenizing.wait(30)

    def note(metadata: Metadata) -> Tokenizer:
        tokenizing.set()
        return make_tokenizer(metadata)

    monkeypatch.setattr(TensorReader, "load_weights", load_slowly)
    monkeypatch.setattr("edgeserve.build.build_tokenizer", note)
    load(path).engine.close()
    assert tokenizing.is_set()


def test_a_load_begins_before_what_takes_long_is_imported(path: Path) -> None:
    """Numpy comes while C reads; a path needs nothing that fetches, nor the catalogue's reader."""
    program = (
        "import sys\n"
        "from edgeserve import LLM, build\n"
        "made = build.LoadingWeights\n"
        "def begin(*arguments):\n"
        "    assert 'numpy' not in sys.modules\n"
        "    return made(*arguments)\n"
        "build.LoadingWeights = begin\n"
        f"LLM({str(path)!r}).close()\n"
        "late = {'tomllib', 'logging', 'edgeserve.loader.store', 'edgeserve.loader.download'}\n"
        "sys.exit(str(late & set(sys.modules)) if late & set(sys.modules) else 0)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_error_of_the_weights_is_the_loads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(_reader: TensorReader, wanted: Sequence[WeightRows], _threads: int) -> NoReturn:
        raise FileChangedError(wanted[0].tensor, "is gone")

    monkeypatch.setattr(TensorReader, "load_weights", cut)
    with pytest.raises(FileChangedError, match="is gone"):
        load(path)


def test_context_that_memory_cuts_is_said_with_what_would_hold_all(path: Path) -> None:
    model = load(path, device="cpu", kv_cache_memory=3 * NUMBERS_PER_BLOCK * 2)
    assert model.context_note == f"context 48 of {CONTEXT}; --kv-cache-memory 0.1G for all"
    model.engine.close()
    model = load(path, device="cpu")
    assert model.context_note is None
    model.engine.close()


def test_what_constraints_need_is_built_beside_the_load_of_a_model_that_had_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", "llama", context=CONTEXT)
    constrained = ConstrainedModels(tmp_path / "constrained")
    held = SamplingParams(constraint=Constraint.regex("(ab)+"), temperature=1, seed=3, max_tokens=9)

    async def answers(model: LoadedModel, *asked: SamplingParams) -> list[str]:
        async with AsyncLLM(model) as llm:
            found = [await llm.generate("the inn", params) for params in asked]
        return [output.outputs[0].text for output in found]

    asyncio.run(answers(load(path, constrained, num_threads=1), SamplingParams(max_tokens=2)))
    assert not constrained.has(path)
    first = asyncio.run(answers(load(path, constrained, num_threads=1), held))
    assert constrained.has(path)
    ready, late = load(path, constrained, num_threads=1), load(path, num_threads=1)
    monkeypatch.setattr("llguidance.LLTokenizer", None)  # from now on none can be built
    assert asyncio.run(answers(ready, held)) == first
    with pytest.raises(TypeError):
        asyncio.run(answers(late, held))


def test_a_model_that_no_constraint_fits_is_loaded_and_says_so_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no token that ends an answer."""
    path = write_tiny_model(tmp_path / "tiny.gguf", "llama")

    def endless(metadata: Metadata) -> Tokenizer:
        tokenizer = build_tokenizer(metadata)
        tokenizer.stop_ids = frozenset()
        return tokenizer

    monkeypatch.setattr("edgeserve.build.build_tokenizer", endless)
    constrained = ConstrainedModels(tmp_path / "constrained")
    constrained.note(path)
    model = load(path, constrained, num_threads=1)
    try:
        with pytest.raises(ConstraintError, match="no token that ends an answer"):
            model.constraints.compile(Constraint.regex("a+"))
    finally:
        model.engine.close()


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    constrained = ConstrainedModels(tmp_path / "file" / "below")
    constrained.note(tmp_path / "model.gguf")
    assert not constrained.has(tmp_path / "model.gguf")
