"""The book's experiments: one file an experiment and one line in `EXPERIMENTS`."""

from kvsim.experiments import belady, validate
from kvsim.experiments.store import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "validate": validate.EXPERIMENT,
    "belady": belady.EXPERIMENT,
}
