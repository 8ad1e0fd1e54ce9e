"""Bytes of keys and values, by model: known values, and a peer's catalogue if installed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvsim
from kvsim.cache.capacity import parse
from kvsim.cache.costs import LLAMA_3_70B, cost_model
from kvsim.cache.models import GIB, PRECISIONS, Linear, Model, Sliding, get, models, named_bytes
from kvsim.cli.models import rows, token_bytes
from kvsim.traces.trace import TraceError

KNOWN = {
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "llama-3.3-70b": 327_680,
    "qwen3-8b": 147_456,
    "qwen3-32b": 262_144,
    "qwen3-30b-a3b": 98_304,
    "qwen3-235b-a22b": 192_512,
    "qwen3.6-35b-a3b": 20_480,
    "deepseek-v3": 70_272,
    "deepseek-r1": 70_272,
    "kimi-k2.5": 70_272,
    "minimax-m2": 253_952,
}
# Active parameters as published (milliards); ours leave out embedding and output layer.
PUBLISHED_ACTIVE = {
    "qwen3-30b-a3b": 3.3,
    "qwen3-235b-a22b": 22,
    "qwen3.6-35b-a3b": 3,
    "deepseek-v3": 37,
    "kimi-k2.5": 32,
    "glm-4.5": 32,
    "glm-5": 40,
    "minimax-m2": 10,
    "gpt-oss-20b": 3.6,
    "gpt-oss-120b": 5.1,
    "gemma-4-26b-a4b": 3.8,
}
HAND: dict[str, Any] = {"weights": 1.0, "total": 1.0, "width": 1, "source": "-", "checked": "-"}


@pytest.mark.parametrize("name", KNOWN)
def test_bytes_a_token_in_bf16(name: str) -> None:
    assert get(name).bytes_per_token() == KNOWN[name]
    assert [get(name).bytes_per_token(precision) for precision in PRECISIONS] == [
        KNOWN[name],
        KNOWN[name] / 2,
        KNOWN[name] / 4,
    ]


def test_40k_blocks_of_a_70b_model_are_839_gb() -> None:
    assert round(40_000 * 64 * get("llama-3.1-70b").bytes_per_token() / 1e9) == 839


def test_a_window_a_latent_an_indexer_and_a_state_by_hand() -> None:
    # 2 full layers of 2 * 3 heads * 4 = 24 elements; 5 sliding ones of 2 * 1 * 10 = 20, 100 in all,
    # for the last 7 tokens: 10 tokens are (48 * 10 + 100 * 7) * 2 bytes.
    windowed = Model("w", layers=2, kv_heads=3, head_size=4, sliding=Sliding(5, 1, 10, 7), **HAND)
    assert windowed.bytes_per_token() == 96
    assert windowed.kv_bytes(10) == 2 * (480 + 700)
    assert windowed.kv_bytes(3) == 2 * (144 + 300)
    assert windowed.window_bytes("fp8") == 700
    # A layer keeps 16 latent, 4 rope and 8 index elements of each token.
    latent = Model("l", layers=3, kv_rank=16, rope_size=4, index_size=8, **HAND)
    assert latent.kv_bytes(10, "fp8") == 10 * 3 * 28
    # The convolution keeps 3 inputs of 2 * 2 * 4 + 3 * 5 = 31 elements in 2 bytes, the recurrence
    # 3 * 4 * 5 = 60 in 4: 186 + 240 bytes a layer.
    linear = Linear(2, key_heads=2, key_size=4, value_heads=3, value_size=5, kernel=4)
    hybrid = Model("h", layers=1, kv_heads=1, head_size=8, linear=linear, **HAND)
    assert hybrid.checkpoint_bytes == 2 * 426
    assert hybrid.kv_bytes(10, checkpoints=3) == 10 * 32 + 3 * 852


@given(st.sampled_from(sorted(models())), st.integers(0, 10**6), st.sampled_from(list(PRECISIONS)))
def test_a_prompt_grows_by_the_bytes_of_a_token_once_its_windows_are_full(
    name: str, tokens: int, precision: str
) -> None:
    model = get(name)
    step = model.kv_bytes(tokens + 1, precision) - model.kv_bytes(tokens, precision)
    assert step >= model.bytes_per_token(precision)
    if model.sliding is None or tokens >= model.sliding.window:
        assert step == model.bytes_per_token(precision)
        whole = model.bytes_per_token(precision) * tokens + model.window_bytes(precision)
        assert model.kv_bytes(tokens, precision) == whole


def test_every_model_says_where_it_comes_from() -> None:
    assert len(models()) >= 12
    for model in models().values():
        assert model.source
        assert model.checked
        assert model.elements > 0
        assert model.weights <= model.total


def test_weights_are_those_of_the_published_active_parameters_but_for_vocabularies() -> None:
    for name, active in PUBLISHED_ACTIVE.items():
        assert 0.8 * active < get(name).weights / 1e9 < active + 0.5
    assert cost_model("llama-3.1-70b").flops(1000) == LLAMA_3_70B.flops(1000)


def test_a_model_is_a_unit_of_capacity_everywhere() -> None:
    trace = kvsim.open_trace("sample")
    block = 131_072 * trace.block_size
    assert parse("1GiB", trace, "Llama-3.1-8B") == GIB // block
    assert parse("1GiB", trace, "llama-3.1-8b:fp8") == 2 * GIB // block
    size = parse("80GiB", trace, "qwen3-8b")
    assert kvsim.simulate(trace, "lru", "80GiB", bytes_per_token="qwen3-8b").capacity == size
    assert kvsim.opt(trace, "80GiB", bytes_per_token="qwen3-8b").capacity == size
    assert kvsim.curve(trace, ["80GiB"], bytes_per_token="qwen3-8b")["capacity"].tolist() == [size]
    grid = kvsim.sweep(trace, ["lru"], ["80GiB"], bytes_per_token="qwen3-8b")
    assert grid["capacity"].tolist() == [size]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("llama-3.1-9b", r"model llama-3.1-9b: not a known model; did you mean 'llama-3.1-8b'\?"),
        ("x", "model x: not a known model; known: llama"),
        ("qwen3-8b:fp9", r"precision fp9: not a known precision; did you mean 'fp8'\? known: bf16"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(text: str, why: str) -> None:
    with pytest.raises(TraceError, match=why):
        named_bytes(text)


def test_rows_of_the_command() -> None:
    table = {row["name"]: row for row in rows("fp8", 64)}
    assert list(table) == list(models())
    # A GiB is 2 ** 30 bytes, a block 64 tokens of 2 ** 16.
    assert table["llama-3.1-8b"]["blocks_per_gib"] == 256
    assert table["gpt-oss-20b"]["window_bytes"] == 12 * 2 * 8 * 64 * 128
    assert token_bytes(None, "qwen3-8b") == "qwen3-8b"
    assert token_bytes(5.0, None) == 5.0
    with pytest.raises(Exception, match="exclude each other"):
        token_bytes(5.0, "qwen3-8b")


NOT_IN_THEIRS = {"glm-4.5", "gpt-oss-20b", "gpt-oss-120b", "mistral-large-2411"}


@pytest.mark.parametrize("name", sorted(models().keys() - NOT_IN_THEIRS))
@pytest.mark.parametrize("tokens", [1, 1000, 100_000])
def test_bytes_as_kvcache_simulator(name: str, tokens: int) -> None:
    calculator = pytest.importorskip(
        "kvcache_sim.calculator", reason="the extra `bench` is not installed"
    )
    data = calculator.load_models_data()
    peer = next(model for model in data["models"] if model["id"] == name)
    model = get(name)
    for precision, theirs in (("bf16", "bf16_fp16"), ("fp8", "fp8_int8"), ("int4", "fp4_int4")):
        size = calculator.calculate_cache_size(
            peer,
            tokens=tokens,
            precision=theirs,
            indexer_precision=theirs,
            include_linear_attention_state=True,
            recurrent_state_precision="fp32",
            models_data=data,
        )
        assert model.kv_bytes(tokens, precision, checkpoints=1) == size.total_bytes
