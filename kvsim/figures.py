"""Figures: each function takes a tidy table and returns a Matplotlib figure or axes."""

from typing import Any

import matplotlib as mpl
from cycler import cycler

# Okabe and Ito's palette, which colour-blind readers tell apart. Its yellow is left out: it is too
# light on white. Dashes and markers tell the lines apart in grey as well.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.labelsize": 12,
    "axes.prop_cycle": cycler(color=COLORS, linestyle=DASHES, marker=MARKERS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 13,
    "figure.constrained_layout.use": True,
    # Opaque white, also where the page is dark: the book's style sheet inverts the lightness there,
    # and everywhere else a white card stays readable.
    "figure.facecolor": "white",
    "figure.figsize": (6.4, 4.0),
    "figure.dpi": 144,
    "font.size": 12,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "savefig.dpi": 144,
}


def use_style() -> None:
    """Set Matplotlib's defaults to those of the book, from Matplotlib's own defaults."""
    mpl.rcdefaults()
    mpl.rcParams.update(STYLE)
