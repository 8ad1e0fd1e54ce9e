"""The book's experiments: one file an experiment and one line in `EXPERIMENTS`."""

from kvsim.experiments import (
    ablation,
    belady,
    characterize,
    compare,
    compression,
    gap,
    liveness,
    provider,
    regimemap,
    ttl,
    validate,
)
from kvsim.experiments.store import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "validate": validate.EXPERIMENT,
    "characterize": characterize.EXPERIMENT,
    "gap": gap.EXPERIMENT,
    "ablation": ablation.EXPERIMENT,
    "ttl": ttl.EXPERIMENT,
    "belady": belady.EXPERIMENT,
    "compare": compare.EXPERIMENT,
    "liveness": liveness.EXPERIMENT,
    "regimes": regimemap.EXPERIMENT,
    "compression": compression.EXPERIMENT,
    "provider": provider.EXPERIMENT,
}
