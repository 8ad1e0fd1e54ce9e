"""What missed tokens cost: FLOPs of the prefill that a hit would have saved."""

from dataclasses import dataclass

import numpy as np

from kvsim.cache import models
from kvsim.cache.result import Result
from kvsim.traces.trace import Trace


@dataclass(frozen=True)
class CostModel:
    """FLOPs of prefilling a dense decoder-only transformer.

    A token costs ``2 * parameters`` in the matrix products with the weights and
    ``4 * layers * width`` for each token that it attends to, itself included
    (``2 * width`` a layer for the scores and as much for the weighted sum of the
    values). So late tokens cost more. Memory traffic, kernels and batching are
    left out: prefill of long prompts is bound by compute.

    Source: Kaplan et al. 2020 (arXiv 2001.08361), section 2.1, for the weights;
    Chowdhery et al. 2022 (arXiv 2204.02311), appendix B, whose 12 for the forward
    and the backward pass is 4 for the forward pass, for the attention.

    Parameters
    ----------
    name : str
        The model.
    parameters : float
        Weights a token is multiplied with: neither the embedding, which is
        looked up, nor the output layer, which prefill needs for one token.
    layers : int
        Attention layers.
    width : int
        Query heads times head dimension. Grouped-query attention shrinks keys and
        values in memory but not these products.
    """

    name: str
    parameters: float
    layers: int
    width: int

    @property
    def linear(self) -> float:
        """FLOPs a token, wherever it stands."""
        return 2.0 * self.parameters

    @property
    def attention(self) -> float:
        """FLOPs a token and token attended to."""
        return 4.0 * self.layers * self.width

    @property
    def doubling(self) -> float:
        """Position (tokens) at which attention costs as much as the weights."""
        return self.linear / self.attention

    def flops(self, tokens: np.ndarray) -> np.ndarray:
        """Return the FLOPs of prefilling the first `tokens` tokens of prompts."""
        tokens = np.asarray(tokens, dtype=np.float64)
        return self.linear * tokens + self.attention * tokens * (tokens + 1) / 2


# config.json of meta-llama/Meta-Llama-3-70B: 80 layers, hidden size 8,192, 64 query and 8 key heads
# of 128, feed-forward size 28,672. A layer has 8192 * (2 * 8192 + 2 * 1024 + 3 * 28672) weights.
LLAMA_3_70B = CostModel("Llama 3 70B", parameters=68.451e9, layers=80, width=8192)


def cost_model(name: str) -> CostModel:
    """Return the cost model of a model by its name, see ``kvsim/cache/models.toml``.

    Left out: attention in sliding windows, and over the few tokens that a sparse-attention
    indexer chooses, neither of which grows with the prompt.

    Raises
    ------
    TraceError
        If there is no such model.
    """
    model = models.get(name)
    return CostModel(model.name, model.weights, model.layers, model.width)


def prefill_cost(trace: Trace, result: Result, model: CostModel = LLAMA_3_70B) -> np.ndarray:
    """Return the FLOPs of every token not hit, a request.

    Compulsory misses are included, and so are tokens that no block covers and hits
    that the hit cap does not count: both are prefilled under any policy.

    Parameters
    ----------
    trace : Trace
        The requests.
    result : Result
        Of a run with prefix hits, so that a request's missed tokens are its last.
    model : CostModel
        What a token costs.

    Returns
    -------
    float64[]
        FLOPs of each request that counts.
    """
    counted = slice(result.first, None)
    return model.flops(trace.input_tokens[counted]) - model.flops(result.hit_tokens[counted])


def recompute_cost(trace: Trace, result: Result, model: CostModel = LLAMA_3_70B) -> np.ndarray:
    """Return the FLOPs of the tokens that an infinite cache would have hit, a request.

    Compulsory misses, tokens without a block and capped hits are left out: no
    policy can save them. Parameters and result are those of `prefill_cost`.
    """
    counted = slice(result.first, None)
    hit = result.hit_tokens + result.capped_tokens
    return model.flops(trace.seen_tokens[counted]) - model.flops(hit[counted])


def saving(cost: np.ndarray, baseline: np.ndarray) -> float | None:
    """Return 1 - cost / baseline (sums); negative is worse, None without a baseline cost."""
    whole = float(baseline.sum())
    return 1 - float(cost.sum()) / whole if whole else None
