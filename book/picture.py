"""Draw the README's picture: LRU, Belady and the optimum on every trace with results."""

import sys
from pathlib import Path

from kvsim.experiments import belady
from kvsim.report import figures, pictures
from kvsim.report.results import load_table

figures.use_style()
ratios = belady.as_ratios(load_table("belady", "bound"))
shown = ratios[ratios["policy"].isin(["lru", "lfu", "opt"]) & (ratios["capacity"] >= 50)]
Path(sys.argv[1]).write_bytes(pictures.png(figures.hit_ratio_by_capacity(shown)))
