"""How many modes a sample has, by Silverman's test.

Silverman (1981): the critical bandwidth for k modes is the smallest at which a
Gaussian kernel density estimate has at most k. If samples drawn from that
estimate, rescaled to the sample's variance, nearly always need less, the sample has
more than k modes. The test is known to be conservative. A few outliers make a
mode of their own at any bandwidth that suits the rest, so modes count only between two
quantiles of the sample (Hall and York 2001 restrict the test to an interval in this way).
"""

from itertools import pairwise

import numpy as np
import pandas as pd

GRID = 4096
# Below this share of the highest density a slope is rounding noise of the transform.
NOISE = 1e-11
COLUMNS = ("modes", "bandwidth", "p_value", "at", "smallest_peak", "deepest_valley")

Interval = tuple[float, float]


def silverman(
    values: np.ndarray,
    most: int = 3,
    *,
    draws: int = 300,
    seed: int = 0,
    between: Interval = (0.005, 0.995),
) -> pd.DataFrame:
    """Test "at most k modes" for k = 1 to `most`.

    Parameters
    ----------
    values : float64[n]
        The sample; logarithms of it for quantities that span decades.
    most : int
        Largest k.
    draws : int
        Bootstrap samples for each k.
    seed : int
        Of the bootstrap.
    between : pair of float
        Quantiles of the sample between which modes count.

    Returns
    -------
    pandas.DataFrame
        ``modes`` (k), ``bandwidth`` (critical, in units of the values), ``p_value``; then of the
        density at that bandwidth ``at`` (tuple of the modes' positions), ``smallest_peak`` (share
        of the highest) and ``deepest_valley`` (share of the lower of the two peaks beside
        it). Missing for fewer than 2 different values.
    """
    values = np.asarray(values, dtype=np.float64)
    rows: list[dict[str, object]] = []
    within = (0.0, 0.0)
    if len(values):
        within = (float(np.quantile(values, between[0])), float(np.quantile(values, between[1])))
    for modes in range(1, most + 1):
        row = dict.fromkeys(COLUMNS, np.nan) | {"modes": modes, "at": ()}
        if within[0] < within[1]:
            bandwidth = critical_bandwidth(values, modes, within)
            rng = np.random.default_rng([seed, modes])
            row["bandwidth"] = bandwidth
            row["p_value"] = _p_value(values, modes, bandwidth, within, draws, rng)
            row |= _shape(*density(values, bandwidth), within)
        rows.append(row)
    return pd.DataFrame(rows)


def supported_modes(test: pd.DataFrame, level: float = 0.05) -> int | None:
    """Return the smallest number of modes that the test does not reject, None if none."""
    kept = test[test["p_value"] >= level]
    return int(kept["modes"].iloc[0]) if len(kept) else None


def critical_bandwidth(values: np.ndarray, modes: int, within: Interval) -> float:
    """Return the smallest bandwidth at which the density has at most `modes` modes in `within`."""
    spread = float(np.ptp(values))
    low, high = spread / GRID, spread
    # The number of modes falls as the bandwidth of a Gaussian kernel grows.
    while high / low > 1.001:
        middle = float(np.sqrt(low * high))
        if len(_modes(values, middle, within)) <= modes:
            high = middle
        else:
            low = middle
    return high


def density(values: np.ndarray, bandwidth: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a Gaussian kernel density estimate on a grid.

    Parameters
    ----------
    values : float64[n]
        The sample.
    bandwidth : float
        Standard deviation of the kernel, in units of the values.

    Returns
    -------
    position, height : float64[4096]
        The grid, which reaches 4 bandwidths beyond the sample, and the density there.
    """
    margin = 4 * bandwidth
    start = values.min() - margin
    step = (np.ptp(values) + 2 * margin) / (GRID - 1)
    # Each value is split between its two neighbours on the grid.
    place = (values - start) / step
    cell = np.minimum(place.astype(np.int64), GRID - 2)
    upper = place - cell
    mass = np.bincount(cell, 1 - upper, GRID) + np.bincount(cell + 1, upper, GRID)
    frequency = np.fft.rfftfreq(2 * GRID, step)
    kernel = np.exp(-2 * (np.pi * frequency * bandwidth) ** 2)
    smooth = np.fft.irfft(np.fft.rfft(mass, 2 * GRID) * kernel, 2 * GRID)[:GRID]
    return start + step * np.arange(GRID), smooth / (len(values) * step)


def _modes(values: np.ndarray, bandwidth: float, within: Interval) -> np.ndarray:
    """Return the positions of the density's peaks in `within`."""
    position, height = density(values, bandwidth)
    return np.asarray(position[_peaks(position, height, within)])


def _peaks(position: np.ndarray, height: np.ndarray, within: Interval) -> np.ndarray:
    """Return the grid indices of the peaks in `within`."""
    slope = np.diff(height)
    slope[np.abs(slope) < NOISE * height.max()] = 0.0
    steep = np.flatnonzero(slope)
    falls = (slope[steep[:-1]] > 0) & (slope[steep[1:]] < 0)
    peaks = steep[:-1][falls] + 1
    return np.asarray(peaks[(position[peaks] >= within[0]) & (position[peaks] <= within[1])])


def _shape(position: np.ndarray, height: np.ndarray, within: Interval) -> dict[str, object]:
    peaks = _peaks(position, height, within)
    tops = height[peaks]
    valleys = [
        height[left : right + 1].min() / min(height[left], height[right])
        for left, right in pairwise(peaks)
    ]
    return {
        "at": tuple(position[peaks].tolist()),
        "smallest_peak": float(tops.min() / tops.max()) if len(tops) else np.nan,
        "deepest_valley": float(min(valleys)) if valleys else np.nan,
    }


def _p_value(
    values: np.ndarray,
    modes: int,
    bandwidth: float,
    within: Interval,
    draws: int,
    rng: np.random.Generator,
) -> float:
    """Return how often smoothed samples, the given one counted in, have more than `modes` modes."""
    mean, variance = values.mean(), values.var()
    shrink = 1 / np.sqrt(1 + bandwidth**2 / variance)
    more = 0
    for _ in range(draws):
        noise = bandwidth * rng.standard_normal(len(values))
        drawn = rng.choice(values, len(values)) - mean
        more += len(_modes(mean + shrink * (drawn + noise), bandwidth, within)) > modes
    return (more + 1) / (draws + 1)
