"""Draw the README's picture: LRU, Belady and the optimum on every trace with results."""

import sys

from kvsim.experiments import belady
from kvsim.experiments.store import load_table
from kvsim.report import figures

figures.use_style()
ratios = belady.as_ratios(load_table("belady", "bound"))
shown = ratios[ratios["policy"].isin(["lru", "lfu", "opt"]) & (ratios["capacity"] >= 50)]
figures.hit_ratio_by_capacity(shown).savefig(sys.argv[1])
