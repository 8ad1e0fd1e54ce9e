"""How numbers look in the readable results."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

NO_DATA = "no data"


def percent(value: Any) -> str:
    """Return a share of 1 in percent."""
    return NO_DATA if pd.isna(value) else f"{100 * value:.1f} %"


def fine_percent(value: Any) -> str:
    """Return a share of 1 in percent, to a hundredth."""
    return NO_DATA if pd.isna(value) else f"{100 * value:.2f} %"


def count(value: Any) -> str:
    """Return a whole number with separators."""
    return NO_DATA if pd.isna(value) else f"{value:,.0f}"


def figure(value: Any) -> str:
    """Return a number to four significant digits, whole above 1,000."""
    if pd.isna(value):
        return NO_DATA
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def label(value: Any) -> str:
    """Return a name as it is."""
    return NO_DATA if pd.isna(value) else str(value)


def lay_out(table: pd.DataFrame, columns: Mapping[str, tuple[str, Callable[..., str]]]) -> str:
    """Return the given columns (field to heading and format) as aligned text."""
    shown = pd.DataFrame(
        {heading: table[field].map(show) for field, (heading, show) in columns.items()}
    )
    return shown.to_string(index=False)
