"""What a token's keys and values weigh: open models by name, as plain data in ``models.toml``.

Grouped-query attention keeps ``2 * kv_heads * head_size`` elements a token and layer, multi-head
latent attention ``kv_rank + rope_size``, a sparse-attention indexer ``index_size`` beside them.
A sliding-window layer keeps the last `window` tokens; a linear-attention layer keeps one state of
fixed size at each checkpoint, and a prefix hits only where a checkpoint was kept.

Scales of quantised caches, draft layers and the padding of blocks are left out.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kvsim.traces.registry import unknown
from kvsim.traces.trace import TraceError

PRECISIONS = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5}  # bytes an element
CONVOLUTION_BYTES, RECURRENT_BYTES = 2, 4  # of a linear-attention state: bf16 and fp32
GIB = 2**30


@dataclass(frozen=True)
class Sliding:
    """Layers that keep the last `window` tokens."""

    layers: int
    kv_heads: int
    head_size: int
    window: int

    @property
    def elements(self) -> int:
        """Elements that a token within the window takes."""
        return self.layers * 2 * self.kv_heads * self.head_size


@dataclass(frozen=True)
class Linear:
    """Linear-attention layers (gated delta net): heads, their sizes, the convolution's kernel."""

    layers: int
    key_heads: int
    key_size: int
    value_heads: int
    value_size: int
    kernel: int

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of the state that is kept at one position of a prompt."""
        inputs = 2 * self.key_heads * self.key_size + self.value_heads * self.value_size
        convolution = (self.kernel - 1) * inputs
        recurrent = self.value_heads * self.key_size * self.value_size
        return self.layers * (convolution * CONVOLUTION_BYTES + recurrent * RECURRENT_BYTES)


@dataclass(frozen=True)
class Model:
    """A model's configuration, as far as caches and prefill depend on it.

    ``models.toml`` says what its fields mean.
    """

    name: str
    layers: int
    weights: float
    total: float
    width: int
    source: str
    checked: str
    kv_heads: int = 0
    head_size: int = 0
    kv_rank: int = 0
    rope_size: int = 0
    index_size: int = 0
    sliding: Sliding | None = None
    linear: Linear | None = None

    @property
    def elements(self) -> int:
        """Elements that each further token of a long prompt takes."""
        heads = 2 * self.kv_heads * self.head_size
        return self.layers * (heads + self.kv_rank + self.rope_size + self.index_size)

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of a linear-attention state, kept at a checkpoint and not a token; else 0."""
        return self.linear.checkpoint_bytes if self.linear else 0

    def bytes_per_token(self, precision: str = "bf16") -> float:
        """Return the bytes that each further token of a long prompt takes.

        That is, once the sliding windows are full; they and checkpoints are in `kv_bytes`.

        Parameters
        ----------
        precision : str
            A name of `PRECISIONS`.
        """
        return self.elements * element_bytes(precision)

    def window_bytes(self, precision: str = "bf16") -> float:
        """Return the bytes that full sliding windows of one prompt take; 0 without such layers."""
        if self.sliding is None:
            return 0.0
        return self.sliding.elements * self.sliding.window * element_bytes(precision)

    def kv_bytes(self, tokens: int, precision: str = "bf16", checkpoints: int = 0) -> float:
        """Return the bytes of one prompt, so many tokens long.

        Parameters
        ----------
        tokens : int
            Of the prompt.
        precision : str
            A name of `PRECISIONS`, for all but the linear-attention states.
        checkpoints : int
            Positions of the prompt at which the linear-attention state is kept.
        """
        kept = self.elements * tokens
        if self.sliding:
            kept += self.sliding.elements * min(tokens, self.sliding.window)
        return kept * element_bytes(precision) + checkpoints * self.checkpoint_bytes

    def blocks_per_gib(self, block_size: int, precision: str = "bf16") -> float:
        """Return how many blocks of `block_size` tokens a GiB holds."""
        return GIB / (block_size * self.bytes_per_token(precision))


@cache
def models() -> Mapping[str, Model]:
    """Return the known models by name."""
    with Path(__file__).with_name("models.toml").open("rb") as file:
        return {name: _model(name, row) for name, row in tomllib.load(file).items()}


def get(name: str) -> Model:
    """Return a model by its name, in any case.

    Raises
    ------
    TraceError
        If there is no such model.
    """
    known = models()
    if name.lower() not in known:
        raise TraceError(f"model {unknown(name, 'not a known model', list(known))}")
    return known[name.lower()]


def named_bytes(text: str) -> float:
    """Return the bytes of a token that a text stands for.

    Parameters
    ----------
    text : str
        A model's name, and after a colon a precision other than bf16: ``llama-3.1-8b:fp8``.

    Raises
    ------
    TraceError
        If the model or the precision is not known.
    """
    name, _, precision = text.partition(":")
    return get(name).bytes_per_token(precision or "bf16")


def element_bytes(precision: str) -> float:
    """Return the bytes of an element in a precision.

    Raises
    ------
    TraceError
        If `precision` is not one of `PRECISIONS`.
    """
    if precision not in PRECISIONS:
        raise TraceError(
            f"precision {unknown(precision, 'not a known precision', list(PRECISIONS))}"
        )
    return PRECISIONS[precision]


def _model(name: str, row: dict[str, Any]) -> Model:
    sliding = Sliding(**row.pop("sliding")) if "sliding" in row else None
    linear = Linear(**row.pop("linear")) if "linear" in row else None
    return Model(name=name, sliding=sliding, linear=linear, **row)
